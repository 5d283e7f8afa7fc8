//! What an application keeps: access to the numbers, and the threads that maintain them.

use std::convert::Infallible;
use std::fmt;
#[cfg(feature = "listener")]
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use crate::export::{Bridge, Text};
#[cfg(feature = "listener")]
use crate::listener;
use crate::live::{LiveLock, LiveLocks};
use crate::observer::LockMetrics;
use crate::state::Core;
use crate::time::{Moment, follow_system_time};
use crate::view;

/// How often the samples of the application's own histograms are collected.
const UPKEEP: Duration = Duration::from_secs(5);

/// Gives access to the metrics: as text for the application's own router, and as live rows.
///
/// Clones share everything. The threads of [`Builder::build`](crate::Builder::build) end with the
/// last clone; those of [`install`](crate::install()) never do.
///
/// ```
/// let metrics = lock_metrics::builder().build()?;
/// println!("{}", metrics.render()); // at /metrics
/// println!("{}", metrics.locks_html()); // at /locks
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetricsHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// Ends the sampler when it is dropped.
    _sampler: Sender<Infallible>,
    #[cfg(feature = "listener")]
    listener: Option<(SocketAddr, listener::Running)>,
}

/// The state that the handle, the sampler and the listener share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
    pub(crate) text: Text,
    /// Feeds the application's recorder, if it was asked for.
    pub(crate) bridge: Option<Mutex<Bridge>>,
}

impl MetricsHandle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sampler: Sender<Infallible>,
        #[cfg(feature = "listener")] listener: Option<(SocketAddr, listener::Running)>,
    ) -> Self {
        Self(Arc::new(Inner {
            shared,
            _sampler: sampler,
            #[cfg(feature = "listener")]
            listener,
        }))
    }

    /// Renders every series of this crate in the Prometheus text format, as of now.
    ///
    /// Serve it as `text/plain; version=0.0.4`. When the recorder is ours, the application's own
    /// metrics come first; [`with_existing_recorder`](crate::Builder::with_existing_recorder) leaves
    /// them to the application.
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().build()?;
    /// assert!(metrics.render().contains("# TYPE distributed_lock_sampler_last_run_timestamp_seconds gauge"));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[must_use]
    pub fn render(&self) -> String {
        self.0.shared.render()
    }

    /// Renders every hold and wait of this process as a page for people, the worst first.
    ///
    /// The page reloads itself, loads nothing and runs no script. It names keys, call sites and the
    /// first digits of owners, so serve it behind the application's authentication, as
    /// `text/html; charset=utf-8` with [`LIVE_VIEW_CSP`](crate::LIVE_VIEW_CSP) as its
    /// `Content-Security-Policy`. At most 500 rows are shown.
    ///
    /// The table has the id `locks`; its rows carry `data-key`, `data-lock` and `data-state`, which
    /// is `stuck`, `held` or `waiting`.
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().build()?;
    /// assert!(metrics.locks_html().contains("<table id=\"locks\">"));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[must_use]
    pub fn locks_html(&self) -> String {
        self.0.shared.locks_html()
    }

    /// Renders the same rows as JSON, also at most 500. Serve it as `application/json`, behind the
    /// application's authentication.
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().build()?;
    /// assert!(metrics.locks_json().contains("\"locks\":[]"));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[must_use]
    pub fn locks_json(&self) -> String {
        self.0.shared.locks_json()
    }

    /// Lists every hold and wait of this process, with keys, in no particular order.
    ///
    /// A hold or wait that begins or ends while the list is read may be missing.
    pub fn live_locks(&self) -> impl Iterator<Item = LiveLock> + use<> {
        LiveLocks::new(Arc::clone(&self.0.shared.core))
    }

    /// Returns the address that [`with_listener`](crate::Builder::with_listener) bound.
    #[cfg(feature = "listener")]
    #[must_use]
    pub fn listener(&self) -> Option<SocketAddr> {
        self.0.listener.as_ref().map(|(address, _)| *address)
    }

    #[cfg(feature = "inspector")]
    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.0.shared.core)
    }

    /// Returns the observer that feeds these metrics, to be registered by hand with one manager.
    ///
    /// Needed only with [`Builder::build`](crate::Builder::build): after
    /// [`install`](crate::install()) every manager is observed already and would count twice.
    #[must_use]
    pub fn observer(&self) -> LockMetrics {
        LockMetrics(Arc::clone(&self.0.shared.core))
    }
}

impl Shared {
    pub(crate) fn render(&self) -> String {
        self.text.render(&self.core)
    }

    pub(crate) fn locks_html(&self) -> String {
        view::html(&self.core)
    }

    pub(crate) fn locks_json(&self) -> String {
        view::json(&self.core)
    }

    /// Reports stuck locks and feeds the application's recorder.
    pub(crate) fn tick(&self) {
        // The application's subscriber and recorder run here, and may panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            follow_system_time();
            self.core.sample(Moment::now());
            if let Some(bridge) = &self.bridge {
                bridge.lock().unwrap_or_else(PoisonError::into_inner).push(&self.core);
            }
        }));
    }

    /// Starts the sampler, on a thread of its own so that it does not end with a runtime. It ends
    /// when the returned value is dropped.
    pub(crate) fn start_sampler(self: &Arc<Self>, interval: Duration) -> io::Result<Sender<Infallible>> {
        let (alive, gone) = mpsc::channel();
        let shared = Arc::clone(self);
        thread::Builder::new().name("lock-metrics".to_owned()).spawn(move || shared.run(interval, &gone)).map(|_| alive)
    }

    fn run(&self, interval: Duration, gone: &Receiver<Infallible>) {
        let mut upkeep_due = Duration::ZERO;
        while let Err(RecvTimeoutError::Timeout) = gone.recv_timeout(interval) {
            self.tick();
            upkeep_due += interval;
            if upkeep_due >= UPKEEP {
                upkeep_due = Duration::ZERO;
                self.text.upkeep();
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("bridge", &self.bridge.is_some()).finish_non_exhaustive()
    }
}
