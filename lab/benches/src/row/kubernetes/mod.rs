//! Locks in Kubernetes, beside the bare requests that they consist of, on the same API server in the same round.

mod bare;
mod requests;
mod steps;

use std::time::Duration;

use lock_core::{LockManager, Wait};
use lock_kubernetes::Kubernetes;
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::contestant::TTL_MS;
use crate::outcome::{Bound, Figure, Measure, Outcome, Target, Wanted};
use crate::process::job::{Job, Statements};
use crate::process::wire::say;
use crate::process::worker;
use crate::row::kubernetes::requests::Requests;
use crate::{Failure, Result};

#[path = "../../../../../stores/lock-kubernetes/tests/it/servers.rs"]
#[allow(dead_code, reason = "most of it is for the tests of the store")]
mod servers;

use servers::{ApiServer, can_start};

/// The lease of every contestant.
const TTL: Duration = Duration::from_millis(TTL_MS);

/// The figures of one round.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// One task: the median of a pair, µs, in the order of [`steps::lines`].
    pairs: [f64; 4],
    /// Many tasks: pairs per second, of the first three lines.
    crowd: [f64; 3],
    hand_offs: steps::HandOffs,
}

const FIGURES: [Measure<Measured>; 10] = [
    ("bare create and delete", "µs", |round| round.pairs[0]),
    ("bare update pair, the Lease stays", "µs", |round| round.pairs[1]),
    ("us: a pair", "µs", |round| round.pairs[2]),
    ("us: the first pair of a name", "µs", |round| round.pairs[3]),
    ("bare update until watched", "µs", |round| round.hand_offs.watched),
    ("bare, and the watcher's own update", "µs", |round| round.hand_offs.bare),
    ("us: hand-off between managers", "µs", |round| round.hand_offs.ours),
    ("64 tasks: bare create and delete", "/s", |round| round.crowd[0]),
    ("64 tasks: bare update pair", "/s", |round| round.crowd[1]),
    ("64 tasks: us", "/s", |round| round.crowd[2]),
];

/// The second target is out of reach, because the waiter sends an update of its own after the watch has told it of the release. The bare
/// requests of a hand-off alone take 1.7 times the update until watched.
const TARGETS: [Wanted<Measured>; 2] = [
    ("a pair / bare create and delete", |r| r.pairs[2], |r| r.pairs[0], Bound::AtMost, 1.3),
    ("hand-off / update until watched", |r| r.hand_offs.ours, |r| r.hand_offs.watched, Bound::AtMost, 1.5),
];

/// A count of requests: its name, its unit, its value, and the highest value if there is a target.
type OfRequests = (&'static str, &'static str, fn(&Requests) -> f64, Option<f64>);

const REQUESTS: [OfRequests; 5] = [
    ("a held lock, ttl 15 s: requests", "/min", Requests::held_per_minute, None),
    ("requests of a held lock in ttl/3", "", Requests::held_per_third, Some(1.1)),
    ("a waiter: requests until announced", "", Requests::of_a_new_waiter, None),
    ("requests of an announced waiter", "/min", Requests::of_a_waiter_per_minute, Some(0.0)),
    ("a process: watches begun", "/min", Requests::watches_per_minute, None),
];

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let (mut rounds, mut requests) = (Vec::new(), None);
    if can_start() {
        let server = ApiServer::start().ok_or("the API server does not start")?;
        bench.progress("kubernetes: requests of held locks and of waiters");
        requests = Some(requests::measure(&server, Duration::from_secs(bench.scale.pick(60, 20, 5)))?);
        let window_ms = bench.scale.pick(2_000, 500, 150);
        for round in 0..bench.rounds {
            let steps = bench.scale.pick(300, 60, 4);
            let job = Statements { url: server.namespace().url(), steps, window_ms, first: round };
            rounds.push(worker::start(&Job::Kubernetes(job))?.answer::<Measured>()?);
        }
    } else {
        println!("not installed, so not measured: Kubernetes: run sh scripts/need-kubernetes.sh");
    }
    Ok(outcome(&rounds, requests.as_ref()))
}

/// Combines the rounds. Without any round, each target is listed as not met.
fn outcome(rounds: &[Measured], requests: Option<&Requests>) -> Outcome {
    let mut outcome = Outcome::of_rounds(rounds, &FIGURES, &TARGETS, |round| round.hand_offs.inversions);
    for (what, unit, of, most) in REQUESTS {
        let value = requests.map(of);
        outcome.figures.extend(value.map(|value| Figure::new(what, unit, vec![value])));
        outcome.targets.extend(most.map(|most| Target::at_most(what, value, most)));
    }
    outcome
}

/// Measures every figure of a round, in a process of its own.
pub(crate) fn measure(job: &Statements) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let measured = runtime.block_on(async {
        let lines = steps::lines(job).await?;
        let pairs = steps::pairs(job, &lines).await?;
        let crowd = steps::crowd(job, &lines).await?;
        Ok::<_, Failure>(Measured { pairs, crowd, hand_offs: steps::hand_offs(job).await? })
    })?;
    say(&serde_json::to_string(&measured)?)?;
    // Watches that are still open end with the server.
    std::process::exit(0)
}

/// A manager with a thread, connections and a watch of its own, as a process has.
async fn manager(url: &str, ttl: Duration) -> Result<LockManager> {
    let locks = LockManager::builder(Kubernetes::new(url)?).with_ttl(ttl).with_wait(Wait::Forever).build()?;
    locks.ping().await?;
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::outcome;

    #[test]
    fn what_could_not_be_measured_is_named_and_not_met() {
        let nothing = outcome(&[], None);
        assert_eq!((nothing.figures.len(), nothing.targets.len()), (0, 4));
        assert!(nothing.targets.iter().all(|target| target.value.is_none() && !target.met));
    }
}
