//! Several threads at one gate: whatever the scheduler makes of them, there is one turn at a time, and
//! nobody is forgotten. What one thread can see, in every order, is in `random.rs`; unlucky orders of
//! threads are in `tests/interleavings/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::{Gate, Payload, Turn, Waiter};
use crate::key::LockKey;

const THREADS: u64 = 4;

/// Payload that goes nowhere if nobody takes it.
struct Parcel;

impl Payload for Parcel {
    type Terms = u8;
    type Holder = ();

    fn abandon(self, turn: Turn<Self>) {
        drop(turn);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn poll(slot: &mut Waiter<Parcel>, waker: &Waker) -> Poll<Turn<Parcel>> {
    std::pin::Pin::new(slot).poll(&mut Context::from_waker(waker))
}

/// Waits for the turn, as an executor does.
fn wait(mut slot: Waiter<Parcel>) -> Turn<Parcel> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(turn) = poll(&mut slot, &waker) {
            return turn;
        }
        thread::park();
    }
}

fn visit(gate: &Arc<Gate<Parcel>>, key: &LockKey, inside: &AtomicBool, random: &mut fastrand::Rng) {
    let mut turn = match gate.enter(key, random.u8(0..2)) {
        Ok(turn) => turn,
        Err(mut slot) => {
            if random.u8(0..3) == 0 {
                // Left at once, or after a look, and perhaps in the moment in which it is called.
                let _ = random.bool().then(|| poll(&mut slot, Waker::noop()));
                return;
            }
            wait(slot)
        }
    };
    turn.take_payload();
    assert!(!inside.swap(true, Ordering::SeqCst), "two turns at once");
    if random.u8(0..4) == 0 {
        thread::yield_now();
    }
    inside.store(false, Ordering::SeqCst);
    if random.bool() {
        // Given back if the first in the queue wants something else, and then passed on.
        let _ = turn.hand_on(Parcel, |terms| terms == 0);
    }
}

#[test]
fn one_turn_at_a_time_and_nobody_is_forgotten() {
    let (gate, key) = (Arc::new(Gate::new()), LockKey::new("k").unwrap());
    let inside = Arc::new(AtomicBool::new(false));
    let (done, all) = mpsc::channel();
    for number in 0..THREADS {
        let (gate, key, inside, done) = (Arc::clone(&gate), key.clone(), Arc::clone(&inside), done.clone());
        thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(number);
            for _ in 0..20_000 {
                visit(&gate, &key, &inside, &mut random);
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..THREADS {
        all.recv_timeout(Duration::from_secs(120)).expect("somebody waits for a turn that does not come");
    }
    assert!(gate.try_enter(&key).is_ok(), "the queue was not closed");
    assert!(gate.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
}
