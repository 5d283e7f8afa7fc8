//! Prometheus metrics of distributed locks: wait, hold, contention, and locks that are stuck now.
//!
//! ```
//! let metrics = lock_metrics::install()?;
//! // Serve this from the application's own router, or use `Builder::with_listener`.
//! println!("{}", metrics.render());
//! # Ok::<(), lock_metrics::InstallError>(())
//! ```
//!
//! Every metric is in [`catalog`]. The label `lock` is a key template or a declared name, never a
//! rendered key; at most 200 names of each store are kept apart, the rest are counted as `other`, and
//! `distributed_lock_label_overflow_total` says so. The label `store` is beside it everywhere: one name in
//! two servers, or in two namespaces of one, is two locks (see
//! [`LockManagerBuilder::store_name`](lock_core::LockManagerBuilder::store_name)). A lock name has
//! about 130 series. For every annotated function they all exist from [`install`] on, at 0.
//!
//! # Where to look when a lock is stuck
//!
//! - `/locks` and `/locks.json` of [`Builder::with_listener`], or [`MetricsHandle::locks_html`] and
//!   [`MetricsHandle::locks_json`] in the application's own router: every hold and wait of this
//!   process with its key, its call site, its lease and who waits for whom, the worst first; below them
//!   who leads, which jobs ran, and who blocked whom on which key in the last contended waits. Where the
//!   inspector of this process is elected, also how many processes of the fleet are in the queue of a key.
//! - `lockctl` (`cargo install lockctl`): every lock of the fleet, read from
//!   Redis; `lockctl why KEY`, which answers everything about one lock; and a way to release one whose
//!   holder is gone.
//! - `lockctl contention`: the last contended waits of many processes together.
//! - [`Inspector`]: the same as metrics, for alerts on locks that no live process holds.
//!
//! Metrics never contain a key. The live view shows the first four digits of an owner. All 32 prove
//! ownership, so only `lockctl show` and `lockctl list --owners` print them, for `lockctl release`.
//! That reveals nothing new: a person who can run these commands can read Redis. Lists cut them
//! because lists get pasted.
//!
//! # What counts as stuck, and who waits
//!
//! A hold is stuck when it is older than its `stuck_after`. A leader, and a run of a job, is not: it has a
//! role, and a threshold only if it says so ([`Election::with_stuck_after`](lock_core::Election::with_stuck_after),
//! [`Job::with_stuck_after`](lock_core::Job::with_stuck_after)). Who stands for a role is a candidate, no waiter.
//! Waits are joined with holds by key: `stuck_waiters` are callers of exactly the keys that are stuck, and only those
//! that have waited for longer than is usual for the lock.
//!
//! # How it works, and why
//!
//! An event costs a look-up in a table that takes no lock, and one short visit to a shard that holds
//! both the row of the acquire and the counts. Nothing of the `metrics` crate is on that path: its
//! macros cost ten times as much, its cached handles twice as much, its histograms keep every
//! sample until they are read, and a handle taken before a recorder is installed never counts.
//! `cargo run --release -p lock-metrics --example cost` measures it.
//!
//! At scrape the shards are added up and written after the application's own metrics, which come from
//! `metrics-exporter-prometheus`. Gauges of the current state are counted from the rows, so they cannot
//! drift. They contain start times, and the time of the same clock is exported beside them: ages are
//! differences, which are right whatever the clocks of other machines show and however long ago the
//! scrape was.
//!
//! A thread looks for stuck locks and reports each with a `tracing` event, and with another one when
//! it ends. A failure in this crate never reaches a lock: events are counted or left out.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod catalog;
mod export;
#[cfg(feature = "inspector")]
mod inspector;
mod install;
#[cfg(feature = "listener")]
mod listener;
mod observe;
mod shared;
mod state;
mod view;
mod words;

pub use catalog::{Metric, MetricKind, MetricUnit, catalog};
#[cfg(feature = "inspector")]
pub use inspector::{Inspector, InspectorHandle};
pub use install::error::InstallError;
pub use install::handle::MetricsHandle;
pub use install::{Builder, builder, install, installed};
pub use observe::observer::LockMetrics;
pub use view::LIVE_VIEW_CSP;
pub use view::live::{LiveLock, LiveState};
