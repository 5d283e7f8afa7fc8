//! Compares the attribute with the guard API that it replaces.

use std::hint::black_box;

use lock_core::{LockError, LockManager, distributed_lock, lock_key};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::job::Job;
use crate::outcome::{Figure, Outcome};
use crate::stats::{median, ratio};
use crate::target::Target;
use crate::worker::Worker;
use crate::{Result, clock};

/// Nanoseconds of processor time per call, and the size of its future in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attribute {
    by_hand: f64,
    annotated: f64,
    plain_future: u64,
    annotated_future: u64,
}

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let cycles = bench.scale.pick(300_000, 50_000, 2_000);
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds {
        rounds.push(Worker::start(&Job::Attribute { cycles })?.answer::<Attribute>()?);
    }
    let of = |figure: fn(&Attribute) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
    let cost = median(rounds.iter().filter_map(|round| ratio(round.annotated, round.by_hand)).collect());
    let grown = Figure::new(
        "future grows by",
        "B",
        of(|round| round.annotated_future.saturating_sub(round.plain_future) as f64),
    );
    let targets = vec![
        Target::at_most("attribute / guard API", cost, 1.15),
        Target::at_most("future grows by, B", grown.median, 512.0),
    ];
    let figures = vec![
        Figure::new("guard API by hand", "ns", of(|round| round.by_hand)),
        Figure::new("attribute", "ns", of(|round| round.annotated)),
        Figure::new("future without the attribute", "B", of(|round| round.plain_future as f64)),
        grown,
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

/// Measures in this process: both take turns, in slices, so that both see the same disturbances.
pub(crate) fn measure(cycles: u64) -> Result<Attribute> {
    const SLICES: u64 = 10;
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
        Ok(Attribute {
            by_hand: one as f64 / cycles as f64,
            annotated: other as f64 / cycles as f64,
            plain_future: size(size_of_val(&plain(&locks, 1))),
            annotated_future: size(size_of_val(&annotated(&locks, 1))),
        })
    })
}
