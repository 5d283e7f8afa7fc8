//! Tools that tests of locks need: real servers, a faulty network, a record of events, a checker of
//! histories, a stopwatch for unreliable machines.
//!
//! Feature `test-util`. They panic where production code would return an error, which is how a test
//! fails.

mod cluster;
mod events;
mod history;
mod inbox;
mod limit;
mod locks;
mod proxy;
mod recorder;
mod reply;
mod sentinel;
mod server;
mod session;
mod stopwatch;

pub use cluster::RedisCluster;
pub use events::EventLog;
pub use history::{History, Record, Verdict, Violation};
pub use inbox::{Report, Reports, inbox, stand_in};
pub use limit::{limit, within};
pub use locks::TestLocks;
pub use proxy::{Direction, FaultProxy};
pub use recorder::Recorder;
pub use reply::Reply;
pub use sentinel::{RedisSentinels, RedisSentinelsBuilder};
pub use server::{RedisServer, RedisServerBuilder};
pub use stopwatch::Stopwatch;
