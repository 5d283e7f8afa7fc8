//! Locks in PostgreSQL, beside the bare statements that they consist of, on the same server at the same time.

mod crowd;
mod herd;
mod server;
mod steps;

use lock_testing::PostgresServer;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::bench::Bench;
use crate::outcome::{Bound, Measure, Outcome, Wanted};
use crate::process::job::{Job, Statements};
use crate::process::wire::say;
use crate::process::worker;

/// The figures of one round. Times are medians in µs; the others are pairs per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    steps: steps::Steps,
    crowd: crowd::Crowd,
    /// The server's processor time for a hand-off while 3, 30 and 100 processes listen, µs.
    herd: [f64; 3],
}

const FIGURES: [Measure<Measured>; 17] = [
    ("one durable transaction", "µs", |round| round.steps.durable),
    ("us: a pair", "µs", |round| round.steps.pair),
    ("its two statements, one session", "µs", |round| round.steps.bare),
    ("SELECT … FOR UPDATE, a transaction", "µs", |round| round.steps.for_update),
    ("transaction, two statements", "µs", |round| round.steps.plain),
    ("us: the same under a pin", "µs", |round| round.steps.pinned),
    ("NOTIFY in a durable transaction", "µs", |round| round.steps.notify),
    ("us: hand-off between processes", "µs", |round| round.steps.hand_off),
    ("us: its server CPU, 3 listen", "µs", |round| round.herd[0]),
    ("us: its server CPU, 30 listen", "µs", |round| round.herd[1]),
    ("us: its server CPU, 100 listen", "µs", |round| round.herd[2]),
    ("100 rows, one bare update", "µs", |round| round.steps.update),
    ("us: 100 renewals", "µs", |round| round.steps.renewals),
    ("64 tasks: advisory, one connection", "/s", |round| round.crowd.advisory),
    ("64 tasks: advisory, 8 connections", "/s", |round| round.crowd.advisory_spread),
    ("64 tasks: FOR UPDATE, 8 connections", "/s", |round| round.crowd.for_update),
    ("64 tasks: us", "/s", |round| round.crowd.ours),
];

/// Two earlier targets are out of reach. A pair in 1.4 durable transactions: its two round trips alone take that long, with
/// cold caches. A hand-off in 1.5 bare messages: a message from a transaction that commits on disk takes 2.5 to 2.9.
const TARGETS: [Wanted<Measured>; 5] = [
    ("a pair / a durable transaction", |r| r.steps.pair, |r| r.steps.durable, Bound::AtMost, 2.2),
    ("64 tasks, us / advisory, one connection", |r| r.crowd.ours, |r| r.crowd.advisory, Bound::AtLeast, 0.6),
    ("hand-off / NOTIFY, durable", |r| r.steps.hand_off, |r| r.steps.notify, Bound::AtMost, 1.6),
    ("transaction under a pin / without", |r| r.steps.pinned, |r| r.steps.plain, Bound::AtMost, 1.3),
    ("server CPU of a hand-off, 100 listen / 3", |r| r.herd[2], |r| r.herd[0], Bound::AtMost, 2.0),
];

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let mut rounds = Vec::new();
    if let Some(why) = PostgresServer::missing(&["initdb"]) {
        println!("not installed, so not measured: PostgreSQL: {why}");
    } else {
        // The default of PostgreSQL: a commit waits for the disk.
        let server = PostgresServer::start_with(&[("fsync", "on"), ("max_connections", "1000")]);
        let window_ms = bench.scale.pick(1_000, 300, 150);
        for round in 0..bench.rounds {
            let steps = bench.scale.pick(300, 60, 4);
            let job = Statements { url: server.url(), steps, window_ms, first: round };
            rounds.push(worker::start(&Job::Postgres(job))?.answer::<Measured>()?);
        }
    }
    Ok(Outcome::of_rounds(&rounds, &FIGURES, &TARGETS, |round| round.steps.inversions))
}

/// Measures every figure once, in a process of its own.
pub(crate) fn measure(job: &Statements) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let measured = runtime.block_on(async {
        let steps = steps::measure(job).await?;
        let crowd = crowd::measure(job).await?;
        Ok::<_, crate::Failure>(Measured { steps, crowd, herd: herd::measure(job).await? })
    })?;
    say(&serde_json::to_string(&measured)?)?;
    // Locks that are still held end with the server.
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::{FIGURES, TARGETS};
    use crate::outcome::Outcome;

    #[test]
    fn what_could_not_be_measured_is_named_and_not_met() {
        let nothing = Outcome::of_rounds(&[], &FIGURES, &TARGETS, |_| 0);
        assert_eq!(nothing.targets.len(), TARGETS.len());
        assert!(nothing.targets.iter().all(|target| target.value.is_none() && !target.met));
    }
}
