use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{AlarmId, SLOTS, TICK, Wheel, start_of};
use lock_store::types::system::clock::Timestamp;

const MS: u64 = 1_000_000;

/// How many renewals one command carries in these tests.
const BATCH: usize = 50;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * MS)
}

/// Visits the wheel whenever it asks for it, and notes when each alarm rang.
fn run(wheel: &mut Wheel<u32>, until: Timestamp) -> Vec<(Timestamp, u32)> {
    let mut rung = Vec::new();
    loop {
        let now = wheel.next_look();
        if now > until {
            return rung;
        }
        rung.extend(wheel.take_due(now).into_iter().map(|item| (now, item)));
    }
}

#[test]
fn each_alarm_rings_at_its_very_moment() {
    let mut wheel = Wheel::new(at(0), BATCH);
    let moments = [at(1), Timestamp::from_nanos(33 * MS + 7), at(20), at(10_000), at(3_600_000)];
    for (number, moment) in (0..).zip(moments) {
        wheel.insert(moment, number, false);
    }
    assert_eq!(
        run(&mut wheel, at(7_200_000)),
        [(moments[0], 0), (moments[2], 2), (moments[1], 1), (moments[3], 3), (moments[4], 4)]
    );
    assert_eq!((wheel.len(), wheel.next_look()), (0, Timestamp::NEVER));
}

#[test]
fn nothing_is_missed_after_a_long_pause() {
    let mut wheel = Wheel::new(at(0), BATCH);
    for number in 0..10_000_u32 {
        wheel.insert(at(u64::from(number) * 10), number, false);
    }
    let mut due = wheel.take_due(at(60_000));
    due.sort_unstable();
    assert_eq!(due, (0..=6000).collect::<Vec<_>>());
    assert_eq!(wheel.len(), 3999);
}

#[test]
fn a_ticket_cancels_its_own_alarm_only() {
    let mut wheel = Wheel::new(at(0), BATCH);
    let (first, _) = wheel.insert(at(100), 1, false);
    assert_eq!(wheel.remove(first), Some(1));
    // This alarm reuses the place.
    let (second, _) = wheel.insert(at(200), 2, false);
    assert_eq!((first.index, wheel.remove(first)), (second.index, None));
    assert_eq!(run(&mut wheel, at(1000)), [(at(200), 2)]);
    assert_eq!(wheel.remove(second), None);
}

/// Plans a renewal and counts it.
fn renew(wheel: &mut Wheel<u32>, due: Timestamp, early: Duration) -> Timestamp {
    let chosen = wheel.choose(due, early);
    assert!(chosen <= due && chosen >= due.before(early.max(TICK)), "{chosen:?} for {due:?}");
    wheel.insert(chosen, 0, true);
    chosen
}

#[test]
fn renewals_leave_in_full_batches_and_never_all_at_once() {
    let mut wheel = Wheel::new(at(0), BATCH);
    let mut counts = BTreeMap::new();
    // All were granted at the same time, so only the choice spreads them.
    for _ in 0..10_000 {
        *counts.entry(renew(&mut wheel, at(10_000), Duration::from_millis(500))).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count % BATCH == 0), "{counts:?}");
    assert!(counts.len() >= 20 && counts.values().all(|count| *count <= 10 * BATCH), "{counts:?}");
}

#[test]
fn a_few_renewals_share_a_batch() {
    let mut wheel = Wheel::new(at(0), BATCH);
    let moments: Vec<Timestamp> =
        (0..20).map(|number| renew(&mut wheel, at(10_000 + number * 20), Duration::from_millis(500))).collect();
    assert!(moments.iter().all(|moment| *moment == moments[0]), "{moments:?}");
}

#[test]
fn what_is_due_at_once_is_not_put_off() {
    let mut wheel = Wheel::<u32>::new(at(0), BATCH);
    wheel.take_due(at(1000));
    assert_eq!(wheel.choose(at(1005), Duration::from_secs(1)), at(1005));
    assert_eq!(wheel.choose(at(900), Duration::ZERO), at(900));
}

#[derive(Clone, Debug)]
enum Step {
    Set(u64, bool),
    Cancel(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let far = start_of(SLOTS).as_nanos() / MS;
    prop_oneof![
        4 => (0..2_000_u64, any::<bool>()).prop_map(|(after, renewal)| Step::Set(after, renewal)),
        1 => (0..3 * far).prop_map(|after| Step::Set(after, false)),
        3 => any::<usize>().prop_map(Step::Cancel),
        3 => (0..300_u64).prop_map(Step::Wait),
        1 => (0..2 * far).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the wheel with a list, which is simple enough to be right.
    #[test]
    fn rings_what_a_sorted_list_would(steps in vec(step(), 1..120)) {
        let mut wheel = Wheel::new(at(5), BATCH);
        let mut list: Vec<(Timestamp, u32, AlarmId)> = Vec::new();
        let (mut now, mut next) = (at(5), 0);
        for step in steps {
            match step {
                Step::Set(after, renewal) => {
                    let moment = now.after(Duration::from_millis(after));
                    let (id, look) = wheel.insert(moment, next, renewal);
                    prop_assert!(look <= moment);
                    list.push((moment, next, id));
                    next += 1;
                }
                Step::Cancel(which) if !list.is_empty() => {
                    let (_, number, id) = list.swap_remove(which % list.len());
                    prop_assert_eq!(wheel.remove(id), Some(number));
                }
                Step::Cancel(_) => {}
                Step::Wait(by) => {
                    now = now.after(Duration::from_millis(by));
                    let mut due = wheel.take_due(now);
                    due.sort_unstable();
                    let mut expected: Vec<u32> =
                        list.iter().filter(|(moment, ..)| *moment <= now).map(|(_, number, _)| *number).collect();
                    expected.sort_unstable();
                    list.retain(|(moment, ..)| *moment > now);
                    prop_assert_eq!(due, expected);
                }
            }
            prop_assert_eq!(wheel.len(), list.len());
            let soonest = list.iter().map(|(moment, ..)| *moment).min();
            prop_assert!(soonest.is_none_or(|soonest| wheel.next_look() <= soonest));
        }
    }
}
