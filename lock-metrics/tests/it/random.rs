//! Random streams that follow the grammar of events: no gauge leaks, and no count is missed.

use std::time::Duration;

use fastrand::Rng;
use lock_core::{GrantPath, Holder, LockError, LockEventKind, LossReason};
use lock_metrics::builder;
use lock_testing::limit;

use crate::support::{Acquire, Scrape, holder};

const LOCKS: [&str; 3] = ["a:<id>", "b:<id>", "c"];
const ACQUIRES: u64 = 300;

/// Where an acquire is in the grammar.
#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Waiting,
    Held,
    Ended,
}

#[derive(Default)]
struct Expected {
    waiting: u32,
    held: u32,
    ended: u32,
}

#[test]
#[limit]
fn no_stream_leaks_a_gauge() {
    for seed in 0..60 {
        println!("seed {seed}");
        run(&mut Rng::with_seed(seed));
    }
}

fn run(rng: &mut Rng) {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let foreign = Holder::foreign(None);
    let ours = holder("shop::report");
    let mut acquires: Vec<_> = (0..ACQUIRES)
        .map(|attempt| {
            let lock = rng.usize(..LOCKS.len());
            (lock, State::New, Acquire::new(&observer, attempt, LOCKS[lock], &format!("{lock}:{attempt}")))
        })
        .collect();
    let mut open: Vec<usize> = (0..acquires.len()).collect();
    let mut steps = 0_u32;
    while !open.is_empty() {
        let index = rng.usize(..open.len());
        let (_, state, acquire) = &mut acquires[open[index]];
        let seen = [None, Some(&foreign), Some(&ours)][rng.usize(..3)];
        *state = step(rng, *state, acquire, seen);
        if *state == State::Ended {
            open.swap_remove(index);
        }
        steps += 1;
        if steps.is_multiple_of(500) || open.is_empty() {
            check(&Scrape::read(&metrics.render()), &acquires);
        }
    }
    assert_eq!(metrics.live_locks().count(), 0);
}

fn step<O: lock_core::LockObserver>(
    rng: &mut Rng,
    state: State,
    acquire: &Acquire<'_, O>,
    seen: Option<&Holder>,
) -> State {
    let time = Duration::from_micros(rng.u64(..5_000_000));
    let error = LockError::unavailable("no");
    let (kind, next) = match (state, rng.u8(..8)) {
        (State::New, _) => (LockEventKind::WaitStarted, State::Waiting),
        (State::Waiting, 0 | 1) => (LockEventKind::Contended { holder: seen }, State::Waiting),
        (State::Waiting, 2) => (LockEventKind::Busy { waited: time, holder: seen }, State::Ended),
        (State::Waiting, 3) => (LockEventKind::TimedOut { waited: time, holder: seen }, State::Ended),
        (State::Waiting, 4) => (LockEventKind::Cancelled { waited: time, holder: seen }, State::Ended),
        (State::Waiting, 5) => (LockEventKind::Failed { waited: time, error: &error }, State::Ended),
        (State::Waiting, _) => {
            let path = [GrantPath::Uncontended, GrantPath::Granted, GrantPath::Polled, GrantPath::Handoff];
            acquire.acquired(path[rng.usize(..4)], time, seen);
            return State::Held;
        }
        (State::Held, 0 | 1) => (
            LockEventKind::Renewed { lease: time, lease_was_left: time, lease_left: time, lateness: time },
            State::Held,
        ),
        (State::Held, 2 | 3) => (LockEventKind::RenewFailed { error: &error, lease_left: time }, State::Held),
        (State::Held, 4) => (LockEventKind::Lost { held: time, reason: LossReason::Expired }, State::Ended),
        (State::Held, 5) => (LockEventKind::Abandoned { held: time }, State::Ended),
        (State::Held, flags) => {
            let (dropped, confirmed) = (flags == 6, rng.bool());
            (LockEventKind::Released { held: time, dropped, confirmed }, State::Ended)
        }
        (State::Ended, _) => unreachable!("ended"),
    };
    acquire.send(kind);
    if next == State::Ended && rng.u8(..4) == 0 {
        // The keeper's last events may arrive after the caller's terminal event.
        let late = Duration::ZERO;
        acquire.send(match state {
            State::Held => {
                LockEventKind::Renewed { lease: late, lease_was_left: late, lease_left: late, lateness: late }
            }
            _ => LockEventKind::Contended { holder: seen },
        });
    }
    next
}

fn check<O>(scrape: &Scrape, acquires: &[(usize, State, Acquire<'_, O>)]) {
    for (number, lock) in LOCKS.iter().enumerate() {
        let mut expected = Expected::default();
        let mut begun = 0;
        for (_, state, _) in acquires.iter().filter(|(of, _, _)| *of == number) {
            expected.waiting += u32::from(*state == State::Waiting);
            expected.held += u32::from(*state == State::Held);
            expected.ended += u32::from(*state == State::Ended);
            begun += u32::from(*state != State::New);
        }
        if begun == 0 {
            continue;
        }
        let sum = |name: &str| -> f64 {
            let name = format!("distributed_lock_{name}");
            scrape.series.iter().filter(|((of, l), _)| *of == name && l["lock"] == *lock).map(|(_, value)| value).sum()
        };
        assert_eq!(sum("waiters"), f64::from(expected.waiting), "{lock}");
        assert_eq!(sum("held"), f64::from(expected.held), "{lock}");
        assert_eq!(sum("acquisitions_total"), f64::from(expected.held + expected.ended), "{lock}");
        assert_eq!(sum("releases_total") + sum("lost_total"), sum("hold_seconds_count"), "{lock}");
        assert_eq!(sum("grants_total"), sum("hold_seconds_count") + f64::from(expected.held), "{lock}");
        assert_eq!(sum("oldest_hold_start_timestamp_seconds") > 0.0, expected.held > 0, "{lock}");
        assert_eq!(sum("oldest_wait_start_timestamp_seconds") > 0.0, expected.waiting > 0, "{lock}");
    }
}
