//! Without a server: the attribute beside the guard API that it replaces, and the cost of metrics for each lock.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lock_core::{
    FencingToken, GrantPath, LockError, LockEvent, LockEventKind, LockKey, LockLabel, LockManager, LockObserver,
    OwnerId, distributed_lock, lock_key,
};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::outcome::{Figure, Outcome, Target};
use crate::process::job::Job;
use crate::process::worker;
use crate::stats::{median, ratio};
use crate::{Result, clock};

/// Nanoseconds of processor time per lock, which is one acquire and one release, and sizes in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    by_hand: f64,
    annotated: f64,
    /// Only the events of a lock, reported to the metrics.
    metrics: f64,
    plain_future: u64,
    annotated_future: u64,
}

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let cycles = bench.scale.pick(300_000, 50_000, 2_000);
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds {
        rounds.push(worker::start(&Job::Memory { cycles })?.answer::<Memory>()?);
    }
    let of = |figure: fn(&Memory) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
    let cost = median(rounds.iter().filter_map(|round| ratio(round.annotated, round.by_hand)).collect());
    let grown = of(|round| round.annotated_future.saturating_sub(round.plain_future) as f64);
    let figures = vec![
        Figure::new("guard API by hand", "ns", of(|round| round.by_hand)),
        Figure::new("attribute", "ns", of(|round| round.annotated)),
        Figure::new("future without the attribute", "B", of(|round| round.plain_future as f64)),
        Figure::new("future grows by", "B", grown),
        Figure::new("events of a lock, with metrics", "ns", of(|round| round.metrics)),
    ];
    let targets = vec![
        Target::at_most("attribute / guard API", cost, 1.15),
        Target::at_most("future grows by, B", figures[3].median, 512.0),
        Target::at_most("events of a lock, with metrics, ns", figures[4].median, 100.0),
    ];
    Ok(Outcome { figures, targets, ..Outcome::default() })
}

#[distributed_lock(key = "bench:<id>", client = locks)]
async fn annotated(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    Ok(body(id))
}

async fn plain(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    black_box(locks);
    Ok(body(id))
}

async fn by_hand(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let guard = locks.lock(lock_key!("bench:<id>")).await?;
    let answer = body(id);
    guard.ensure_held()?;
    guard.release().await?;
    Ok(answer)
}

fn body(id: u64) -> u64 {
    black_box(id)
}

/// Measures in this process. The first two take turns in slices, so that disturbances hit both alike.
pub(crate) fn measure(cycles: u64) -> Result<Memory> {
    const SLICES: u64 = 10;
    let metrics = lock_metrics::builder().build()?;
    let observer = metrics.observer();
    // A first run lets tables grow to their size.
    events(&observer, cycles / 10)?;
    let metrics = events(&observer, cycles)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = LockManager::in_memory();
        let (mut one, mut other) = (0, 0);
        for slice in 0..=SLICES {
            let start = clock::cpu();
            for id in 0..cycles / SLICES {
                by_hand(&locks, id).await?;
            }
            let middle = clock::cpu();
            for id in 0..cycles / SLICES {
                annotated(&locks, id).await?;
            }
            let end = clock::cpu();
            // The first slice warms up.
            if slice > 0 {
                one += middle - start;
                other += end - middle;
            }
        }
        let size = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        Ok(Memory {
            by_hand: one as f64 / cycles as f64,
            annotated: other as f64 / cycles as f64,
            metrics,
            plain_future: size(size_of_val(&plain(&locks, 1))),
            annotated_future: size(size_of_val(&annotated(&locks, 1))),
        })
    })
}

/// Sends the events of uncontended cycles as the core does: through a dynamic call that may panic.
fn events(observer: &dyn LockObserver, cycles: u64) -> Result<f64> {
    let (label, key) = (LockLabel::new("bench:<n>"), LockKey::new("bench:1")?);
    let owner = OwnerId::random();
    let tell = |attempt: u64, kind: LockEventKind<'_>| {
        let event = LockEvent::new(attempt, &label, &key, "bench::memory", kind);
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
