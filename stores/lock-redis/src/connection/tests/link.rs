use std::time::Duration;

use super::{ClientId, ServerTime};
use lock_store::types::system::clock::Timestamp;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn the_estimate_is_never_late() {
    let time = ServerTime::new(1_000_000_000, at(5));
    let deadline = |now| time.deadline(at(now), Duration::from_secs(1));
    assert_eq!(deadline(5), 1_001_000_000);
    assert_eq!(deadline(8), 1_004_000_000);
    // An answer that took two seconds to come is looser, and ignored.
    time.observe(1_002_000_000, at(9));
    assert_eq!(deadline(9), 1_005_000_000);
    // A tighter one is taken.
    time.observe(1_006_000_000, at(10));
    assert_eq!(deadline(10), 1_007_000_000);
    // After a while every reading is better than an old one.
    time.observe(900_000_000, at(21));
    assert_eq!(deadline(21), 901_000_000);
}

#[test]
fn deadlines_saturate() {
    let time = ServerTime::new(u64::MAX - 1, at(0));
    assert_eq!(time.deadline(at(100), Duration::MAX), u64::MAX);
}

#[test]
fn connections_are_recognised() {
    let info = "id=7 addr=127.0.0.1:50412 laddr=127.0.0.1:6379 fd=8 name= db=0";
    assert_eq!(ClientId::read(info), Some(ClientId { id: 7, address: "127.0.0.1:50412".to_owned() }));
    for bad in ["", "id=x addr=a", "laddr=127.0.0.1:6379 id=7"] {
        assert_eq!(ClientId::read(bad), None, "{bad}");
    }
}
