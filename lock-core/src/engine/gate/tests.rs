use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::{Demand, Gate, Leaving, Membership, Payload, Turn, TurnCheck, Waiter};
use lock_store::types::key::LockKey;

/// A parcel that goes to the next waiter if its waiter does not take it.
#[derive(Debug, PartialEq)]
struct Parcel(u32);

/// A lock that several callers hold together.
#[derive(Debug, Default)]
struct Together {
    shut: AtomicBool,
    /// How often it was ended because no caller was left.
    ended: AtomicUsize,
}

impl Payload for Parcel {
    type Terms = char;
    type Holder = u32;
    type Shared = Arc<Together>;

    fn admits(shared: &Arc<Together>) -> bool {
        !shared.shut.load(Ordering::SeqCst)
    }

    fn end(shared: Arc<Together>, turn: Option<Turn<Self>>) {
        shared.ended.fetch_add(1, Ordering::SeqCst);
        drop(turn);
    }

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

/// The scheduled checks.
type Checks = Arc<Mutex<Vec<TurnCheck<Parcel>>>>;

fn watched_gate() -> (Arc<Gate<Parcel>>, LockKey, Checks) {
    let checks = Checks::default();
    let scheduled = Arc::clone(&checks);
    let gate = Gate::new(move |check| scheduled.lock().unwrap().push(check));
    (Arc::new(gate), LockKey::new("k").unwrap(), checks)
}

/// Runs the scheduled checks. Returns how many there were.
fn run(checks: &Checks) -> usize {
    let due = std::mem::take(&mut *checks.lock().unwrap());
    let count = due.len();
    due.into_iter().for_each(TurnCheck::run);
    count
}

fn is_empty(gate: &Gate<Parcel>) -> bool {
    gate.shards.iter().all(|shard| shard.lock().open.is_empty())
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
    let (gate, key, checks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut asleep = gate.enter(&key, 'a').unwrap_err();
    let mut awake = gate.enter(&key, 'a').unwrap_err();
    let mut last = gate.enter(&key, 'a').unwrap_err();
    assert!(poll(&mut asleep).is_pending());
    turn.hand_on(Parcel(1), |_| true).unwrap();
    assert_eq!(run(&checks), 1);
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
    let (gate, key, checks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut asleep = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    assert_eq!(run(&checks), 1);
    assert!(is_empty(&gate));
    let newcomer = gate.try_enter(&key).unwrap();
    assert!(poll(&mut asleep).is_pending(), "somebody else has the turn now");
    drop(newcomer);
    let Poll::Ready(turn) = poll(&mut asleep) else { panic!("called") };
    drop(turn);
    assert!(is_empty(&gate));
}

#[test]
fn whoever_was_called_since_the_last_check_has_until_the_next() {
    let (gate, key, checks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut first = gate.enter(&key, 'a').unwrap_err();
    let mut second = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    let Poll::Ready(turn) = poll(&mut first) else { panic!("called") };
    drop(turn);
    assert_eq!(run(&checks), 1, "one check serves many calls");
    let Poll::Ready(turn) = poll(&mut second) else { panic!("called only just now") };
    assert_eq!(run(&checks), 1);
    assert_eq!(run(&checks), 0, "nobody is called, so nobody is watched");
    drop(turn);
    assert!(is_empty(&gate));
}

#[test]
fn a_waiter_that_was_passed_over_may_leave() {
    let (gate, key, checks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let asleep = gate.enter(&key, 'a').unwrap_err();
    drop(turn);
    run(&checks);
    drop(asleep);
    assert!(is_empty(&gate));
    assert!(gate.try_enter(&key).is_ok());
}

const READ: Demand<char> = Demand { terms: 'r', turns: 1 };

fn join(gate: &Arc<Gate<Parcel>>, key: &LockKey) -> Membership<Parcel> {
    gate.enter_shared(key, READ, true).unwrap().take_membership().expect("the group is open")
}

fn take(slot: &mut Waiting) -> Turn<Parcel> {
    let Poll::Ready(turn) = poll(slot) else { panic!("it was not called") };
    turn
}

#[test]
fn a_grant_lets_all_who_wait_in_and_whoever_comes_joins() {
    let (gate, key) = gate();
    let together = Arc::new(Together::default());
    let turn = gate.enter_shared(&key, READ, true).unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| gate.enter_shared(&key, READ, true).unwrap_err()).collect();
    let first = Membership::open(turn, Arc::clone(&together));
    let guests: Vec<_> = waiting.iter_mut().map(|slot| take(slot).take_membership().unwrap()).collect();
    let late = join(&gate, &key);
    assert!(matches!(first.leave(), Leaving::ToOthers), "others are still inside");
    drop(guests);
    let Leaving::Last(Some(turn)) = late.leave() else { panic!("the last, while the group is open") };
    drop(turn);
    assert_eq!(together.ended.load(Ordering::SeqCst), 0, "whoever leaves last ends it himself");
    assert!(is_empty(&gate));
}

#[test]
fn a_group_that_closes_gives_its_turn_to_the_next() {
    let (gate, key) = gate();
    let together = Arc::new(Together::default());
    let old = Membership::open(gate.enter_shared(&key, READ, true).unwrap(), Arc::clone(&together));
    together.shut.store(true, Ordering::SeqCst);
    let mut turn = gate.enter_shared(&key, READ, true).unwrap();
    assert!(turn.take_membership().is_none(), "it must ask the store");
    let mut behind = gate.enter_shared(&key, READ, true).unwrap_err();
    assert!(poll(&mut behind).is_pending(), "one of them asks");
    let fresh = Membership::open(turn, Arc::new(Together::default()));
    let second = take(&mut behind).take_membership().unwrap();
    assert!(matches!(old.leave(), Leaving::Last(None)), "without the turn, which the new ones have");
    drop((second, fresh));
    assert!(is_empty(&gate));
}

#[test]
fn a_guest_that_does_not_come_leaves_and_the_last_of_them_ends_what_they_held() {
    let (gate, key, checks) = watched_gate();
    let together = Arc::new(Together::default());
    let turn = gate.enter_shared(&key, READ, true).unwrap();
    let mut asleep = gate.enter_shared(&key, READ, true).unwrap_err();
    assert!(poll(&mut asleep).is_pending());
    let first = Membership::open(turn, Arc::clone(&together));
    assert!(matches!(first.leave(), Leaving::ToOthers), "the guest counts");
    assert_eq!(run(&checks), 1);
    assert_eq!(together.ended.load(Ordering::SeqCst), 1);
    assert!(is_empty(&gate));
    assert!(take(&mut asleep).take_membership().is_none(), "it comes late, and asks the store");
}

#[test]
fn as_many_have_a_turn_as_fit_and_others_wait_in_order() {
    let (gate, key) = gate();
    let permits = Demand { terms: 'p', turns: 2 };
    let one = gate.enter_shared(&key, permits, true).unwrap();
    let two = gate.enter_shared(&key, permits, true).unwrap();
    let mut three = gate.enter_shared(&key, permits, true).unwrap_err();
    let mut four = gate.enter_shared(&key, permits, true).unwrap_err();
    drop(gate.enter_shared(&key, permits, false).unwrap());
    drop(gate.enter_shared(&key, READ, true).unwrap());
    assert!(poll(&mut three).is_pending() && poll(&mut four).is_pending(), "a turn outside is none of theirs");
    drop(one);
    let three = take(&mut three);
    assert!(poll(&mut four).is_pending());
    drop(two);
    drop((take(&mut four), three));
    assert!(is_empty(&gate));
}

#[test]
fn every_turn_that_nobody_takes_is_taken_back() {
    let (gate, key, checks) = watched_gate();
    let permits = Demand { terms: 'p', turns: 2 };
    let turns = [(); 2].map(|()| gate.enter_shared(&key, permits, true).unwrap());
    let mut asleep = [(); 2].map(|()| gate.enter_shared(&key, permits, true).unwrap_err());
    let mut awake = gate.enter_shared(&key, permits, true).unwrap_err();
    assert!(asleep.iter_mut().all(|slot| poll(slot).is_pending()) && poll(&mut awake).is_pending());
    drop(turns);
    run(&checks);
    assert!(poll(&mut awake).is_ready(), "both who sleep are passed over");
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_check_wakes_whoever_came_since_it_was_scheduled_once() {
    let (gate, key, checks) = watched_gate();
    let turn = gate.enter(&key, 'a').unwrap();
    let mut first = gate.enter(&key, 'a').unwrap_err();
    assert!(!first.take_relies(), "no check is scheduled, so it sets an alarm");
    drop(turn);
    let Poll::Ready(turn) = poll(&mut first) else { panic!("called") };
    let mut second = gate.enter(&key, 'a').unwrap_err();
    assert!(second.take_relies() && !second.take_relies());
    assert_eq!(run(&checks), 1);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(std::pin::Pin::new(&mut second).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(run(&checks), 1, "it had no waker before, so it relies on the next check");
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(run(&checks), 0, "an idle queue costs no timer");
    drop(turn);
    assert!(poll(&mut second).is_ready());
}
