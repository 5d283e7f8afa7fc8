use std::time::Duration;

use lock_testing::limit;

use super::{APART, LATER};
use lock_store::types::system::clock::Clock;

#[tokio::test(start_paused = true)]
#[limit]
async fn the_turns_of_a_process_are_apart_and_none_is_later_than_the_next_message() {
    let clock = Clock::of_current_runtime();
    let begun = clock.now();
    let turns: Vec<_> = std::iter::from_fn(|| clock.reserve_turn(APART, LATER)).collect();
    assert_eq!(turns.first(), Some(&begun));
    assert!(turns.windows(2).all(|pair| pair[1].since(pair[0]) == APART));
    assert_eq!(turns.last().map(|last| last.since(begun)), Some(LATER));
    // A wait that comes when all of them are over looks at once.
    tokio::time::advance(LATER + APART).await;
    assert_eq!(clock.reserve_turn(APART, LATER), Some(clock.now()));
}

/// Every manager of a process has a clock of its own, and the turns are one queue for all of them.
#[test]
#[limit]
fn managers_of_one_process_share_their_turns() {
    let (one, other) = (Clock::system(), Clock::system());
    let within = Duration::from_secs(3_600);
    let mut turns: Vec<_> =
        [&one, &other].iter().cycle().take(10).flat_map(|clock| clock.reserve_turn(APART, within)).collect();
    turns.sort_unstable();
    assert!(turns.len() == 10 && turns.windows(2).all(|pair| pair[1].since(pair[0]) >= APART), "{turns:?}");
}
