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
#[path = "../../src/gate.rs"]
mod gate;

mod key {
    pub(crate) use lock_core::LockKey;
}

mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::gate::{Gate, Payload, Turn};
use crate::key::LockKey;

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

    fn abandon(self, turn: Turn<Self>) {
        drop(turn);
    }
}

/// What a visitor does.
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
    /// Takes a slot, looks whether it was called, and leaves it.
    LookAndLeave,
}

const VISITS: [Visit; 5] = [Visit::Stay, Visit::HandOn, Visit::Try, Visit::Leave, Visit::LookAndLeave];

fn visit(visit: Visit, gate: &Arc<Gate<Parcel>>, key: &LockKey, inside: &AtomicBool) {
    let fits = matches!(visit, Visit::HandOn);
    let turn = match visit {
        Visit::Try => gate.try_enter(key).ok(),
        _ => match gate.enter(key, fits) {
            Ok(turn) => Some(turn),
            Err(mut slot) => match visit {
                Visit::Leave => None,
                Visit::LookAndLeave => {
                    match std::pin::Pin::new(&mut slot).poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(turn) => Some(turn),
                        Poll::Pending => None,
                    }
                }
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

/// Runs visitors side by side. Returns in how many orders.
fn run(scheduler: impl Scheduler + 'static, visits: &[Visit]) -> usize {
    let orders = Arc::new(AtomicUsize::new(0));
    let (visits, counted) = (visits.to_vec(), Arc::clone(&orders));
    Runner::new(scheduler, Config::default()).run(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let key = LockKey::new("k").unwrap_or_else(|error| panic!("{error}"));
        let (gate, inside) = (Arc::new(Gate::new()), Arc::new(AtomicBool::new(false)));
        let visitors = visits.iter().map(|&what| {
            let (gate, key, inside) = (Arc::clone(&gate), key.clone(), Arc::clone(&inside));
            thread::spawn(move || visit(what, &gate, &key, &inside))
        });
        for visitor in visitors.collect::<Vec<_>>() {
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
