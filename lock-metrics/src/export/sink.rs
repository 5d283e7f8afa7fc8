//! The receiver of the series. Each output implements it in its own form.

use crate::catalog::Metric;
use crate::state::histogram::Bucket;
use crate::words::settings::Settings;
use crate::words::trace::Exemplar;

/// Takes the value of every series, metric by metric.
pub(crate) trait Sink {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64);
    /// A total of seconds, which is not a whole number.
    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64);
    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64);
    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]);
    /// A histogram, with an exemplar for some of its buckets.
    fn traced(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: &[Bucket],
        exemplar: &dyn Fn(usize) -> Option<Exemplar>,
    ) {
        let _ = exemplar;
        self.histogram(metric, labels, buckets);
    }
}

/// Leaves out the histograms that were not chosen.
pub(crate) struct Chosen<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) settings: &'a Settings,
}

impl<S: Sink> Sink for Chosen<'_, S> {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64) {
        self.sink.counter(metric, labels, total);
    }

    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64) {
        self.sink.seconds(metric, labels, total);
    }

    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.sink.gauge(metric, labels, value);
    }

    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]) {
        if self.settings.exports(metric.name()) {
            self.sink.histogram(metric, labels, buckets);
        }
    }

    fn traced(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: &[Bucket],
        exemplar: &dyn Fn(usize) -> Option<Exemplar>,
    ) {
        if self.settings.exports(metric.name()) {
            self.sink.traced(metric, labels, buckets, exemplar);
        }
    }
}
