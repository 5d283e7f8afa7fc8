//! Prometheus metrics of distributed locks: wait, hold, contention, and locks that are stuck now.
//!
//! ```
//! let metrics = lock_metrics::install()?;
//! // Serve this from the application's own router, or use `Builder::with_listener`.
//! println!("{}", metrics.render());
//! # Ok::<(), lock_metrics::InstallError>(())
//! ```
//!
//! Every metric is in [`catalog`]. The label `lock` is a key template or a declared name, never a rendered key. At most
//! 200 names of each store are kept apart. The rest are counted as `other`, and `distributed_lock_label_overflow_total`
//! reports that.
//!
//! Every series with a lock name also has the label `store`. One name in two servers, or in two namespaces of one
//! server, means two locks (see [`LockManagerBuilder::store_name`](lock_core::LockManagerBuilder::store_name)). A lock
//! name has about 130 series. For every annotated function, all of them exist from [`install`] on, at 0.
//!
//! # Where to look when a lock is stuck
//!
//! - `/locks` and `/locks.json` of [`Builder::with_listener`], or [`MetricsHandle::locks_html`] and
//!   [`MetricsHandle::locks_json`] in the application's own router. They show every hold and wait of this process with
//!   its key, call site and lease, and which holder each waiter waits for. The worst come first. Below are the leaders,
//!   the runs of jobs, and the last contended waits with their keys and holders. If the inspector of this process is
//!   elected, they also show how many processes of the fleet are in the queue of a key.
//! - `lockctl` (`cargo install lockctl`) shows every lock of the fleet, read from Redis. `lockctl why KEY` explains one
//!   lock. It can also release a lock whose holder is gone.
//! - `lockctl contention` shows the last contended waits of many processes together.
//! - [`FleetInspector`] exports the same as metrics, for alerts on locks that no live process holds.
//!
//! Metrics never contain a key. The live view shows the first four digits of an owner. All 32 digits prove ownership.
//! Only `lockctl show` and `lockctl list --owners` print them, for `lockctl release`. That reveals no new secret: a
//! person who can run these commands can read Redis. Lists cut the digits because lists get pasted.
//!
//! # What counts as stuck, and who waits
//!
//! A hold is stuck when it is older than its `stuck_after`. A leader and a run of a job have a role. They are stuck
//! only if they set a threshold ([`Election::with_stuck_after`](lock_core::Election::with_stuck_after),
//! [`Job::with_stuck_after`](lock_core::Job::with_stuck_after)). A caller that stands for a role is a candidate and
//! does not count as a waiter.
//!
//! Waits are joined with holds by key. `stuck_waiters` are callers of exactly the keys that are stuck. They count only
//! if they have waited longer than is usual for the lock.
//!
//! # How it works, and why
//!
//! An event costs a look-up in a table that takes no lock, and one short visit to a shard. The shard has both the row
//! of the acquire and the counts. This path does not use the `metrics` crate: its macros cost ten times as much, and
//! its cached handles twice as much. Its histograms keep every sample until they are read, and a handle taken before a
//! recorder is installed never counts. `cargo lab lock-bench -- --row memory` measures it.
//!
//! At scrape, the shards are added up and written after the application's own metrics, which come from
//! `metrics-exporter-prometheus`. Gauges of the current state are counted from the rows, so they cannot drift. They
//! contain start times, and the time of the same clock is exported beside them. An age is the difference of the two. It
//! is right whatever the clocks of other machines show, and however long ago the scrape was.
//!
//! A thread checks for stuck locks. It reports each with a `tracing` event, and with another event when the hold ends.
//! A failure in this crate never reaches a lock: events are counted or left out.

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
pub use inspector::{FleetInspector, InspectorHandle};
pub use install::error::InstallError;
pub use install::handle::MetricsHandle;
pub use install::{Builder, builder, install, installed};
pub use observe::observer::LockMetrics;
pub use view::LIVE_VIEW_CSP;
pub use view::live::{LiveLock, LiveState};
