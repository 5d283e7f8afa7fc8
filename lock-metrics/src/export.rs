//! The two ways out: Prometheus text, and somebody else's recorder.
//!
//! Handles are asked for at every export and thrown away. That costs a few microseconds per lock
//! name and scrape, and makes the worst traps of long-lived handles impossible: one taken before a
//! recorder exists, or kept across its `idle_timeout`, is dead for ever.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::catalog::{Metric, MetricKind, MetricUnit, catalog};
use crate::collect::Sink;
use crate::histogram::Bucket;
use crate::state::Core;

/// The buckets of the application's own histograms, which would be summaries without.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Renders everything as Prometheus text.
///
/// Counters and gauges go through the recorder of `metrics-exporter-prometheus`. Our histograms do
/// not: it takes single samples only and keeps each of them (16 bytes, 70 ns) until it is asked,
/// while we have added them up already. They are written behind its text.
pub(crate) struct Text {
    pub(crate) recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// One scrape at a time, so that each shows the sums of one moment.
    scrape: Mutex<()>,
}

impl Text {
    pub(crate) fn new() -> Self {
        // Only an empty list of buckets is refused.
        let builder = PrometheusBuilder::new();
        let recorder = builder.set_buckets(&DEFAULT_BUCKETS).unwrap_or_default().build_recorder();
        describe(&recorder);
        let handle = recorder.handle();
        Self { recorder: Arc::new(recorder), handle, scrape: Mutex::default() }
    }

    /// Takes in the samples of the application's own histograms.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub(crate) fn render(&self, core: &Core) -> String {
        let _one_at_a_time = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sink = TextSink { recorder: &self.recorder, histograms: String::new(), last: "" };
        core.collect(&mut sink);
        let mut text = self.handle.render();
        text.push_str(&sink.histograms);
        text
    }
}

struct TextSink<'a> {
    recorder: &'a PrometheusRecorder,
    histograms: String,
    /// The histogram whose head was written last.
    last: &'static str,
}

impl Sink for TextSink<'_> {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64) {
        counter(self.recorder, &key(metric, labels, escape_for_exporter)).absolute(total);
    }

    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        gauge(self.recorder, &key(metric, labels, escape_for_exporter)).set(value);
    }

    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]) {
        let (name, out) = (metric.name(), &mut self.histograms);
        if self.last != name {
            self.last = name;
            let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} histogram", metric.help());
        }
        let mut pairs = String::new();
        for (label, value) in metric.labels().iter().zip(labels) {
            let _ = write!(pairs, "{label}=\"{}\",", escape(value));
        }
        let (mut count, mut sum) = (0, 0.0);
        let bounds = metric.buckets().iter().copied().chain([f64::INFINITY]);
        for (bound, bucket) in bounds.zip(buckets) {
            count += bucket.count;
            sum += bucket.sum;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(out, "{name}_bucket{{{pairs}le=\"{bound}\"}} {count}");
        }
        let pairs = pairs.trim_end_matches(',');
        let pairs = if pairs.is_empty() { String::new() } else { format!("{{{pairs}}}") };
        let _ = writeln!(out, "{name}_sum{pairs} {sum}\n{name}_count{pairs} {count}");
    }
}

/// Tells everything to the recorder that the application has installed, whenever it did.
#[derive(Debug, Default)]
pub(crate) struct Bridge {
    /// Which recorder was told last, by address.
    recorder: usize,
    /// What it was told of each histogram, because it takes only what is new.
    told: HashMap<(&'static str, Vec<String>), Vec<Bucket>>,
}

impl Bridge {
    pub(crate) fn push(&mut self, core: &Core) {
        metrics::with_recorder(|recorder| {
            let address = std::ptr::from_ref(recorder).cast::<()>().addr();
            if self.recorder != address {
                // A recorder was installed since: it must be told all there was before it.
                self.recorder = address;
                self.told.clear();
                describe(recorder);
            }
            core.collect(&mut BridgeSink { recorder, told: &mut self.told });
        });
    }
}

struct BridgeSink<'a> {
    recorder: &'a dyn Recorder,
    told: &'a mut HashMap<(&'static str, Vec<String>), Vec<Bucket>>,
}

impl Sink for BridgeSink<'_> {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64) {
        counter(self.recorder, &key(metric, labels, str::to_owned)).absolute(total);
    }

    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        gauge(self.recorder, &key(metric, labels, str::to_owned)).set(value);
    }

    fn histogram(&mut self, metric: &'static Metric, labels: &[&str], buckets: &[Bucket]) {
        let series = (metric.name(), labels.iter().map(|value| (*value).to_owned()).collect());
        let told = self.told.entry(series).or_insert_with(|| vec![Bucket::default(); buckets.len()]);
        let histogram = histogram(self.recorder, &key(metric, labels, str::to_owned));
        for (now, before) in buckets.iter().zip(told.iter_mut()) {
            let new = now.count - before.count;
            if new > 0 {
                // Fewer than 2^52 samples and a sum of their seconds are exact enough for a mean.
                #[expect(clippy::cast_precision_loss, reason = "see above")]
                let mean = (now.sum - before.sum) / new as f64;
                histogram.record_many(mean, usize::try_from(new).unwrap_or(usize::MAX));
                *before = *now;
            }
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new("lock_metrics", Level::INFO, Some("lock_metrics"));

fn counter(recorder: &dyn Recorder, key: &Key) -> Counter {
    recorder.register_counter(key, &METADATA)
}

fn gauge(recorder: &dyn Recorder, key: &Key) -> Gauge {
    recorder.register_gauge(key, &METADATA)
}

fn histogram(recorder: &dyn Recorder, key: &Key) -> Histogram {
    recorder.register_histogram(key, &METADATA)
}

fn key(metric: &Metric, values: &[&str], value: impl Fn(&str) -> String) -> Key {
    let labels: Vec<Label> =
        metric.labels().iter().zip(values).map(|(label, text)| Label::new(*label, value(text))).collect();
    Key::from_parts(metric.name(), labels)
}

fn describe(recorder: &dyn Recorder) {
    for metric in catalog() {
        let unit = match metric.unit() {
            MetricUnit::Count => Unit::Count,
            MetricUnit::Seconds => Unit::Seconds,
            MetricUnit::Ratio => Unit::Percent,
        };
        let (name, unit, help) = (metric.name().into(), Some(unit), metric.help().into());
        match metric.kind() {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram(_) => recorder.describe_histogram(name, unit, help),
        }
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The exporter takes a backslash for the first half of an escape, so that two names could become
/// one series. Given two, it writes two.
fn escape_for_exporter(value: &str) -> String {
    value.replace('\\', "\\\\")
}
