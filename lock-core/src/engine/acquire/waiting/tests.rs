use std::time::Duration;

use lock_testing::limit;

use super::APART;
use lock_store::types::system::clock::{Clock, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
#[limit]
async fn a_process_looks_at_most_a_hundred_times_a_second() {
    let (clock, mut turns) = (Clock::of_current_runtime(), Vec::<Timestamp>::new());
    for _ in 0..3_000 {
        turns.extend(clock.take_turn(APART).then(|| clock.now()));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let busiest = turns.iter().map(|from| turns.iter().filter(|at| *at >= from && at.since(*from) < SECOND).count());
    assert!((90..=100).contains(&busiest.max().unwrap()), "{}", turns.len());
    // A wait that comes later looks at once.
    tokio::time::advance(SECOND).await;
    assert!(clock.take_turn(APART));
}

/// Every manager of a process has a clock of its own, and the limit is one for all of them.
#[test]
#[limit]
fn managers_of_one_process_share_the_limit() {
    let (one, other) = (Clock::system(), Clock::system());
    let (begun, mut turns) = (one.now(), 0_u32);
    while one.now().since(begun) < SECOND / 10 {
        turns += u32::from(one.take_turn(APART)) + u32::from(other.take_turn(APART));
    }
    assert!(turns <= 1 + u32::try_from(one.now().since(begun).as_millis() / 10).unwrap(), "{turns}");
}
