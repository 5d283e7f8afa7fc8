//! Where the series go: each way out takes them as its form demands.

use crate::catalog::Metric;
use crate::histogram::Bucket;

/// Takes the value of every series, metric by metric.
pub(crate) trait Sink {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64);
    /// A total of seconds, which is not a whole number.
    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64);
    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64);
    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]);
}
