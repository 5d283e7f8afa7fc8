//! The handle that an application keeps, with access to the metrics.

use std::convert::Infallible;
#[cfg(feature = "listener")]
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

#[cfg(feature = "listener")]
use crate::listener;
use crate::observe::observer::LockMetrics;
use crate::shared::Shared;
#[cfg(feature = "inspector")]
use crate::state::Core;
use crate::view;
use crate::view::live::{LiveLock, LiveLocks};

/// Gives access to the metrics: as text for the application's own router, and as live rows.
///
/// Clones share all data. The threads of [`Builder::build`](crate::Builder::build) end with the last clone. The threads
/// of [`install`](crate::install()) never end.
///
/// ```
/// let metrics = lock_metrics::builder().build()?;
/// println!("{}", metrics.render()); // at /metrics
/// println!("{}", metrics.locks_html()); // at /locks
/// println!("{}", metrics.locks_json()); // at /locks.json, for `lockctl why --live-view`
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

    /// Renders every series of this crate in the Prometheus text format, with current values.
    ///
    /// Serve it as `text/plain; version=0.0.4`. With this crate's own recorder, the application's metrics come first.
    /// With [`with_existing_recorder`](crate::Builder::with_existing_recorder), the application exports them itself.
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
        self.0.shared.text.render(&self.0.shared.core)
    }

    /// Renders every series in the format that a client accepts, by the value of its `Accept` header. Returns it with
    /// the content type.
    ///
    /// The format is OpenMetrics if the client prefers it and [`with_trace_ids`](crate::Builder::with_trace_ids) is
    /// set: only that format carries exemplars. Otherwise it is the text of [`render`](Self::render).
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().with_trace_ids(|| None).build()?;
    /// let (kind, text) = metrics.render_for("application/openmetrics-text; version=1.0.0");
    /// assert!(kind.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"));
    /// let (kind, _) = metrics.render_for("*/*");
    /// assert!(kind.starts_with("text/plain"));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[must_use]
    pub fn render_for(&self, accept: &str) -> (&'static str, String) {
        self.0.shared.render_for(accept)
    }

    /// Renders every hold and wait of this process as a page for people. The worst come first.
    ///
    /// The page reloads itself, loads no other file and runs no script. It names keys, call sites and the first digits
    /// of owners, so serve it behind the application's authentication. Send it as `text/html; charset=utf-8` with
    /// [`LIVE_VIEW_CSP`](crate::LIVE_VIEW_CSP) as its `Content-Security-Policy`. At most 500 rows are shown.
    ///
    /// The table has the id `locks`. Its rows have the attributes `data-key`, `data-lock` and `data-state`. The state
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
        view::html(&self.0.shared.core)
    }

    /// Renders the same rows as JSON, also at most 500. Serve it as `application/json`, behind the application's
    /// authentication.
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
        view::json(&self.0.shared.core)
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
    /// Use it only with [`Builder::build`](crate::Builder::build). After [`install`](crate::install()), every manager
    /// is already observed and would count twice.
    #[must_use]
    pub fn observer(&self) -> LockMetrics {
        LockMetrics(Arc::clone(&self.0.shared.core))
    }
}
