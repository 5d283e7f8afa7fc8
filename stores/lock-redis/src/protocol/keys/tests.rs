use std::collections::HashSet;

use super::Keys;
use lock_store::types::error::LockErrorKind;
use lock_store::types::key::LockKey;

/// The part of a key that Redis Cluster hashes, written from its specification.
fn hashed(key: &str) -> &str {
    let Some(open) = key.find('{') else { return key };
    match key[open + 1..].find('}') {
        Some(0) | None => key,
        Some(length) => &key[open + 1..open + 1 + length],
    }
}

fn companions(key: &str) -> Vec<String> {
    let key = LockKey::new(key).unwrap();
    Keys::of(&key).unwrap().all()[1..].iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn names_are_as_documented() {
    assert_eq!(companions("a"), ["{a}@queue", "{a}@waiters"]);
    assert_eq!(companions("a{b}"), ["a{b}:@queue", "a{b}:@waiters"]);
}

#[test]
fn a_companion_shares_the_slot() {
    for key in ["a", "lock:user:42", "lock:{user:42}", "{a}", "{a}:b{c}", "x{y", "é:ü"] {
        for companion in companions(key) {
            if key == "x{y" {
                continue; // An opening brace that is never closed cannot be put into a tag.
            }
            assert_eq!(hashed(&companion), hashed(key), "{key} {companion}");
        }
    }
}

#[test]
fn companions_never_collide() {
    let keys = ["a", "{a}", "{{a}}", "a:", "{a}:", "a}", "{a", "x{a}", "{}a", "a{}", "{}", "{{}a}", "{a}b"];
    let names: HashSet<_> = keys.iter().flat_map(|key| companions(key)).collect();
    assert_eq!(names.len(), 2 * keys.len());
    assert!(keys.iter().all(|key| !names.contains(*key)));
}

#[test]
fn names_of_companions_are_refused() {
    for bad in ["a:@queue", "{a}@queue", "{a}@waiters", ":@queue", "{a}@fence", "{a}@job"] {
        let key = LockKey::new(bad).unwrap();
        let error = Keys::of(&key).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{bad}");
        assert!(error.to_string().contains("choose another ending"), "{error}");
    }
    for good in ["queue", "a:queue", "user@queue", "a:@queue:b", "a:@queues", "distributed-lock:clocks"] {
        assert!(Keys::of(&LockKey::new(good).unwrap()).is_ok(), "{good}");
    }
}

#[test]
fn clocks_are_refused_and_lie_in_the_slot_of_their_locks() {
    for bad in [super::CLOCK, "distributed-lock:clock:{17}", super::BIRTH, super::MEMBERS] {
        let error = Keys::of(&LockKey::new(bad).unwrap()).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{bad}");
    }
    // From the specification of Redis Cluster.
    assert_eq!(super::slot(b"123456789"), 0x31C3);
    for key in ["a", "lock:user:42", "lock:{user:42}", "{a}:b{c}", "\u{e9}:\u{fc}"] {
        let clock = super::clock_of(&LockKey::new(key).unwrap());
        assert_eq!(super::slot(hashed(&clock).as_bytes()), super::slot(hashed(key).as_bytes()), "{key} {clock}");
        // And the inbox of the slot, whose name ends like that of the clock.
        let of_it = super::slot(hashed(key).as_bytes());
        let inbox = super::inbox_of_slot("1f", of_it);
        assert_eq!(inbox.strip_prefix(&super::inbox_channel("1f")), clock.strip_prefix(super::CLOCK));
        assert_eq!(super::slot_of_inbox(inbox.as_bytes()), Some(of_it));
    }
    assert_eq!(super::slot_of_inbox(super::REVOKED.as_bytes()), None);
}

#[cfg(feature = "inspect")]
#[test]
fn the_record_of_a_job_names_its_lock() {
    for key in ["a", "a{b}", "{a}", "a:", "{}a", "x}y", "x{y", "{{a}}"] {
        let record = Keys::of(&LockKey::new(key).unwrap()).unwrap().job();
        assert_eq!(super::lock_of_job(&record), Some(key), "{record}");
        assert!(super::is_reserved(&record));
    }
    for other in ["a", "{a}@queue", "a@job", "a:@job", "job", "{a}@jobs"] {
        assert_eq!(super::lock_of_job(other), None, "{other}");
    }
}

#[test]
fn the_companion_of_a_good_key_is_itself_refused() {
    for good in ["a", "{a}", "a{b}c", "}{", "{}"] {
        for name in companions(good) {
            let key = LockKey::new(name).unwrap();
            assert!(Keys::of(&key).is_err(), "{key}");
        }
    }
}
