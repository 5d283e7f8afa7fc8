//! The reasons why metrics were not installed.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::{fmt, io};

use crate::catalog::{Metric, catalog};

/// The reason why metrics were not installed. The failed call leaves no traces in the process.
///
/// ```
/// use lock_metrics::InstallError;
///
/// // A library cannot know whether the application has installed them already.
/// let metrics = match lock_metrics::install() {
///     Ok(metrics) => Some(metrics),
///     Err(InstallError::AlreadyInstalled) => lock_metrics::installed(),
///     Err(error) => return Err(error),
/// };
/// assert!(metrics.is_some());
/// # Ok::<(), InstallError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum InstallError {
    /// They are already installed. [`installed`](crate::installed) returns them.
    AlreadyInstalled,
    /// The application, or another library, has already installed a recorder.
    RecorderPresent,
    /// The listener could not be bound.
    #[non_exhaustive]
    Listener {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system could not provide a thread, or the resources of its runtime.
    Thread(io::Error),
    /// The link of [`Builder::with_trace_link`](crate::Builder::with_trace_link) does not lead to a trace.
    TraceLink(String),
    /// A name of [`Builder::with_histograms`](crate::Builder::with_histograms) does not belong to a histogram.
    NoHistogram(String),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyInstalled => f.write_str("lock metrics are installed already; get them from installed()"),
            Self::RecorderPresent => f.write_str(
                "another metrics recorder is installed already; feed it with Builder::with_existing_recorder()",
            ),
            Self::Listener { address, .. } => {
                write!(
                    f,
                    "cannot listen for scrapes on {address}; choose another port, or serve MetricsHandle::render()"
                )
            }
            Self::TraceLink(link) => {
                write!(f, "the trace link {link:?} has no place for the trace; write https://… with {{trace_id}} in it")
            }
            Self::NoHistogram(name) => {
                let known = catalog().filter(|metric| !metric.buckets().is_empty()).map(Metric::name);
                let known: Vec<&str> = known.collect();
                write!(f, "there is no histogram {name:?}; there are {}", known.join(", "))
            }
            Self::Thread(_) => f.write_str("cannot start the metrics thread; raise the limit of threads or files"),
        }
    }
}

impl StdError for InstallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Listener { source, .. } | Self::Thread(source) => Some(source),
            Self::AlreadyInstalled | Self::RecorderPresent | Self::TraceLink(_) | Self::NoHistogram(_) => None,
        }
    }
}
