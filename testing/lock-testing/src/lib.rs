//! Tools for tests of locks: real servers, a faulty network, a record of events, a checker of histories, and a
//! stopwatch for unreliable machines.
//!
//! These tools panic where production code would return an error, because a panic fails the test.

#[cfg(test)]
extern crate self as lock_testing;
#[cfg(feature = "conformance")]
pub mod conformance;
mod events;
mod history;
mod inbox;
mod limit;
mod not_run;
mod recorder;
pub(crate) mod servers;
mod stopwatch;

pub use crate::servers::cluster::RedisCluster;
#[cfg(unix)]
pub use crate::servers::postgres::{PostgresPooler, PostgresServer};
pub use crate::servers::process::{freeze, own_stderr, thaw};
pub use crate::servers::proxy::{Direction, FaultProxy};
pub use crate::servers::relative::RedisRelative;
pub use crate::servers::reply::Reply;
pub use crate::servers::sentinel::{RedisSentinels, RedisSentinelsBuilder};
pub use crate::servers::server::{RedisServer, RedisServerBuilder, free_port};
pub use events::EventLog;
pub use history::{History, Record, Verdict, Violation};
pub use inbox::{Report, Reports, inbox, stand_in};
pub use limit::{limit, within};
pub use not_run::not_run;
pub use recorder::Recorder;
pub use stopwatch::Stopwatch;
