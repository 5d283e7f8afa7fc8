use crate::protocol::keys::Keys;
use crate::protocol::keys::hash_slot::slot_of_name;
use lock_store::contract::backend::JobVersion;
use lock_store::types::key::LockKey;

fn mark_of(key: &str, version: &str) -> String {
    Keys::of(&LockKey::new(key).unwrap()).unwrap().done(&JobVersion::new(version).unwrap())
}

#[cfg(feature = "inspect")]
#[test]
fn the_name_of_a_mark_names_its_lock_and_version() {
    use std::collections::HashSet;

    use super::lock_of_mark;
    use crate::protocol::keys::is_reserved;
    use lock_store::types::error::LockErrorKind;

    let mut names = HashSet::new();
    for key in ["a", "a{b}", "{a}", "a:", "{}a", "x}y", "x{y", "{{a}}", "x}"] {
        for version in ["v", "1.2.3+b", "é", "a}@done:b", "a:@done:b", "x}@job", "x:@queue", ":", "}@", "done:"] {
            let mark = mark_of(key, version);
            assert_eq!(lock_of_mark(&mark), Some((key, version)), "{mark}");
            assert!(is_reserved(&mark) && names.insert(mark.clone()), "{mark}");
            // No lock can be there, nor one that has a companion there.
            let error = Keys::of(&LockKey::new(&mark).unwrap()).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{mark}");
            assert!(error.to_string().contains("choose another"), "{error}");
        }
    }
    for other in ["a", "a@done:v", "done:v", "{a}@done", "a:@dones:v", "{a}@job", "a:@done:v"] {
        assert_eq!(lock_of_mark(other), None, "{other}");
    }
}

#[test]
fn a_mark_shares_the_slot_of_its_lock() {
    for key in ["a", "lock:user:42", "lock:{user:42}", "{a}:b{c}", "é:ü"] {
        for version in ["v", "{b}", "}", "a}@done:{b}"] {
            let mark = mark_of(key, version);
            assert_eq!(slot_of_name(&mark), slot_of_name(key), "{mark}");
        }
    }
}
