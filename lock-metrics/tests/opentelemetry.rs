//! Tests the way to OpenTelemetry: its exporter as the application's recorder, read back from the SDK's
//! memory.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::LockEventKind;
use lock_core::testing::limit;
use lock_metrics::{MetricUnit, builder, catalog};
use metrics_exporter_opentelemetry::Recorder;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::{Aggregation, InMemoryMetricExporter, Instrument, PeriodicReader, Stream};

use crate::support::{Acquire, eventually, holder};

/// Gives the SDK what it cannot know: the buckets, and one description for all handles of a metric.
fn view(instrument: &Instrument) -> Option<Stream> {
    let metric = catalog().find(|metric| metric.name() == instrument.name())?;
    let mut stream = Stream::builder()
        .with_description(metric.help())
        .with_unit(if metric.unit() == MetricUnit::Seconds { "s" } else { "" })
        // 200 lock names, each with several call sites.
        .with_cardinality_limit(20_000);
    if !metric.buckets().is_empty() {
        let boundaries = metric.buckets().to_vec();
        stream = stream.with_aggregation(Aggregation::ExplicitBucketHistogram { boundaries, record_min_max: false });
    }
    stream.build().ok()
}

/// The content of the last export for a metric: the labels and the value of each series, and the buckets of
/// histograms.
#[derive(Debug, Default)]
struct Seen {
    unit: String,
    times: usize,
    values: BTreeMap<String, f64>,
    buckets: BTreeMap<String, (Vec<f64>, Vec<u64>)>,
}

fn read(export: &ResourceMetrics) -> BTreeMap<String, Seen> {
    let mut all: BTreeMap<String, Seen> = BTreeMap::new();
    for metric in export.scope_metrics().flat_map(ScopeMetrics::metrics) {
        let seen = all.entry(metric.name().to_owned()).or_default();
        seen.times += 1;
        metric.unit().clone_into(&mut seen.unit);
        let name = |pairs: Vec<(String, String)>| {
            let mut pairs = pairs;
            pairs.sort();
            pairs.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(",")
        };
        macro_rules! labels {
            ($point:expr) => {
                name($point.attributes().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect())
            };
        }
        match metric.data() {
            AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                seen.values.extend(gauge.data_points().map(|point| (labels!(point), point.value())));
            }
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                #[expect(clippy::cast_precision_loss, reason = "small counts")]
                seen.values.extend(sum.data_points().map(|point| (labels!(point), point.value() as f64)));
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                for point in histogram.data_points() {
                    let buckets = (point.bounds().collect(), point.bucket_counts().collect());
                    seen.buckets.insert(labels!(point), buckets);
                    seen.values.insert(labels!(point), point.sum());
                }
            }
            other => panic!("{} is {other:?}", metric.name()),
        }
    }
    all
}

#[test]
#[limit]
fn counters_gauges_and_histograms_arrive_once_with_their_buckets() {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).with_interval(Duration::from_secs(3600)).build();
    let recorder = Recorder::builder("shop").with_meter_provider(|meters| meters.with_reader(reader).with_view(view));
    let (provider, _) = recorder.install().unwrap();
    let interval = Duration::from_millis(10);
    let left_out = "distributed_lock_lease_remaining_ratio";
    let histograms = catalog().filter(|metric| !metric.buckets().is_empty() && metric.name() != left_out);
    let metrics = builder().with_existing_recorder().with_histograms(histograms.map(lock_metrics::Metric::name));
    let metrics = metrics.with_sample_interval(interval).install().unwrap();
    let observer = metrics.observer();
    let hold = Acquire::new(&observer, 1, "lock:user:<id>", "lock:user:1");
    hold.take();
    let (lease_was_left, lease_left) = (Duration::from_secs(6), Duration::from_secs(10));
    hold.renew(lease_was_left, lease_left);
    let other = Acquire::new(&observer, 2, "lock:user:<id>", "lock:user:2");
    other.take();
    other.release(Duration::from_millis(40));
    let wait = Acquire::new(&observer, 3, "lock:user:<id>", "lock:user:1");
    wait.send(LockEventKind::WaitStarted);
    wait.send(LockEventKind::Contended { holder: Some(&holder("shop::charge")) });
    let look = || {
        exporter.reset();
        provider.force_flush().unwrap();
        exporter.get_finished_metrics().unwrap().last().map(read).unwrap_or_default()
    };
    let runs = |seen: &BTreeMap<String, Seen>| seen["distributed_lock_sampler_last_run_timestamp_seconds"].values[""];
    // Fed again and again while it runs: nothing may be added twice.
    let first = eventually("the first export", || {
        Some(look()).filter(|seen| seen.get("distributed_lock_held").is_some_and(|held| !held.values.is_empty()))
    });
    let seen = eventually("more exports", || Some(look()).filter(|seen| runs(seen) > runs(&first) + 0.2));
    let value = |name: &str, labels: &str| {
        let metric = &seen[&format!("distributed_lock_{name}")];
        *metric.values.get(labels).unwrap_or_else(|| panic!("no {labels} in {metric:?}"))
    };
    assert_eq!(value("acquisitions_total", "lock:user:<id>,write,acquired,memory"), 2.0);
    assert_eq!(value("releases_total", "lock:user:<id>,released,memory"), 1.0);
    assert_eq!(value("held", "lock:user:<id>,write,memory"), 1.0);
    assert_eq!(value("waiting_on", "shop::charge,lock:user:<id>,memory"), 1.0);
    let holds = &seen["distributed_lock_hold_seconds"];
    let (bounds, counts) = &holds.buckets["lock:user:<id>,write,memory"];
    let hold_metric = catalog().find(|metric| metric.name() == "distributed_lock_hold_seconds").unwrap();
    assert_eq!(bounds, hold_metric.buckets());
    assert_eq!(counts.iter().sum::<u64>(), 1);
    assert_eq!(counts[bounds.iter().position(|bound| *bound == 0.05).unwrap()], 1);
    assert!(seen.contains_key("distributed_lock_renewal_lateness_seconds") && !seen.contains_key(left_out));
    for (name, metric) in &seen {
        assert_eq!(metric.times, 1, "{name} is exported as several instruments");
        // An exporter to Prometheus appends the unit, unless the name ends with it.
        assert!(metric.unit.is_empty() || name.contains("_seconds"), "{name}: {}", metric.unit);
    }
    // A series that has ended has no value any more: this recorder cannot end a series.
    wait.send(LockEventKind::Cancelled { waited: Duration::from_secs(1), holder: None });
    eventually("the end of the wait", || {
        (look()["distributed_lock_waiting_on"].values["shop::charge,lock:user:<id>,memory"] == 0.0).then_some(())
    });
}
