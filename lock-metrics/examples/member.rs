//! One process of a healthy fleet, for `scripts/real-hour.sh`: takes short and long locks, each in a trace of its own, is scraped, and gives
//! everything back when it is told to stop. A line on its input makes it hold one lock for ever.
//!
//! ```text
//! LOCK_URL=redis://127.0.0.1:6379 cargo run -p lock-metrics --all-features --example member -- 9464 shop
//! ```

#![expect(clippy::disallowed_methods, reason = "this runtime belongs to the program")]

use std::error::Error;
use std::ops::Range;
use std::time::Duration;
use std::{env, io, thread};

use lock_core::{LockErrorKind, LockManager, LockRequest};
use lock_metrics::Inspector;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

const ORDERS: u32 = 500;
const PATIENCE: Duration = Duration::from_secs(20);
const STUCK_AFTER: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(port), Some(name)) = (args.next(), args.next()) else { return Err("give a port and a name".into()) };
    let url = env::var("LOCK_URL")?;
    // Nobody collects its traces, but they have ids.
    let traces = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("member"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let metrics = lock_metrics::builder().with_listener(([127, 0, 0, 1], port.parse()?)).with_trace_ids(trace_id);
    let metrics = metrics.with_trace_link("https://traces.example/{trace_id}").install()?;
    let locks = LockManager::connect(&url).await?;
    // Members of a quorum are inspected one by one.
    let inspector = if url.starts_with("redlock") { None } else { Some(Inspector::new(&url)?.start(&metrics)?) };
    let mut work = JoinSet::new();
    for _ in 0..3 {
        work.spawn(orders(locks.clone()));
    }
    work.spawn(reports(locks.clone(), name));
    work.spawn(summaries(locks.clone(), line_of_input()));
    let report = locks.shutdown_on_signal(Duration::from_secs(5)).await?;
    if let Some(inspector) = inspector {
        inspector.stop().await;
    }
    work.join_all().await;
    println!("stopped; every lock given back: {}", report.is_clean());
    Ok(())
}

fn trace_id() -> Option<[u8; 16]> {
    let context = tracing::Span::current().context();
    let span = context.span();
    span.span_context().is_sampled().then(|| span.span_context().trace_id().to_bytes())
}

/// Many short holds of many keys.
async fn orders(locks: LockManager) {
    loop {
        let key = format!("shop:order:{}", fastrand::u32(..ORDERS));
        let request = locks.lock(key).with_label("shop:order:<id>").with_wait(PATIENCE);
        if hold(request, millis(50..800)).await.is_err() {
            return;
        }
        sleep(millis(100..1_000)).await;
    }
}

/// Long holds of a key that nobody else takes.
async fn reports(locks: LockManager, name: String) {
    loop {
        let request = locks.lock(format!("shop:report:{name}")).with_label("shop:report:<member>").with_wait(PATIENCE);
        if hold(request.with_stuck_after(STUCK_AFTER), millis(15_000..45_000)).await.is_err() {
            return;
        }
        sleep(millis(1_000..10_000)).await;
    }
}

/// Short holds of one key that all processes take.
async fn summaries(locks: LockManager, mut told: oneshot::Receiver<()>) {
    loop {
        sleep(millis(4_000..12_000)).await;
        let time = if told.try_recv().is_ok() { Duration::MAX } else { millis(10..40) };
        let request = locks.lock("shop:summary").with_label("shop:summary").with_wait(PATIENCE);
        if hold(request.with_stuck_after(STUCK_AFTER), time).await.is_err() {
            return;
        }
    }
}

/// Works under a lock. Fails only when the process is to stop: a fleet has bad minutes, and goes on.
async fn hold(request: LockRequest, time: Duration) -> Result<(), ()> {
    let done: Result<(), _> = request
        .run(async |_| {
            sleep(time).await;
            Ok(())
        })
        .instrument(tracing::info_span!("work"))
        .await;
    match done.map_err(|error: lock_core::LockError| error.kind()) {
        Ok(()) => Ok(()),
        Err(LockErrorKind::ShutDown) => Err(()),
        Err(_) => {
            sleep(Duration::from_millis(500)).await;
            Ok(())
        }
    }
}

/// Tells when something is written to the input; nothing when that ends.
fn line_of_input() -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        if io::stdin().read_line(&mut String::new()).is_ok_and(|length| length > 0) {
            let _ = tell.send(());
        }
    });
    told
}

fn millis(range: Range<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(range))
}
