use std::time::Duration;

use super::{AT_MOST, Repeats};
use lock_store::contract::backend::{Claim, Release};
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Clock;

#[test]
fn only_what_a_lease_may_still_keep_is_remembered() {
    let repeats = Repeats::default();
    let release = |key: &str, ttl| Release::new(Claim::new(LockKey::new(key).unwrap(), ttl));
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
    repeats.note(&release("short", short));
    repeats.note(&release("long", long));
    let mut kept = release("kept", long);
    kept.keep_for = short;
    repeats.note(&kept);
    let later = Clock::system().now().after(Duration::from_secs(2));
    let keys = |claims: Vec<Claim>| claims.iter().map(|claim| claim.key.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(repeats.live(later)), ["long"]);
    for _ in 0..AT_MOST + 10 {
        repeats.note(&release("many", long));
    }
    assert_eq!(repeats.live(later).len(), AT_MOST);
    // After each failover.
    assert_eq!(repeats.live(later).len(), AT_MOST);
    repeats.switch_off();
    repeats.note(&release("of a member", long));
    assert_eq!(repeats.live(later).len(), 0);
}
