//! The names of Redis keys. No other file spells one.
//!
//! The lock itself lies at exactly the key the user wrote, so that clients of the classic protocol
//! exclude us and we them. What else a lock needs lies beside it, under names that hash to the same
//! cluster slot:
//!
//! | user's key | fence | queue | waiters |
//! |---|---|---|---|
//! | `lock:user:42` | `{lock:user:42}@fence` | `{lock:user:42}@queue` | `{lock:user:42}@waiters` |
//! | `lock:{user:42}` | `lock:{user:42}:@fence` | `lock:{user:42}:@queue` | `lock:{user:42}:@waiters` |
//!
//! The two forms end differently, because otherwise the locks `a` and `{a}` would share a fence. A
//! pattern of an ACL must therefore allow `~lock:*` and `~{lock:*`.

use crate::error::{LockError, Result};
use crate::key::LockKey;

/// What companion names end in.
const COMPANIONS: [&str; 3] = ["fence", "queue", "waiters"];

/// What the names of channels begin with.
pub(super) const INBOX: &str = "distributed-lock:inbox:";

/// The channel on which every process hears which locks an operator took away.
pub(super) const REVOKED: &str = "distributed-lock:inbox:revoked";

/// Names the channel on which a process hears of its grants.
pub(super) fn inbox_channel(id: &str) -> String {
    format!("{INBOX}{id}")
}

/// The Redis keys of one lock.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    /// The lock: the user's key.
    pub(super) lock: &'a str,
    /// The names of the companions, one behind the other.
    companions: String,
    /// Where each of them ends.
    ends: [usize; COMPANIONS.len()],
}

impl<'a> Keys<'a> {
    /// Names the keys of one lock.
    pub(super) fn of(key: &'a LockKey) -> Result<Self> {
        let lock = key.as_str();
        if let Some(name) = COMPANIONS.into_iter().find(|name| is_companion(lock, name)) {
            return Err(LockError::invalid_key(format!(
                "names that end in \":@{name}\" or \"}}@{name}\" are where the data of other locks lies; \
                 choose another ending",
            )));
        }
        let [open, close] = if has_hash_tag(lock) { ["", ":@"] } else { ["{", "}@"] };
        let mut companions = String::with_capacity(COMPANIONS.len() * (lock.len() + 10));
        let ends = COMPANIONS.map(|name| {
            [open, lock, close, name].into_iter().for_each(|part| companions.push_str(part));
            companions.len()
        });
        Ok(Self { lock, companions, ends })
    }

    /// Lists the keys in the order in which the scripts of the queue expect them: the lock, the last
    /// token given, the claims that wait, what a grant needs to know of each of them.
    pub(super) fn all(&self) -> [&str; 4] {
        let [fence, queue, waiters] = self.ends;
        let names = &self.companions;
        [self.lock, &names[..fence], &names[fence..queue], &names[queue..waiters]]
    }
}

/// Returns whether data of another lock lies at this key, so that no lock can.
pub(super) fn is_reserved(key: &str) -> bool {
    COMPANIONS.into_iter().any(|name| is_companion(key, name))
}

fn is_companion(key: &str, name: &str) -> bool {
    key.strip_suffix(name).is_some_and(|rest| rest.ends_with(":@") || rest.ends_with("}@"))
}

/// Returns whether Redis Cluster hashes only a part of this key: what stands between its first `{`
/// and the next `}`, unless that is nothing.
fn has_hash_tag(key: &str) -> bool {
    key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Keys;
    use crate::error::LockErrorKind;
    use crate::key::LockKey;

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
        assert_eq!(companions("a"), ["{a}@fence", "{a}@queue", "{a}@waiters"]);
        assert_eq!(companions("a{b}"), ["a{b}:@fence", "a{b}:@queue", "a{b}:@waiters"]);
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
        assert_eq!(names.len(), 3 * keys.len());
        assert!(keys.iter().all(|key| !names.contains(*key)));
    }

    #[test]
    fn names_of_companions_are_refused() {
        for bad in ["a:@fence", "{a}@fence", "a:@queue", "{a}@queue", "{a}@waiters", ":@fence"] {
            let key = LockKey::new(bad).unwrap();
            let error = Keys::of(&key).unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{bad}");
            assert!(error.to_string().contains("choose another ending"), "{error}");
        }
        for good in ["fence", "a:fence", "user@fence", "a:@fence:b", "a:@fences"] {
            assert!(Keys::of(&LockKey::new(good).unwrap()).is_ok(), "{good}");
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
}
