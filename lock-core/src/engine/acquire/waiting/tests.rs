use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lock_testing::limit;

use super::turn_to_look;
use lock_store::types::system::clock::Timestamp;

#[test]
#[limit]
fn a_process_looks_at_most_a_hundred_times_a_second() {
    let (next, start) = (AtomicU64::new(0), Timestamp::from_nanos(1 << 60));
    let asked = (0..3_000u64).map(|millis| start.after(Duration::from_millis(millis)));
    let turns: Vec<Timestamp> = asked.filter_map(|now| turn_to_look(&next, now)).collect();
    let busiest = turns
        .iter()
        .map(|from| turns.iter().filter(|at| *at >= from && at.since(*from) < Duration::from_secs(1)).count());
    assert!((90..=100).contains(&busiest.max().unwrap()), "{}", turns.len());
    // A backlog is at most a second long, so a wait that comes later looks in time.
    let late = start.after(Duration::from_secs(4));
    assert!(turn_to_look(&next, late).unwrap().since(late) < Duration::from_secs(1));
}
