//! Installs the metrics in an order in which a failure leaves nothing behind.

pub(crate) mod error;
pub(crate) mod handle;

#[cfg(feature = "listener")]
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{observe_all, sites};

use crate::catalog::catalog;
use crate::export::Text;
use crate::install::error::InstallError;
use crate::install::handle::MetricsHandle;
#[cfg(feature = "listener")]
use crate::listener;
#[cfg(feature = "listener")]
use crate::listener::access::Allowed;
use crate::shared::Shared;
use crate::state::Core;
use crate::words::settings::Settings;

/// The one handle of this process.
static INSTALLED: Mutex<Option<MetricsHandle>> = Mutex::new(None);

const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Installs the metrics of every lock of this process, with the defaults of [`builder`].
///
/// Managers may be connected before or after this call, on any runtime. Background work has its own threads.
///
/// # Errors
///
/// See [`Builder::install`].
///
/// # Examples
///
/// ```
/// let metrics = lock_metrics::install()?;
/// assert!(metrics.render().contains("distributed_lock_build_info"));
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
pub fn install() -> Result<MetricsHandle, InstallError> {
    builder().install()
}

/// Starts a [`Builder`]: own recorder, no listener, a sample every second.
pub fn builder() -> Builder {
    Builder {
        #[cfg(feature = "listener")]
        listener: None,
        #[cfg(feature = "listener")]
        allowed: Allowed::default(),
        existing_recorder: false,
        sample_interval: Duration::from_secs(1),
        settings: Settings::default(),
    }
}

/// Returns the handle of [`install`], if it has succeeded.
#[must_use]
pub fn installed() -> Option<MetricsHandle> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Configures how the metrics leave the process.
///
/// There is deliberately no idle timeout. A counter that vanishes and comes back hides its earlier counts, and an alert
/// on it never fires.
///
/// ```
/// use std::time::Duration;
///
/// let metrics = lock_metrics::builder().with_sample_interval(Duration::from_secs(5)).build()?;
/// # drop(metrics);
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is counted before `install`"]
pub struct Builder {
    #[cfg(feature = "listener")]
    listener: Option<SocketAddr>,
    #[cfg(feature = "listener")]
    allowed: Allowed,
    existing_recorder: bool,
    sample_interval: Duration,
    settings: Settings,
}

impl Builder {
    /// Serves `/metrics`, `/locks` and `/locks.json` at this address, from its own thread.
    ///
    /// Keys are confidential. The live view answers only callers on the same machine, at any of its addresses. It
    /// answers only requests for `localhost` or for an address. A web page therefore cannot read it through a user's
    /// browser. [`with_live_view_for`](Self::with_live_view_for) admits a network. On loopback, the same rule applies
    /// to the metrics.
    ///
    /// A proxy on the same machine sends requests for other machines. A request that shows a proxy (`Forwarded`, `Via`,
    /// `X-Forwarded-…`, `X-Real-IP`, HTTP/1.0) gets no live view, unless that machine is allowed by its address. A
    /// proxy that adds none of these looks like a caller of this machine: do not let such a proxy lead to `/locks`.
    ///
    /// The listener has no authentication. Bind it to loopback (`([127, 0, 0, 1], 9090)`) unless the network is yours.
    /// With port 0 the system chooses a port, and [`MetricsHandle::listener`] returns it. An application with its own
    /// HTTP server serves [`MetricsHandle::render`] there instead.
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().with_listener(([127, 0, 0, 1], 0)).build()?;
    /// assert!(metrics.listener().is_some_and(|address| address.ip().is_loopback()));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[cfg(feature = "listener")]
    pub fn with_listener(mut self, address: impl Into<SocketAddr>) -> Self {
        self.listener = Some(address.into());
        self
    }

    /// Lets other machines see the live view through the listener, with every key, without authentication. Use it only
    /// on a network that is entirely yours, for example the network of a demo's containers.
    ///
    /// A request whose `Host` is a name is still refused: clients must use the address.
    #[cfg(feature = "listener")]
    pub fn with_live_view_for_all(mut self) -> Self {
        self.allowed.all = true;
        self
    }

    /// Lets the machines of a network see the live view through the listener, with every key. A machine belongs to the
    /// network if its address has the same leading bits. May be repeated.
    ///
    /// Requests must use the address, or a name set by [`with_live_view_name`](Self::with_live_view_name).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// // For the network of the operators, by the name under which it reaches this host.
    /// let metrics = lock_metrics::builder()
    ///     .with_listener(([0, 0, 0, 0], 9464))
    ///     .with_live_view_for([10, 20, 0, 0], 16)
    ///     .with_live_view_name("shop-7f.internal")
    ///     .install()?;
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    #[cfg(feature = "listener")]
    pub fn with_live_view_for(mut self, network: impl Into<IpAddr>, first_bits: u8) -> Self {
        self.allowed.networks.push((network.into(), first_bits));
        self
    }

    /// Allows requests for the live view under this host name. May be repeated.
    ///
    /// Give only names that you alone control: the owner of a name can read the live view through a user's browser.
    #[cfg(feature = "listener")]
    pub fn with_live_view_name(mut self, name: impl Into<String>) -> Self {
        self.allowed.names.push(name.into().trim_end_matches('.').to_ascii_lowercase());
        self
    }

    /// Feeds the recorder that the application installs, before or after this call, instead of this crate's recorder.
    ///
    /// A Prometheus recorder must get this crate's buckets, or it turns the histograms into summaries: see the example
    /// of [`catalog`](crate::catalog()). Counts from before the recorder was installed are passed to it then. A
    /// recorder that takes single samples needs about 70 ns for each, once per sample interval, on this crate's thread.
    /// Within a bucket it sees their mean.
    ///
    /// The recorder's `idle_timeout` must be off: a histogram without new samples would vanish and start again. A
    /// recorder does not reveal how it was built, so this is not checked here.
    ///
    /// A series that ended stays in the recorder as NaN, for example the series of an inspector that is not elected any
    /// more. [`MetricsHandle::render`] and a listener still serve the exact series of this crate.
    ///
    /// # Examples
    ///
    /// Feeds OpenTelemetry, through a recorder that takes a meter provider. The view gives the SDK information that it
    /// cannot know: the buckets, and one description for all series of a metric.
    ///
    /// ```
    /// use lock_metrics::{MetricUnit, catalog};
    /// use metrics_exporter_opentelemetry::Recorder;
    /// use opentelemetry_sdk::metrics::{Aggregation, Instrument, Stream};
    ///
    /// fn view(instrument: &Instrument) -> Option<Stream> {
    ///     let metric = catalog().find(|metric| metric.name() == instrument.name())?;
    ///     let mut stream = Stream::builder()
    ///         .with_description(metric.help())
    ///         .with_unit(if metric.unit() == MetricUnit::Seconds { "s" } else { "" })
    ///         .with_cardinality_limit(20_000);
    ///     if !metric.buckets().is_empty() {
    ///         let boundaries = metric.buckets().to_vec();
    ///         stream = stream.with_aggregation(Aggregation::ExplicitBucketHistogram { boundaries, record_min_max: false });
    ///     }
    ///     stream.build().ok()
    /// }
    ///
    /// // Give the meter provider the reader that exports, too.
    /// let recorder = Recorder::builder("shop").with_meter_provider(|meters| meters.with_view(view));
    /// let (_meters, _recorder) = recorder.install()?;
    /// let metrics = lock_metrics::builder().with_existing_recorder().install()?;
    /// # drop(metrics);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_existing_recorder(mut self) -> Self {
        self.existing_recorder = true;
        self
    }

    /// Sets how often the sampler checks for stuck locks and feeds an existing recorder. Default 1 s, at least 10 ms.
    pub fn with_sample_interval(mut self, interval: Duration) -> Self {
        self.sample_interval = interval.max(MIN_SAMPLE_INTERVAL);
        self
    }

    /// Asks the application for the trace in which a lock is acquired, so that a slow wait and a stuck lock lead to the
    /// trace.
    ///
    /// The function is called when an acquire begins, in the task that acquires. It returns the sixteen bytes of the
    /// id. Return `None` outside of a trace, or if the trace is not kept. The bucket of each wait keeps the last id as
    /// an exemplar (see [`render_for`](MetricsHandle::render_for)), for `--enable-feature=exemplar-storage` of
    /// Prometheus. The live view, `lockctl why` and the event of a stuck lock name it.
    ///
    /// # Examples
    ///
    /// The trace of the current `tracing` span, from OpenTelemetry:
    ///
    /// ```
    /// use opentelemetry::trace::TraceContextExt;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt;
    ///
    /// let metrics = lock_metrics::builder()
    ///     .with_trace_ids(|| {
    ///         let context = tracing::Span::current().context();
    ///         let span = context.span();
    ///         span.span_context().is_sampled().then(|| span.span_context().trace_id().to_bytes())
    ///     })
    ///     .with_trace_link("https://tempo.example/trace/{trace_id}")
    ///     .build()?;
    /// # drop(metrics);
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    pub fn with_trace_ids(mut self, current: impl Fn() -> Option<[u8; 16]> + Send + Sync + 'static) -> Self {
        self.settings.traces.current = Some(Arc::new(current));
        self
    }

    /// Sets the address of the trace viewer. It contains `{trace_id}`, which is replaced by 32 digits. The live view
    /// and `lockctl why` link to it.
    pub fn with_trace_link(mut self, address: impl Into<String>) -> Self {
        self.settings.traces.link = Some(address.into());
        self
    }

    /// Exports only these histograms of the [`catalog`](crate::catalog()), by their names. Histograms are two thirds of
    /// all series. Default: all of them. Counters and gauges are always exported.
    ///
    /// A panel that reads a missing histogram stays empty, and some alerts do not cover the process any more:
    /// `dashboards/alerts.md` lists them. Alerts on stuck, lost or orphaned locks read no histogram.
    ///
    /// # Examples
    ///
    /// ```
    /// let metrics = lock_metrics::builder().with_histograms(["distributed_lock_wait_seconds"]).build()?;
    /// assert!(!metrics.render().contains("distributed_lock_hold_seconds"));
    /// # Ok::<(), lock_metrics::InstallError>(())
    /// ```
    pub fn with_histograms<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.settings.histograms = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Installs the recorder and observes every lock manager of this process, permanently.
    ///
    /// The recorder also takes the metrics that the application records with the `metrics` macros, and shows its
    /// histograms in classic buckets.
    ///
    /// # Errors
    ///
    /// The [`InstallError`] gives the reason. Examples are metrics that were installed before (use [`installed`]),
    /// another recorder, an address in use, a missing thread, or an invalid setting. The failed call leaves no traces
    /// in the process.
    pub fn install(self) -> Result<MetricsHandle, InstallError> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.is_some() {
            return Err(InstallError::AlreadyInstalled);
        }
        let own_recorder = !self.existing_recorder;
        let handle = self.start(|shared| {
            if own_recorder {
                let recorder = Arc::clone(&shared.text.recorder);
                metrics::set_global_recorder(recorder).map_err(|_| InstallError::RecorderPresent)?;
            }
            Ok(())
        })?;
        // An observer cannot be removed, so it is registered last.
        observe_all(handle.observer());
        *installed = Some(handle.clone());
        Ok(handle)
    }

    /// Builds metrics without changing the process: no recorder is installed, and no manager is observed.
    ///
    /// Use it in tests, and to keep the metrics of two managers of a process apart. Give [`MetricsHandle::observer`] to
    /// the manager.
    ///
    /// # Errors
    ///
    /// [`InstallError::Listener`], [`InstallError::Thread`], [`InstallError::TraceLink`] and
    /// [`InstallError::NoHistogram`].
    pub fn build(self) -> Result<MetricsHandle, InstallError> {
        self.start(|_| Ok(()))
    }

    /// Prepares everything that can fail, then commits, then lets the listener answer.
    fn start(self, commit: impl FnOnce(&Shared) -> Result<(), InstallError>) -> Result<MetricsHandle, InstallError> {
        if !self.settings.traces.link_is_valid() {
            return Err(InstallError::TraceLink(self.settings.traces.link.unwrap_or_default()));
        }
        if let Some(name) = self.settings.histograms.iter().flatten().find(|name| !is_histogram(name)) {
            return Err(InstallError::NoHistogram(name.clone()));
        }
        let bridge = self.existing_recorder.then(Mutex::default);
        let shared = Arc::new(Shared { core: Arc::new(Core::new(sites(), self.settings)), text: Text::new(), bridge });
        #[cfg(feature = "listener")]
        let listener = self.listener.map(|address| listen(address, &shared, self.allowed)).transpose()?;
        let sampler = shared.start_sampler(self.sample_interval).map_err(InstallError::Thread)?;
        commit(&shared)?;
        shared.tick();
        Ok(MetricsHandle::new(
            shared,
            sampler,
            #[cfg(feature = "listener")]
            listener.map(|listener| (listener.address, listener.start())),
        ))
    }
}

fn is_histogram(name: &str) -> bool {
    catalog().any(|metric| metric.name() == name && !metric.buckets().is_empty())
}

#[cfg(feature = "listener")]
fn listen(address: SocketAddr, shared: &Arc<Shared>, allowed: Allowed) -> Result<listener::Prepared, InstallError> {
    let socket = std::net::TcpListener::bind(address).map_err(|source| InstallError::Listener { address, source })?;
    listener::Prepared::new(socket, Arc::clone(shared), allowed).map_err(InstallError::Thread)
}
