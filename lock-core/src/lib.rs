//! Distributed locks on Redis: fair, fenced, watched, and observable.
//!
//! Annotate a function and at most one caller in the whole fleet is inside it for one key:
//!
//! ```
//! # #[cfg(feature = "macros")] {
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "lock:user:<user_id>", ttl = "10s")]
//! async fn charge(user_id: u64, amount: u64) -> Result<u64, LockError> {
//!     Ok(amount)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let locks = LockManager::connect("memory://").await?;
//! locks.scope(charge(42, 100)).await?; // or, once in `main`: locks.install()?
//! locks.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), LockError>(())
//! # }).unwrap();
//! # }
//! ```
//!
//! | to … | look at |
//! |---|---|
//! | connect, configure, install, shut down | [`LockManager`], [`LockOptions`] |
//! | set ttl, wait, limits; acquire, try, run | [`LockRequest`] |
//! | check, extend, release what is held | [`LockGuard`] |
//! | have one leader, and know who it is | [`Election`] |
//! | run a job once in a period, or once for its time | [`LockRequest::at_most_every`], [`LockRequest::once_at`] |
//! | spread one name over several locks, by id or whichever is free | [`Striped`] |
//! | protect a resource against holders that paused too long | [`FencingToken`], [`FencingGate`], [`FencedWrite`] for Redis |
//! | decide on a failure | [`LockErrorKind`], [`LossReason`] |
//! | annotate functions | `#[distributed_lock]`, `lock_key!` (feature `macros`) |
//! | answer an HTTP request whose lock is refused | [`LockError::http_status`], `LockLayer` (feature `tower`), feature `axum` |
//! | find locks that are taken in two orders | [`LockManager::lock_order`] |
//! | watch what happens | [`LockObserver`]; the crate `lock-metrics` turns it into Prometheus series |
//! | see it in traces | the `tracing` spans `lock_acquire` and `lock_hold`, target `lock_core`, level `DEBUG` |
//! | add a store | [`LockBackend`], [`MemoryStore`] as the specification, `conformance` (feature `test-util`) |
//!
//! # What it guarantees
//!
//! Leases never overlap as long as the clocks of client and server run at the same rate within one
//! percent, the server's clock does not jump forward, and the server does not lose acknowledged
//! writes. No lease lock is exclusive under arbitrary pauses of a process: for that there is the
//! fencing token, which a resource checks.
//!
//! # Features
//!
//! `redis` (default), `macros` (default), `signal` (default) for [`LockManager::shutdown_on_signal`], `tls` for `rediss://`, `axum` for responses and an extractor, `tower` for
//! a layer that holds a lock around a request, `serde` for [`LockOptions`] in configuration files, `inspect` to read the locks of a whole fleet from Redis,
//! `test-util` for the tools of tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod __private;
mod acquire;
pub mod backend;
mod blocking;
mod call_site;
mod claim;
mod clock;
#[cfg(feature = "test-util")]
pub mod conformance;
mod connect;
mod context;
mod deadlock;
mod election;
mod engine;
mod error;
mod event;
mod event_context;
mod fenced_write;
mod fencing;
mod fencing_gate;
mod following;
mod fork;
mod free;
mod gate;
mod global;
mod grants;
mod guard;
mod handle;
mod hold;
mod job;
mod keeper;
mod key;
mod lease;
mod lock;
mod manager;
mod memory;
mod mode;
mod naming;
mod options;
mod order;
mod outcome;
mod overriding;
mod owned_hold;
mod owner;
mod prefix;
mod protect;
mod quorum;
mod random;
#[cfg(feature = "redis")]
mod redis;
mod release;
mod shutdown;
mod site;
mod spec;
mod spread;
mod stripe;
mod striped;
mod sync;
#[cfg(feature = "test-util")]
pub mod testing;
mod timer;
mod trace;
mod watchdog;
mod web;

#[cfg(feature = "inspect")]
pub use crate::redis::inspect;
#[cfg(feature = "redis")]
pub use crate::redis::{Credentials, RedisStore, RedisStoreBuilder};
pub use backend::{
    AcquireRequest, AnyBackend, Attempt, AttemptAll, Blocked, Capabilities, Claim, Freed, Grant, Inbox, JobRecord,
    JobRun, LockBackend, MemberList, NodeReport, Release, Renewal, SyncReport, Ticket, Vote,
};
pub use clock::{Clock, Timestamp};
pub use context::{CurrentLock, LockContext, assert_locked, current_lock};
pub use election::{Election, Leader, Leadership, Observation};
pub use error::{LockError, LockErrorKind, LossReason, Result};
pub use event::{
    Deadlock, DeadlockMember, GrantPath, LockEvent, LockEventKind, LockObserver, MemberHealth, MemberState, Notice,
    Purpose, QuorumHealth, observe_all,
};
pub use fenced_write::FencedWrite;
pub use fencing::{FencingToken, StaleToken};
pub use fencing_gate::FencingGate;
pub use free::ReleaseOutcome;
pub use global::{AlreadyInstalled, DefaultGuard};
pub use guard::LockGuard;
pub use job::Job;
pub use key::{LockKey, LockLabel};
pub use lock::LockRequest;
#[cfg(feature = "macros")]
pub use lock_macros::{distributed_lock, lock_key};
pub use manager::{LockManager, LockManagerBuilder};
pub use memory::MemoryStore;
pub use mode::{MAX_PERMITS, Mode};
pub use naming::{IntoLockKey, KeyBuilder, MAX_KEY_BYTES};
pub use options::{Durability, LockOptions, MAX_TTL, MIN_FIXED_TTL, MIN_RENEW_INTERVAL, MIN_RENEWED_TTL, Renew, Wait};
pub use order::{LockOrder, OrderInversion};
pub use outcome::{FromLockError, LockFailure};
pub use overriding::{Overriding, overriding};
pub use owner::{Holder, HolderInfo, OwnerId};
pub use quorum::{Quorum, Restarts};
pub use shutdown::ShutdownReport;
pub use site::{Site, sites};
pub use striped::{AnyStripe, Striped};
#[cfg(feature = "tower")]
pub use web::{LockLayer, LockService, ProblemResponse, Refuse};
