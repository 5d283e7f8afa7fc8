//! Metrics and traces of locks over OTLP, with the SDK of OpenTelemetry and no Prometheus.
//!
//! ```sh
//! OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 LOCK_URL=redis://localhost:6379 \
//!     cargo run --manifest-path lab/Cargo.toml -p opentelemetry-example
//! ```
//!
//! Two requests want to charge one order. One of them gets the lock, the other one waits in vain. The collector gets
//! the metrics of the catalogue, and a span for each acquire and each hold inside the span of its request.

use std::env;
use std::error::Error;
use std::time::Duration;

use lock_core::{LockError, LockManager, distributed_lock};
use lock_metrics::{MetricUnit, catalog};
use metrics_exporter_opentelemetry::Recorder;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{Aggregation, Instrument, PeriodicReader, Stream};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

/// The histograms that this service wants. Each has many series.
const HISTOGRAMS: [&str; 2] = ["distributed_lock_wait_seconds", "distributed_lock_hold_seconds"];

#[distributed_lock(key = "order:<order>", wait = "300ms")]
async fn charge(order: u64) -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let resource = Resource::builder().with_service_name("shop").build();

    // Metrics: the SDK collects what the recorder was told, and sends it every ten seconds.
    let exporter = MetricExporter::builder().with_http().build()?;
    let reader = PeriodicReader::builder(exporter).with_interval(Duration::from_secs(10)).build();
    let of_shop = resource.clone();
    let recorder = Recorder::builder("shop")
        .with_meter_provider(move |meters| meters.with_resource(of_shop).with_reader(reader).with_view(view));
    let (meters, _) = recorder.install()?;
    let metrics = lock_metrics::builder().with_existing_recorder().with_histograms(HISTOGRAMS).install()?;

    // Traces: the spans of the library have the target `lock_core` and the level DEBUG.
    let spans = SpanExporter::builder().with_http().build()?;
    let tracers = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(spans).build();
    let wanted = Targets::new().with_default(LevelFilter::INFO).with_target("lock_core", LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("shop")).with_filter(wanted);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;

    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(serve())?;

    // The providers send the rest now. Without this, a short program sends nothing.
    drop(metrics);
    tracers.shutdown()?;
    meters.shutdown()?;
    Ok(())
}

/// Handles two requests for one order at once.
async fn serve() -> Result<(), LockError> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory://".to_owned());
    let locks = LockManager::connect(&url).await?;
    let request = |order| locks.scope(charge(order)).instrument(tracing::info_span!("POST /charge"));
    let (one, other) = tokio::join!(request(7), request(7));
    for outcome in [one, other] {
        match outcome {
            Ok(()) => println!("charged"),
            Err(error) => println!("{error}"),
        }
    }
    // Gauges are sampled once a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Gives the SDK the buckets, the units and the descriptions of the catalogue.
fn view(instrument: &Instrument) -> Option<Stream> {
    let metric = catalog().find(|metric| metric.name() == instrument.name())?;
    let mut stream = Stream::builder()
        .with_description(metric.help())
        .with_unit(if metric.unit() == MetricUnit::Seconds { "s" } else { "" })
        // 200 names of locks, each with several call sites.
        .with_cardinality_limit(20_000);
    if !metric.buckets().is_empty() {
        let boundaries = metric.buckets().to_vec();
        stream = stream.with_aggregation(Aggregation::ExplicitBucketHistogram { boundaries, record_min_max: false });
    }
    stream.build().ok()
}
