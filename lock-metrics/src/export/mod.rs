//! The two outputs: Prometheus text, and the application's own recorder.
//!
//! Handles are created for every export and dropped afterwards. That costs a few microseconds per lock name and scrape.
//! A long-lived handle would be dead for ever if it was created before the recorder, or if it outlived the recorder's
//! `idle_timeout`.

pub(crate) mod collect;
pub(crate) mod openmetrics;
pub(crate) mod sink;

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::catalog::{Metric, MetricKind, MetricUnit, catalog};
use crate::export::sink::Sink;
use crate::state::Core;
use crate::state::histogram::Bucket;
use crate::words::settings::Settings;
use crate::words::trace::Exemplar;

/// The buckets of the application's own histograms, which would otherwise be summaries.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Renders all metrics as Prometheus text.
///
/// The application's own metrics come from the recorder of `metrics-exporter-prometheus`. The series of this crate
/// bypass it for two reasons. The recorder takes single samples of histograms and keeps each of them (16 bytes, 70 ns)
/// until it is read. This crate has already added them up. And the recorder shows a gauge for ever once it is set,
/// while series of this crate end. The series of this crate are written after the recorder's text.
pub(crate) struct Text {
    pub(crate) recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// One scrape at a time, so that each shows the sums of one moment.
    scrape: Mutex<()>,
}

impl Text {
    pub(crate) fn new() -> Self {
        // An empty list of buckets is the only error here.
        let builder = PrometheusBuilder::new();
        let recorder = builder.set_buckets(&DEFAULT_BUCKETS).unwrap_or_default().build_recorder();
        let handle = recorder.handle();
        Self { recorder: Arc::new(recorder), handle, scrape: Mutex::default() }
    }

    /// Collects the samples of the application's own histograms.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub(crate) fn render(&self, core: &Core) -> String {
        self.write(core, false)
    }

    /// Renders the same with exemplars, which only OpenMetrics supports.
    pub(crate) fn render_openmetrics(&self, core: &Core) -> String {
        openmetrics::from_text(&self.write(core, true))
    }

    fn write(&self, core: &Core, exemplars: bool) -> String {
        let _one_at_a_time = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sink = TextSink { text: self.handle.render(), last: "", exemplars, settings: &core.settings };
        core.collect(&mut sink);
        sink.text
    }
}

struct TextSink<'a> {
    settings: &'a Settings,
    text: String,
    /// The metric whose header was written last.
    last: &'static str,
    exemplars: bool,
}

impl TextSink<'_> {
    /// Writes the header of a metric before its first series.
    fn head(&mut self, metric: &'static Metric) {
        let name = metric.name();
        if self.last != name {
            self.last = name;
            let kind = match metric.kind() {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram(_) => "histogram",
            };
            let _ = writeln!(self.text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help());
        }
    }

    fn line(&mut self, metric: &'static Metric, labels: &[&str], value: impl Display) {
        self.head(metric);
        let pairs = pairs(metric, labels);
        self.text.push_str(metric.name());
        if !pairs.is_empty() {
            let _ = write!(self.text, "{{{}}}", pairs.trim_end_matches(','));
        }
        let _ = writeln!(self.text, " {value}");
    }
}

impl Sink for TextSink<'_> {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64) {
        self.line(metric, labels, total);
    }

    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64) {
        self.line(metric, labels, total);
    }

    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.line(metric, labels, value);
    }

    fn traced(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: &[Bucket],
        exemplar: &dyn Fn(usize) -> Option<Exemplar>,
    ) {
        if !self.settings.exports(metric.name()) {
            return;
        }
        self.head(metric);
        let (name, pairs, out) = (metric.name(), pairs(metric, labels), &mut self.text);
        let (mut count, mut sum) = (0, 0.0);
        let bounds = metric.buckets().iter().copied().chain([f64::INFINITY]);
        for (place, (bound, bucket)) in bounds.zip(buckets).enumerate() {
            count += bucket.count;
            sum += bucket.sum;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = write!(out, "{name}_bucket{{{pairs}le=\"{bound}\"}} {count}");
            if self.exemplars
                && let Some(Exemplar { trace, value, at }) = exemplar(place)
            {
                let trace = trace.to_hex();
                let _ = write!(out, " # {{trace_id=\"{trace}\"}} {value} {}", at.to_unix_seconds());
            }
            out.push('\n');
        }
        let pairs = pairs.trim_end_matches(',');
        let pairs = if pairs.is_empty() { String::new() } else { format!("{{{pairs}}}") };
        let _ = writeln!(out, "{name}_sum{pairs} {sum}\n{name}_count{pairs} {count}");
    }
}

/// Writes labels, each followed by a comma. Prometheus drops labels without a value.
fn pairs(metric: &Metric, values: &[&str]) -> String {
    let mut pairs = String::new();
    for (label, value) in metric.labels().iter().zip(values) {
        let _ = write!(pairs, "{label}=\"{}\",", Escaped(value));
    }
    pairs
}

/// Passes all metrics to the recorder that the application has installed, at any time.
#[derive(Debug, Default)]
pub(crate) struct Bridge {
    /// The address of the recorder that was fed last.
    recorder: usize,
    /// The buckets of each histogram that the recorder got already, because it takes only new samples.
    told: HashMap<(&'static str, Vec<String>), Vec<Bucket>>,
    /// The value of each counter that the recorder got already. Some recorders do not take totals: for them, each
    /// handle is new.
    totals: HashMap<Key, u64>,
    /// The gauges that the recorder got last.
    gauges: HashSet<Key>,
}

impl Bridge {
    pub(crate) fn push(&mut self, core: &Core) {
        metrics::with_recorder(|recorder| {
            let address = std::ptr::from_ref(recorder).cast::<()>().addr();
            if self.recorder != address {
                // A new recorder was installed. It must get all earlier counts.
                self.recorder = address;
                self.told.clear();
                self.totals.clear();
                self.gauges.clear();
                describe(recorder, &core.settings);
            }
            let mut sink = BridgeSink {
                settings: &core.settings,
                recorder,
                told: &mut self.told,
                totals: &mut self.totals,
                gauges: HashSet::new(),
            };
            core.collect(&mut sink);
            let BridgeSink { gauges, .. } = sink;
            // A recorder cannot end a series. NaN never makes a comparison true, so it triggers no alert.
            for gone in self.gauges.difference(&gauges) {
                gauge(recorder, gone).set(f64::NAN);
            }
            self.gauges = gauges;
        });
    }
}

struct BridgeSink<'a> {
    settings: &'a Settings,
    recorder: &'a dyn Recorder,
    told: &'a mut HashMap<(&'static str, Vec<String>), Vec<Bucket>>,
    totals: &'a mut HashMap<Key, u64>,
    gauges: HashSet<Key>,
}

impl Sink for BridgeSink<'_> {
    fn counter(&mut self, metric: &'static Metric, labels: &[&str], total: u64) {
        let key = key(metric, labels);
        let counter = counter(self.recorder, &key);
        let told = self.totals.entry(key).or_insert(0);
        counter.increment(total.saturating_sub(*told));
        *told = (*told).max(total);
    }

    fn seconds(&mut self, metric: &'static Metric, labels: &[&str], total: f64) {
        // The counters of a recorder are whole numbers.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a total of seconds is small")]
        self.counter(metric, labels, total as u64);
    }

    fn gauge(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        let key = key(metric, labels);
        gauge(self.recorder, &key).set(value);
        self.gauges.insert(key);
    }

    fn traced(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        buckets: &[Bucket],
        _: &dyn Fn(usize) -> Option<Exemplar>,
    ) {
        if !self.settings.exports(metric.name()) {
            return;
        }
        let series = (metric.name(), labels.iter().map(|value| (*value).to_owned()).collect());
        let told = self.told.entry(series).or_insert_with(|| vec![Bucket::default(); buckets.len()]);
        let histogram = histogram(self.recorder, &key(metric, labels));
        for (now, before) in buckets.iter().zip(told.iter_mut()) {
            let new = now.count - before.count;
            if new > 0 {
                // With fewer than 2^52 samples, the sum of their seconds is exact enough for a mean.
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

fn key(metric: &Metric, values: &[&str]) -> Key {
    let given = metric.labels().iter().zip(values);
    let labels: Vec<Label> = given.map(|(label, value)| Label::new(*label, (*value).to_owned())).collect();
    Key::from_parts(metric.name(), labels)
}

fn describe(recorder: &dyn Recorder, settings: &Settings) {
    for metric in catalog().filter(|metric| metric.buckets().is_empty() || settings.exports(metric.name())) {
        // An exporter may append the unit to the name. The names of counts and ratios already contain it.
        let unit = (metric.unit() == MetricUnit::Seconds).then_some(Unit::Seconds);
        let (name, help) = (metric.name().into(), metric.help().into());
        match metric.kind() {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram(_) => recorder.describe_histogram(name, unit, help),
        }
    }
}

/// Escapes a label value for the text format.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
