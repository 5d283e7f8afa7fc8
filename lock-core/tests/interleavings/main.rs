//! Threads at one gate, in a great many orders in which they can take its mutexes.
//!
//! The gate is built here once more, over the mutex of `shuttle`, which decides who runs next: at random,
//! and with few but unlucky preemptions, which finds most bugs (Burckhardt et al., *A Randomized Scheduler
//! with Probabilistic Guarantees of Finding Bugs*, 2010). In each order there is one turn at a time, nobody
//! waits for ever (that would be a deadlock, which fails), and the queue is closed in the end. A failure
//! prints the schedule that repeats it.

#[expect(
    dead_code,
    unused_imports,
    reason = "more than this test needs: the names of holders, and the gate's own tests"
)]
#[path = "../../src/engine/gate/mod.rs"]
mod gate;

mod sync {
    use std::sync::PoisonError;

    pub(crate) use shuttle::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

// Where the gate finds what it imports.
mod types {
    pub(crate) mod key {
        pub(crate) use lock_core::LockKey;
    }
    pub(crate) mod system {
        pub(crate) use crate::sync;
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::gate::{Gate, Payload, Turn, TurnCheck, Waiter};
use crate::types::key::LockKey;

/// How many orders of each set of visits are tried, in each of the two ways.
const ORDERS: usize = 100;

/// How many preemptions it takes, at most, to be unlucky.
const PREEMPTIONS: usize = 3;

/// Payload that goes nowhere if nobody takes it.
#[derive(Debug)]
struct Parcel;

impl Payload for Parcel {
    type Terms = bool;
    type Holder = ();
    type Shared = ();

    fn admits((): &()) -> bool {
        true
    }

    fn end((): (), turn: Option<Turn<Self>>) {
        drop(turn);
    }

    fn reclaim(self, turn: Turn<Self>) {
        drop(turn);
    }
}

/// The actions of a visitor.
#[derive(Clone, Copy, Debug)]
enum Visit {
    /// Takes the turn and drops it.
    Stay,
    /// Takes the turn and hands it on with a payload, which fits only who wants the same.
    HandOn,
    /// Tries, and does without.
    Try,
    /// Takes a slot and leaves it.
    Leave,
    /// Takes a slot, polls it once, and leaves it.
    PollAndLeave,
    /// Takes a slot, and sleeps before it is polled again: the turn may be taken back from it.
    Sleep,
}

const VISITS: [Visit; 6] = [Visit::Stay, Visit::HandOn, Visit::Try, Visit::Leave, Visit::PollAndLeave, Visit::Sleep];

fn visit(visit: Visit, gate: &Arc<Gate<Parcel>>, key: &LockKey, inside: &AtomicBool) {
    let fits = matches!(visit, Visit::HandOn);
    let turn = match visit {
        Visit::Try => gate.try_enter(key).ok(),
        _ => match gate.enter(key, fits) {
            Ok(turn) => Some(turn),
            Err(mut slot) => match visit {
                Visit::Leave => None,
                Visit::PollAndLeave => poll_once(&mut slot),
                Visit::Sleep => poll_once(&mut slot).or_else(|| {
                    thread::yield_now();
                    Some(block_on(slot))
                }),
                _ => Some(block_on(slot)),
            },
        },
    };
    let Some(mut turn) = turn else { return };
    turn.take_payload();
    assert!(!inside.swap(true, Ordering::SeqCst), "two turns at once");
    thread::yield_now();
    inside.store(false, Ordering::SeqCst);
    if fits {
        drop(turn.hand_on(Parcel, |wants| wants));
    }
}

fn poll_once(slot: &mut Waiter<Parcel>) -> Option<Turn<Parcel>> {
    match std::pin::Pin::new(slot).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(turn) => Some(turn),
        Poll::Pending => None,
    }
}

/// The looks that are scheduled.
type Looks = Arc<sync::Mutex<Vec<TurnCheck<Parcel>>>>;

/// Runs what is scheduled.
fn look(looks: &Looks) {
    let due = std::mem::take(&mut *looks.lock());
    due.into_iter().for_each(TurnCheck::run);
}

/// Runs visitors side by side. Returns in how many orders.
fn run(scheduler: impl Scheduler + 'static, visits: &[Visit]) -> usize {
    let orders = Arc::new(AtomicUsize::new(0));
    let (visits, counted) = (visits.to_vec(), Arc::clone(&orders));
    Runner::new(scheduler, Config::default()).run(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let key = LockKey::new("k").unwrap_or_else(|error| panic!("{error}"));
        let (looks, inside) = (Looks::default(), Arc::new(AtomicBool::new(false)));
        let scheduled = Arc::clone(&looks);
        let schedule = move |look| scheduled.lock().push(look);
        let gate = Arc::new(Gate::new(schedule));
        let visitors = visits.iter().map(|&what| {
            let (gate, key, inside) = (Arc::clone(&gate), key.clone(), Arc::clone(&inside));
            thread::spawn(move || visit(what, &gate, &key, &inside))
        });
        let visitors: Vec<_> = visitors.collect();
        // Often enough that a woken caller may be looked at twice.
        for _ in 0..4 {
            look(&looks);
            thread::yield_now();
        }
        for visitor in visitors {
            visitor.join().unwrap_or_else(|_| panic!("a visitor has panicked"));
        }
        assert!(gate.try_enter(&key).is_ok(), "the queue was not closed");
    });
    orders.load(Ordering::Relaxed)
}

fn main() {
    let mut orders = 0;
    for one in VISITS {
        for two in VISITS {
            for three in VISITS {
                let visits = [one, two, three];
                orders += run(RandomScheduler::new(ORDERS), &visits);
                orders += run(PctScheduler::new(PREEMPTIONS, ORDERS), &visits);
            }
        }
    }
    println!("{orders} orders of three visitors: one turn at a time, nobody is forgotten, every queue is closed");
}
