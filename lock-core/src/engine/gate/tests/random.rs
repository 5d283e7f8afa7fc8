//! Runs random operations on a gate and on a model of it. The model is a list, which is simple enough to be right.

use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Gate, Payload, Turn, TurnCheck, Waiter};
use lock_store::types::key::LockKey;

/// The numbers of payloads that no waiter took, one entry each time a payload was abandoned.
type Lost = Arc<Mutex<Vec<u32>>>;

/// A payload that is recorded when no waiter takes it. Counts how many payloads exist.
struct Parcel {
    number: u32,
    lost: Lost,
    alive: Arc<AtomicUsize>,
}

impl Parcel {
    fn new(number: u32, lost: &Lost, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self { number, lost: Arc::clone(lost), alive: Arc::clone(alive) }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Payload for Parcel {
    type Terms = u8;
    type Holder = ();
    type Shared = ();

    fn admits((): &()) -> bool {
        false
    }

    fn end((): (), turn: Option<Turn<Self>>) {
        drop(turn);
    }

    fn reclaim(self, turn: Turn<Self>) {
        self.lost.lock().unwrap().push(self.number);
        drop(turn);
    }
}

/// One thing that a caller does. The caller is chosen among those that can do it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(u8),
    TryEnter,
    /// A slot is polled, and takes the turn if it was called.
    Poll(usize),
    /// A slot is dropped, perhaps after it was called.
    Leave(usize),
    /// The turn is passed on without a payload.
    Pass,
    /// The turn is handed on with a payload for waiters with these terms.
    HandOn(u8),
    /// The called waiter's time to take the turn has passed.
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_u8).prop_map(Step::Enter),
        1 => Just(Step::TryEnter),
        4 => (0..8_usize).prop_map(Step::Poll),
        3 => (0..8_usize).prop_map(Step::Leave),
        3 => Just(Step::Pass),
        3 => (0..2_u8).prop_map(Step::HandOn),
        2 => Just(Step::Check),
    ]
}

/// The expected state of the gate.
#[derive(Default)]
struct Model {
    /// The waiters in order, with their terms.
    waiting: VecDeque<(usize, u8)>,
    /// The waiter that was called and has not taken the turn, with its payload.
    called: Option<(usize, Option<u32>)>,
    /// The terms of the called waiter.
    called_terms: u8,
    /// Whether a caller has the turn.
    taken: bool,
    /// The waiters that did not take the turn in time and were not polled since, with their terms.
    passed_over: HashMap<usize, u8>,
    /// How many checks ran since the waiter was called.
    checks: u32,
}

impl Model {
    fn is_free(&self) -> bool {
        !self.taken && self.called.is_none()
    }

    fn call_next(&mut self) {
        self.taken = false;
        self.checks = 0;
        let next = self.waiting.pop_front();
        self.called_terms = next.map_or(0, |(_, terms)| terms);
        self.called = next.map(|(slot, _)| (slot, None));
    }
}

/// A real gate beside its model.
struct Pair {
    gate: Arc<Gate<Parcel>>,
    key: LockKey,
    model: Model,
    slots: HashMap<usize, Waiter<Parcel>>,
    turn: Option<Turn<Parcel>>,
    checks: Arc<Mutex<Vec<TurnCheck<Parcel>>>>,
    next_waiter: usize,
    next_parcel: u32,
    lost: Lost,
    alive: Arc<AtomicUsize>,
}

impl Pair {
    fn new() -> Self {
        let checks = Arc::new(Mutex::new(Vec::new()));
        let scheduled = Arc::clone(&checks);
        Self {
            gate: Arc::new(Gate::new(move |check| scheduled.lock().unwrap().push(check))),
            checks,
            key: LockKey::new("k").unwrap(),
            model: Model::default(),
            slots: HashMap::new(),
            turn: None,
            next_waiter: 0,
            next_parcel: 0,
            lost: Lost::default(),
            alive: Arc::default(),
        }
    }

    fn pick(&self, index: usize) -> Option<usize> {
        let mut slots: Vec<usize> = self.slots.keys().copied().collect();
        slots.sort_unstable();
        (!slots.is_empty()).then(|| slots[index % slots.len()])
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enter(terms) => match self.gate.enter(&self.key, terms) {
                Ok(turn) => self.begin(turn),
                Err(slot) => {
                    assert!(!self.model.is_free(), "a free key has no queue");
                    self.model.waiting.push_back((self.next_waiter, terms));
                    self.slots.insert(self.next_waiter, slot);
                    self.next_waiter += 1;
                }
            },
            Step::TryEnter => match self.gate.try_enter(&self.key) {
                Ok(turn) => self.begin(turn),
                Err(_) => assert!(!self.model.is_free(), "a free key is had at once"),
            },
            Step::Poll(index) => {
                if let Some(slot) = self.pick(index) {
                    self.poll(slot);
                }
            }
            Step::Leave(index) => {
                let Some(slot) = self.pick(index) else { return };
                drop(self.slots.remove(&slot));
                self.model.waiting.retain(|(other, _)| *other != slot);
                self.model.passed_over.remove(&slot);
                if let Some((_, payload)) = self.model.called.filter(|(called, _)| *called == slot) {
                    let abandoned = self.lost.lock().unwrap().pop();
                    assert_eq!(abandoned, payload, "what nobody took is abandoned, once");
                    self.model.call_next();
                }
            }
            Step::Pass => {
                if let Some(turn) = self.turn.take() {
                    drop(turn);
                    self.model.call_next();
                }
            }
            Step::HandOn(wanted) => {
                let Some(turn) = self.turn.take() else { return };
                let parcel = Parcel::new(self.next_parcel, &self.lost, &self.alive);
                let fits = self.model.waiting.front().is_some_and(|(_, terms)| *terms == wanted);
                match turn.hand_on(parcel, |terms| terms == wanted) {
                    Ok(()) => {
                        assert!(fits, "handed to somebody whom it does not fit");
                        self.model.call_next();
                        if let Some((_, payload)) = &mut self.model.called {
                            *payload = Some(self.next_parcel);
                        }
                    }
                    Err((turn, parcel)) => {
                        assert!(!fits, "the first in the queue was passed over");
                        assert_eq!(parcel.number, self.next_parcel);
                        self.turn = Some(turn);
                    }
                }
                self.next_parcel += 1;
            }
            Step::Check => self.run_checks(),
        }
        self.check();
    }

    fn begin(&mut self, turn: Turn<Parcel>) {
        assert!(self.model.is_free(), "two turns at once");
        self.turn = Some(turn);
        self.model.taken = true;
    }

    /// Runs the scheduled checks. A waiter that has not taken its turn at the second check is passed over.
    fn run_checks(&mut self) {
        let due = std::mem::take(&mut *self.checks.lock().unwrap());
        due.into_iter().for_each(TurnCheck::run);
        let Some((slot, payload)) = self.model.called else { return };
        self.model.checks += 1;
        if self.slots[&slot].slot.is_called() {
            assert!(self.model.checks < 2, "called for longer than two checks");
            return;
        }
        let abandoned = self.lost.lock().unwrap().pop();
        assert_eq!(abandoned, payload, "what was taken back is abandoned, once");
        self.model.passed_over.insert(slot, self.model.called_terms);
        self.model.call_next();
    }

    fn poll(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(&slot) else { return };
        if let Some(terms) = self.model.passed_over.remove(&slot) {
            match Pin::new(place).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(turn) => {
                    self.slots.remove(&slot);
                    self.begin(turn);
                }
                Poll::Pending => {
                    assert!(!self.model.is_free(), "a free key is had at once");
                    let place = self.model.waiting.partition_point(|(other, _)| *other < slot);
                    self.model.waiting.insert(place, (slot, terms));
                }
            }
            return;
        }
        let called = self.model.called.is_some_and(|(called, _)| called == slot);
        match Pin::new(place).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mut turn) => {
                assert!(called, "the turn of somebody else");
                let payload = turn.take_payload().map(|parcel| parcel.number);
                assert_eq!(payload, self.model.called.take().and_then(|(_, payload)| payload));
                self.slots.remove(&slot);
                self.turn = Some(turn);
                self.model.taken = true;
            }
            Poll::Pending => assert!(!called, "called, and not woken"),
        }
    }

    fn check(&self) {
        let waiters = self.gate.shard(&self.key).open.get(&self.key).map_or(0, |queue| queue.0.waiters());
        assert_eq!(waiters, self.model.waiting.len());
        let carried = usize::from(self.model.called.is_some_and(|(_, payload)| payload.is_some()));
        assert_eq!(self.alive.load(Ordering::SeqCst), carried, "payload is where it should be, once");
        assert!(self.lost.lock().unwrap().is_empty(), "abandoned without a reason");
    }

    /// Lets each remaining waiter have the turn, one after the other.
    fn finish(mut self) {
        loop {
            if self.model.is_free() {
                let Some(&asleep) = self.model.passed_over.keys().next() else { break };
                self.poll(asleep);
            }
            match (self.turn.take(), self.model.called) {
                (Some(turn), _) => {
                    drop(turn);
                    self.model.call_next();
                }
                (None, Some((slot, _))) => self.poll(slot),
                (None, None) => unreachable!("nobody has the turn"),
            }
        }
        assert!(self.slots.is_empty(), "somebody waits for ever");
        assert!(self.gate.try_enter(&self.key).is_ok(), "the queue was not closed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_waiter_gets_the_turn_in_order_once(steps in vec(step(), 1..60)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }
}

/// Runs all sequences of a few steps, so that each corner of a small gate is visited.
#[test]
fn every_short_sequence() {
    let all = [Step::Enter(0), Step::Check, Step::Poll(0), Step::Leave(0), Step::Leave(1), Step::Pass, Step::HandOn(0)];
    let mut sequences = 0;
    for code in 0..all.len().pow(5) {
        let mut pair = Pair::new();
        // Start with one turn taken and two waiters. Otherwise five steps would be too few to reach anything
        // interesting.
        for first in [Step::Enter(0), Step::Enter(0), Step::Enter(1)] {
            pair.step(first);
        }
        let mut rest = code;
        for _ in 0..5 {
            pair.step(all[rest % all.len()]);
            rest /= all.len();
        }
        pair.finish();
        sequences += 1;
    }
    println!("figure: sequences of operations on the gate: {sequences}");
}
