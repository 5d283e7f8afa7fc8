//! The receiver of the series. Each output implements it in its own form.

use crate::catalog::Metric;
use crate::state::histogram::Bucket;
use crate::words::trace::Exemplar;

/// Takes the value of every series, metric by metric. It leaves out the histograms that were not chosen.
pub(crate) trait Sink {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64);
    /// A total of seconds, which is not a whole number.
    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64);
    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64);
    /// A histogram, with an exemplar for some of its buckets.
    fn traced(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: &[Bucket],
        exemplar: &dyn Fn(usize) -> Option<Exemplar>,
    );

    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]) {
        self.traced(metric, labels, buckets, &|_| None);
    }
}
