//! Distributed locks in Redis, Valkey or PostgreSQL: fair, fenced, watched, and observable.
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
//! | connect, configure, install, shut down | [`LockManager`], [`LockOptions`]; `postgres://` is in the crate `lock-postgres` |
//! | set ttl, wait, limits; acquire, try, run | [`LockRequest`] |
//! | check, extend, release what is held | [`LockGuard`] |
//! | hold a lock over several processes, such as the steps of a CI job | [`LockManager::lease`], [`lease::Lease`] |
//! | learn while a request waits who holds the lock | [`LockRequest::on_waiting`] |
//! | have one leader, and know who it is | [`Election`] |
//! | run a job at most once in a time, once for each tick, or once for its time | [`LockRequest::at_most_every`], [`LockRequest::once_every`], [`LockRequest::once_at`] |
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
//! Leases never overlap if the clocks of client and server run at the same rate within one percent, the server's clock
//! does not jump forward, and the server keeps acknowledged writes. A paused process needs the fencing token.
//!
//! # Features
//!
//! | feature | default | it adds |
//! |---|---|---|
//! | `redis` | yes | the Redis store: one server, Sentinel, Cluster |
//! | `quorum` | yes | one lock over several independent stores: [`Quorum`] |
//! | `macros` | yes | `#[distributed_lock]` and `lock_key!` |
//! | `signal` | yes | [`LockManager::shutdown_on_signal`] |
//! | `tls` | no | `rediss://` |
//! | `inspect` | no | reading the locks of a whole fleet |
//! | `axum`, `tower` | no | [`LockError`] as a response, and an extractor; a layer that holds a lock around a request |
//! | `serde` | no | [`LockOptions`] from configuration files, a [`lease::Lease`] as text |
//! | `test-util` | no | the tools for tests, and the conformance suite |
//!
//! # Pages
//!
#![cfg_attr(feature = "macros", doc = "[`guide`] has the pages of this version, from the tutorial to the glossary.")]
//! [All pages] are in the repository.
//!
#![doc = concat!("[All pages]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
#[doc(hidden)]
pub mod attribute;
mod engine;
mod memory;
#[cfg(feature = "test-util")]
pub mod testing;

// The gate names its mutex by this path, because the test `interleavings` builds it over another mutex.
use lock_store::types::system::sync;

#[doc(inline)]
pub use lock_store as store;

#[cfg(feature = "inspect")]
pub use crate::api::inspect;
pub use api::fencing::gate::FencingGate;
pub use api::fencing::write::FencedWrite;
pub use api::global::{AlreadyInstalled, DefaultGuard};
pub use api::guard::LockGuard;
pub use api::lease;
pub use api::lock::LockRequest;
pub use api::manager::{LockManager, LockManagerBuilder};
pub use api::outcome::{FromLockError, LockFailure};
pub use api::overriding::{Overriding, overriding};
pub use api::roles::election::{Election, Leader, Leadership, Observation};
pub use api::roles::job::Job;
pub use api::roles::once::OnceFor;
pub use api::shutdown::ShutdownReport;
pub use api::striped::{AnyStripe, Striped};
#[cfg(feature = "tower")]
pub use api::web::{LockLayer, LockService, ProblemResponse, Refuse};
pub use attribute::site::{Site, sites};
pub use engine::claim::free::ReleaseOutcome;
pub use engine::context::{CurrentLock, LockContext, assert_locked, current_lock};
#[cfg(feature = "macros")]
pub use lock_macros::{distributed_lock, lock_key};
#[cfg(feature = "quorum")]
#[doc(inline)]
pub use lock_quorum::{Quorum, Restarts};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use lock_redis::{Credentials, RedisStore, RedisStoreBuilder};
#[doc(inline)]
pub use lock_store::{
    AnyBackend, Clock, Deadlock, DeadlockMember, Durability, FencingToken, GrantPath, Holder, HolderInfo, IntoLockKey,
    KeyBuilder, LockBackend, LockError, LockErrorKind, LockEvent, LockEventKind, LockKey, LockLabel, LockObserver,
    LockOptions, LockOrder, LossReason, MAX_KEY_BYTES, MAX_PERMITS, MAX_TTL, MIN_RENEWED_TTL, MemberHealth,
    MemberState, Mode, NodeReport, Notice, OrderInversion, OwnerId, Purpose, QuorumHealth, Renew, Result, StaleToken,
    SyncReport, Timestamp, Wait, observe_all,
};
pub use memory::MemoryStore;

/// The pages of the folder `docs`, as they were when this version was published.
#[cfg(all(doc, not(doctest), feature = "macros"))]
pub mod guide {
    macro_rules! pages {
        ($($name:ident $file:tt)*) => { $(#[doc = lock_macros::page!($file)] pub mod $name {})* };
    }
    pages! {
        tutorial "tutorial.md" concepts "concepts.md" which_lock "which-lock.md" cookbook "cookbook.md"
        choosing_a_ttl "choosing-a-ttl.md" leases "leases.md" fencing "fencing.md" keys "keys.md" testing "testing.md"
        migrations "migrations.md" operations "operations.md" troubleshooting "troubleshooting.md"
        limits "limits.md" faq "faq.md" glossary "glossary.md"
    }
}
