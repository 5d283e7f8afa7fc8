//! One process of a fleet, for `scripts/real-hour.sh`: does what services do with locks, in each of its stores, is scraped, and gives
//! everything back when it is told to stop. Each line of its input is a fault to imitate; with `LOCK_IDLE` it does
//! nothing else.
//!
//! ```text
//! LOCK_URL="redis://127.0.0.1:6379 redis://127.0.0.1:6380" cargo run -p lock-metrics --all-features --example member -- 9464 shop-0
//! ```
//!
//! ```text
//! hold LABEL KEY TTL STUCK_AFTER      keeps a lock for ever; times in seconds, 0 for the default threshold
//! wait LABEL KEY [TIME]               one more caller that waits for it (for an hour), keeps it for a moment, and comes again
//! stand NAME                          one more candidate
//! migrate KEY VERSION SECONDS         one more replica that migrates once, in each store
//! ```
//!
//! A key such as `mail/3` is one permit of a semaphore that has three.

#![expect(clippy::disallowed_methods, reason = "this runtime belongs to the program")]

use std::error::Error;
use std::ops::Range;
use std::time::Duration;
use std::{env, io, thread};

use lock_core::{LockError, LockErrorKind, LockGuard, LockLabel, LockManager, LockRequest, ShutdownReport};
use lock_metrics::FleetInspector;
// With it, the scheme `postgres` is known.
use lock_postgres as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

const ORDERS: u32 = 5_000;
const PERMITS: u32 = 4;
/// More than the processes of a store: a permit is always in use, and no caller waits.
const WORKERS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);
const STUCK_AFTER: Duration = Duration::from_secs(60);
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const INSPECT_EVERY: Duration = Duration::from_secs(10);
/// How long a deploy waits for a process to end.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(port), Some(name)) = (args.next(), args.next()) else { return Err("give a port and a name".into()) };
    let urls = env::var("LOCK_URL")?;
    // Its traces are not collected, but they have ids.
    let traces = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("member"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let metrics = lock_metrics::builder().with_listener(([127, 0, 0, 1], port.parse()?)).with_trace_ids(trace_id);
    let metrics = metrics.with_trace_link("https://traces.example/{trace_id}").install()?;
    let (mut stores, mut inspectors, mut work) = (Vec::new(), Vec::new(), JoinSet::new());
    for url in urls.split_whitespace() {
        let locks = LockManager::connect(url).await?;
        if env::var_os("LOCK_IDLE").is_none() {
            // PostgreSQL has no shared locks.
            everyday(&mut work, &locks, &name, !url.starts_with("postgres"));
        }
        stores.push(locks);
        // Members of a quorum are inspected one by one.
        if !url.starts_with("redlock") {
            inspectors.push(FleetInspector::new(url)?.with_interval(INSPECT_EVERY).start(&metrics)?);
        }
    }
    work.spawn(what_is_told(stores.clone(), lines_of_input()));
    let mut stops = JoinSet::new();
    for locks in stores {
        stops.spawn(async move { locks.shutdown_on_signal(GRACE).await });
    }
    let reports = stops.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    for inspector in inspectors {
        inspector.stop().await;
    }
    work.abort_all();
    while work.join_next().await.is_some() {}
    println!("stopped; every lock given back: {}", reports.iter().all(ShutdownReport::is_clean));
    for report in reports.iter().filter(|report| !report.is_clean()) {
        println!("left behind: {report:?}");
    }
    Ok(())
}

fn trace_id() -> Option<[u8; 16]> {
    let context = tracing::Span::current().context();
    let span = context.span();
    span.span_context().is_sampled().then(|| span.span_context().trace_id().to_bytes())
}

/// Does the work of a healthy service in one store. `name` is that of the process, behind that of its service.
fn everyday(work: &mut JoinSet<()>, locks: &LockManager, name: &str, shares: bool) {
    let service = name.split('-').next().unwrap_or(name).to_owned();
    for number in 0..3 {
        work.spawn(orders(locks.clone()));
        if shares {
            work.spawn(catalogue(locks.clone()));
            work.spawn(mails(locks.clone()));
            if number == 0 {
                work.spawn(images(locks.clone()));
            }
        }
    }
    work.spawn(reports(locks.clone(), name.to_owned()));
    work.spawn(summaries(locks.clone()));
    work.spawn(stand(locks.clone(), format!("{service}:planner")));
    work.spawn(sweeps(locks.clone(), format!("{service}:sweep")));
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

/// Readers of one key, and a writer now and then.
async fn catalogue(locks: LockManager) {
    loop {
        let (request, time) = match fastrand::u32(..40) {
            0 => (locks.write("shop:catalogue"), millis(5..30)),
            _ => (locks.read("shop:catalogue"), millis(5..60)),
        };
        if hold(request.with_label("shop:catalogue").with_wait(PATIENCE), time).await.is_err() {
            return;
        }
        sleep(millis(200..1_000)).await;
    }
}

/// Permits, one or two at a time.
async fn mails(locks: LockManager) {
    loop {
        let request = locks.semaphore("shop:mail", PERMITS).with_weight(fastrand::u32(1..3));
        if hold(request.with_label("shop:mail").with_wait(PATIENCE), millis(10..60)).await.is_err() {
            return;
        }
        sleep(millis(1_000..4_000)).await;
    }
}

/// Permits of a semaphore that is never empty.
async fn images(locks: LockManager) {
    loop {
        let request = locks.semaphore("shop:image", WORKERS).with_label("shop:image").with_wait(PATIENCE);
        if hold(request, millis(300..900)).await.is_err() {
            return;
        }
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
async fn summaries(locks: LockManager) {
    loop {
        sleep(millis(4_000..12_000)).await;
        let request = locks.lock("shop:summary").with_label("shop:summary").with_wait(PATIENCE);
        if hold(request.with_stuck_after(STUCK_AFTER), millis(10..40)).await.is_err() {
            return;
        }
    }
}

/// A candidate, and a leader for as long as it can.
async fn stand(locks: LockManager, name: String) {
    let election = locks.elect(name.as_str()).with_label(LockLabel::new(name));
    let _ = election.run(async |_| std::future::pending::<()>().await).await;
}

/// A job that every process starts, and one of them runs.
async fn sweeps(locks: LockManager, name: String) {
    let mut ticks = interval(SWEEP_EVERY / 3);
    loop {
        ticks.tick().await;
        let job = locks.lock(name.as_str()).with_label(LockLabel::new(name.clone())).at_most_every(SWEEP_EVERY);
        let ran = job
            .run(async |_| {
                sleep(millis(500..3_000)).await;
                Ok::<_, LockError>(())
            })
            .await;
        if ran.is_err_and(|error| error.kind() == LockErrorKind::ShutDown) {
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
    match done.map_err(|error: LockError| error.kind()) {
        Ok(()) => Ok(()),
        Err(LockErrorKind::ShutDown) => Err(()),
        Err(_) => {
            sleep(Duration::from_millis(500)).await;
            Ok(())
        }
    }
}

/// Does what the input says, in the first store if nothing else is written.
async fn what_is_told(stores: Vec<LockManager>, mut lines: UnboundedReceiver<String>) {
    let mut doing = JoinSet::new();
    let seconds = |text: &str| Duration::from_secs(text.parse().unwrap_or_default());
    while let Some(line) = lines.recv().await {
        let Some(locks) = stores.first().cloned() else { return };
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["hold", label, key, ttl, stuck_after] => {
                let request = request(&locks, label, key).with_ttl(seconds(ttl));
                let request = match seconds(stuck_after) {
                    Duration::ZERO => request,
                    age => request.with_stuck_after(age),
                };
                doing.spawn(async move { _ = hold(request, Duration::MAX).await });
            }
            ["wait", label, key, ref time @ ..] => {
                let wait = time.first().map_or(HOUR, |time| seconds(time));
                doing.spawn(calls(locks, label.to_owned(), key.to_owned(), wait));
            }
            ["stand", name] => drop(doing.spawn(stand(locks, name.to_owned()))),
            ["migrate", key, version, time] => {
                for locks in &stores {
                    let request = request(locks, key, key).with_wait(2 * HOUR).with_stuck_after(2 * seconds(time));
                    let once = request.once_for(version);
                    let time = seconds(time);
                    doing.spawn(async move {
                        let work = async move |_: &LockGuard| {
                            sleep(time).await;
                            Ok::<_, LockError>(())
                        };
                        println!("migrated: {:?}", once.run(work).await);
                    });
                }
            }
            _ => println!("not understood: {line}"),
        }
    }
    doing.join_all().await;
}

/// Asks for a lock, or for a permit if the key names their number. The call site is that of the caller.
#[track_caller]
fn request(locks: &LockManager, label: &str, key: &str) -> LockRequest {
    let request = match key.split_once('/') {
        Some((key, permits)) => locks.semaphore(key, permits.parse().unwrap_or(1)),
        None => locks.lock(key),
    };
    request.with_label(LockLabel::new(label.to_owned()))
}

/// Takes a lock again and again, as a caller that retries does.
async fn calls(locks: LockManager, label: String, key: String, wait: Duration) {
    loop {
        if hold(request(&locks, &label, &key).with_wait(wait), millis(20..50)).await.is_err() {
            return;
        }
        sleep(millis(50..200)).await;
    }
}

/// The lines of the input; when that ends, no more.
fn lines_of_input() -> UnboundedReceiver<String> {
    let (tell, told) = unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lines() {
            if line.is_ok_and(|line| tell.send(line).is_ok()) {
                continue;
            }
            return;
        }
    });
    told
}

fn millis(range: Range<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(range))
}
