use std::time::Duration;

use super::Sleepers;
use lock_store::types::system::clock::Timestamp;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(0).after(Duration::from_secs(seconds))
}

/// At which looks within two minutes, one every 5 s, the connection is asked to prove that it is alive.
fn proofs(sleepers: &Sleepers) -> Vec<u64> {
    let mut proven = at(1000);
    let mut proofs = Vec::new();
    for look in (1005..1120).step_by(5) {
        if sleepers.need_proof(proven, at(look)) {
            proven = at(look);
            proofs.push(look - 1000);
        }
    }
    proofs
}

#[test]
fn a_connection_proves_that_it_is_alive_while_claims_sleep_and_seldom_while_all_sleep_long() {
    let sleepers = Sleepers::default();
    assert_eq!(proofs(&sleepers), [0; 0]);
    sleepers.note(at(1000), Duration::from_secs(90));
    assert!(sleepers.are_there(at(1089)) && !sleepers.are_there(at(1090)));
    assert_eq!(proofs(&sleepers), [30, 60]);
    sleepers.note(at(1000), Duration::from_secs(20));
    assert_eq!(proofs(&sleepers), [5, 10, 15, 45, 75]);
}
