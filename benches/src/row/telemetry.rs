//! What an observer that counts everything adds to each lock.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    FencingToken, GrantPath, LockEvent, LockEventKind, LockKey, LockLabel, LockManager, LockObserver, OwnerId,
};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::job::Job;
use crate::outcome::{Figure, Outcome};
use crate::target::Target;
use crate::worker::Worker;
use crate::{Result, clock};

/// Nanoseconds of processor time per cycle, which is an acquire and a release.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Telemetry {
    /// Only the events of a cycle, sent to an observer that does nothing.
    nobody: f64,
    /// The same events, sent to the metrics.
    metrics: f64,
    /// A whole lock in memory without an observer.
    lock: f64,
    /// The same with metrics.
    observed: f64,
}

struct Nobody;

impl LockObserver for Nobody {
    fn on_event(&self, event: &LockEvent<'_>) {
        black_box(event);
    }
}

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let cycles = bench.scale.pick(300_000, 50_000, 2_000);
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds {
        rounds.push(Worker::start(&Job::Telemetry { cycles })?.answer::<Telemetry>()?);
    }
    let of = |figure: fn(&Telemetry) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
    let cost = Figure::new("event cycle, metrics", "ns", of(|round| round.metrics));
    let targets = vec![Target::at_most("event cycle with metrics, ns", cost.median, 100.0)];
    let figures = vec![
        Figure::new("event cycle, nobody listens", "ns", of(|round| round.nobody)),
        cost,
        Figure::new("lock in memory, not observed", "ns", of(|round| round.lock)),
        Figure::new("lock in memory, with metrics", "ns", of(|round| round.observed)),
    ];
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

/// Measures in this process.
pub(crate) fn measure(cycles: u64) -> Result<Telemetry> {
    let metrics = lock_metrics::builder().build()?;
    let observer: Arc<dyn LockObserver> = Arc::new(metrics.observer());
    // Runs once before, so that tables grow to their size.
    events(&*observer, cycles / 10)?;
    let [nobody, metrics_cost] = [events(&Nobody, cycles)?, events(&*observer, cycles)?];

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (alone, observed) = (LockManager::in_memory(), LockManager::in_memory());
    observed.observe(metrics.observer());
    runtime.block_on(async {
        locks(&alone, cycles / 10).await?;
        locks(&observed, cycles / 10).await?;
        let (lock, observed) = (locks(&alone, cycles).await?, locks(&observed, cycles).await?);
        Ok(Telemetry { nobody, metrics: metrics_cost, lock, observed })
    })
}

/// Sends the events of uncontended cycles as the core does: through a dynamic call that may panic.
fn events(observer: &dyn LockObserver, cycles: u64) -> Result<f64> {
    let (label, key) = (LockLabel::new("bench:<n>"), LockKey::new("bench:1")?);
    let owner = OwnerId::random();
    let tell = |attempt: u64, kind: LockEventKind<'_>| {
        let event = LockEvent::new(attempt, &label, &key, "bench::telemetry", kind);
        // A panic would be the observer's bug, and would show as a cycle that costs a thousand times
        // more.
        let _ = catch_unwind(AssertUnwindSafe(|| observer.on_event(black_box(&event))));
    };
    let start = clock::cpu();
    for attempt in 0..cycles {
        tell(attempt, LockEventKind::WaitStarted);
        tell(
            attempt,
            LockEventKind::Acquired {
                waited: Duration::from_micros(60),
                token: FencingToken::new(attempt + 1),
                owner,
                path: GrantPath::Uncontended,
                lease_left: Duration::from_secs(29),
                waited_for: None,
            },
        );
        tell(attempt, LockEventKind::Released { held: Duration::from_millis(2), dropped: false, confirmed: true });
    }
    Ok((clock::cpu() - start) as f64 / cycles.max(1) as f64)
}

async fn locks(manager: &LockManager, cycles: u64) -> Result<f64> {
    let start = clock::cpu();
    for _ in 0..cycles {
        manager.lock("bench:1").await?.release().await?;
    }
    Ok((clock::cpu() - start) as f64 / cycles.max(1) as f64)
}
