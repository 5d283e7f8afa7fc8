use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::{Gate, Look, Payload, Turn, Waiter};
use crate::key::LockKey;

/// A parcel that, if nobody takes it, goes to the next.
#[derive(Debug, PartialEq)]
struct Parcel(u32);

impl Payload for Parcel {
    type Terms = char;
    type Holder = u32;

    fn reclaim(self, turn: Turn<Self>) {
        let _ = turn.hand_on(self, |_| true);
    }
}

type Waiting = Waiter<Parcel>;

fn poll(slot: &mut Waiting) -> Poll<Turn<Parcel>> {
    std::pin::Pin::new(slot).poll(&mut Context::from_waker(Waker::noop()))
}

fn gate() -> (Arc<Gate<Parcel>>, LockKey) {
    (Arc::new(Gate::new(drop)), LockKey::new("k").unwrap())
}

/// The looks that are scheduled.
type Looks = Arc<Mutex<Vec<Look<Parcel>>>>;

fn watched_gate() -> (Arc<Gate<Parcel>>, LockKey, Looks) {
    let looks = Looks::default();
    let scheduled = Arc::clone(&looks);
    let gate = Gate::new(move |look| scheduled.lock().unwrap().push(look));
    (Arc::new(gate), LockKey::new("k").unwrap(), looks)
}

/// Runs what is scheduled, and returns how many looks that were.
fn look(looks: &Looks) -> usize {
    let due = std::mem::take(&mut *looks.lock().unwrap());
    let count = due.len();
    due.into_iter().for_each(Look::run);
    count
}

fn is_empty(gate: &Gate<Parcel>) -> bool {
    gate.shards.iter().all(|shard| shard.lock().unwrap().open.is_empty())
}

#[test]
fn first_in_first_out() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut second = gate.enter(&key, 'a').unwrap_err();
    let mut third = gate.enter(&key, 'a').unwrap_err();
    assert_eq!(turn.waiters(), 2);
    assert!(poll(&mut second).is_pending());
    drop(turn);
    assert!(poll(&mut third).is_pending());
    let Poll::Ready(turn) = poll(&mut second) else { panic!("second has the turn") };
    drop(turn);
    assert!(poll(&mut third).is_ready());
}

#[test]
fn a_waiter_that_has_left_is_skipped_even_if_it_was_just_called() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let left = gate.enter(&key, 'a').unwrap_err();
    let called = gate.enter(&key, 'a').unwrap_err();
    let mut last = gate.enter(&key, 'a').unwrap_err();
    drop(left);
    drop(turn);
    drop(called);
    assert!(poll(&mut last).is_ready());
}

#[test]
fn a_queue_closes_behind_its_last_waiter() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    turn.set_holder(7);
    assert_eq!(gate.try_enter(&key).unwrap_err(), Some(7));
    drop(turn);
    assert!(is_empty(&gate));
    assert!(gate.try_enter(&key).is_ok());
    assert!(is_empty(&gate));
}

#[test]
fn a_payload_goes_to_the_first_only_if_it_fits() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut first = gate.enter(&key, 'b').unwrap_err();
    let (turn, parcel) = turn.hand_on(Parcel(1), |terms| terms == 'a').unwrap_err();
    assert_eq!(parcel, Parcel(1));
    assert!(poll(&mut first).is_pending(), "a payload that does not fit leaves the waiter in its place");
    turn.hand_on(parcel, |terms| terms == 'b').unwrap();
    let Poll::Ready(mut turn) = poll(&mut first) else { panic!("called") };
    assert_eq!(turn.take_payload(), Some(Parcel(1)));
}

#[test]
fn a_payload_that_is_not_taken_goes_to_the_next() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let first = gate.enter(&key, 'a').unwrap_err();
    let mut second = gate.enter(&key, 'a').unwrap_err();
    turn.hand_on(Parcel(1), |_| true).unwrap();
    drop(first);
    let Poll::Ready(mut turn) = poll(&mut second) else { panic!("called") };
    assert_eq!(turn.take_payload(), Some(Parcel(1)));
    drop(turn);
    assert!(is_empty(&gate));
}

#[test]
fn many_that_leave_are_swept() {
    let (gate, key) = gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut slots: Vec<Waiting> = (0..1000).map(|_| gate.enter(&key, 'a').unwrap_err()).collect();
    let mut last = slots.pop().unwrap();
    drop(slots);
    assert_eq!(turn.waiters(), 1);
    assert!(turn.queue.state().waiting.len() < 10);
    drop(turn);
    assert!(poll(&mut last).is_ready());
}

#[test]
fn a_turn_that_is_not_taken_goes_to_the_next_and_its_waiter_keeps_the_place() {
    let (gate, key, looks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut asleep = gate.enter(&key, 'a').unwrap_err();
    let mut awake = gate.enter(&key, 'a').unwrap_err();
    let mut last = gate.enter(&key, 'a').unwrap_err();
    assert!(poll(&mut asleep).is_pending());
    turn.hand_on(Parcel(1), |_| true).unwrap();
    assert_eq!(look(&looks), 1);
    let Poll::Ready(mut turn) = poll(&mut awake) else { panic!("the turn was taken back") };
    assert_eq!(turn.take_payload(), Some(Parcel(1)));
    assert!(poll(&mut asleep).is_pending(), "polled, so it waits again");
    assert_eq!(turn.waiters(), 2);
    drop(turn);
    assert!(poll(&mut last).is_pending(), "it is still behind the one that slept");
    assert!(poll(&mut asleep).is_ready());
}

#[test]
fn a_turn_that_nobody_takes_closes_the_queue_until_its_waiter_is_polled() {
    let (gate, key, looks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut asleep = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    assert_eq!(look(&looks), 1);
    assert!(is_empty(&gate));
    let newcomer = gate.try_enter(&key).unwrap();
    assert!(poll(&mut asleep).is_pending(), "somebody else has the turn now");
    drop(newcomer);
    let Poll::Ready(turn) = poll(&mut asleep) else { panic!("called") };
    drop(turn);
    assert!(is_empty(&gate));
}

#[test]
fn whoever_was_called_since_the_last_look_has_until_the_next() {
    let (gate, key, looks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut first = gate.enter(&key, 'a').unwrap_err();
    let mut second = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    let Poll::Ready(turn) = poll(&mut first) else { panic!("called") };
    drop(turn);
    assert_eq!(look(&looks), 1, "one look serves many calls");
    let Poll::Ready(turn) = poll(&mut second) else { panic!("called only just now") };
    assert_eq!(look(&looks), 1);
    assert_eq!(look(&looks), 0, "nobody is called, so nobody is watched");
    drop(turn);
    assert!(is_empty(&gate));
}

#[test]
fn a_waiter_that_was_passed_over_may_leave() {
    let (gate, key, looks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let asleep = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    look(&looks);
    drop(asleep);
    assert!(is_empty(&gate));
    assert!(gate.try_enter(&key).is_ok());
}
