//! The names of keys, channels and fields. No other file spells one.
//!
//! Redisson puts a word before the name of a lock, and braces around the name unless it has some: both then lie in one slot
//! of a cluster.

use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

/// Where an unlock remembers that it was done.
const LATCH: &str = "redisson_unlock_latch";

/// The numbers of threads in fields of this library. Java counts threads from 1.
const CLAIM: &str = "0";
const KEPT: &str = "-1";

/// Refuses a name with which the keys of a lock would lie in different slots, and names of other data.
pub(crate) fn check(lock: &LockKey) -> Result<()> {
    let name = lock.as_str();
    if name.contains(['{', '}']) && !has_tag(name) {
        return Err(LockError::invalid_key(
            "with layout=redisson a { or } may only enclose a part that is not empty, as in order:{42}, because Redisson keeps \
             the lock and what belongs to it in one slot of a cluster; remove it",
        )
        .with_key(lock));
    }
    if name.starts_with(LATCH) || name.starts_with("distributed-lock:") {
        return Err(LockError::invalid_key("other data lies at such names; choose another name").with_key(lock));
    }
    Ok(())
}

/// Returns whether a part of the name alone decides about its slot.
fn has_tag(name: &str) -> bool {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

fn behind(word: &str, lock: &LockKey) -> String {
    let name = lock.as_str();
    if name.contains('{') { format!("{word}:{name}") } else { format!("{word}:{{{name}}}") }
}

/// Names the channel on which releases are published.
pub(crate) fn channel(lock: &LockKey) -> String {
    behind("redisson_lock__channel", lock)
}

/// Names the key at which one unlock remembers that it was done.
pub(crate) fn latch(lock: &LockKey, request: OwnerId) -> String {
    format!("{}:{}", behind(LATCH, lock), request.to_hex())
}

/// Names the key at which a holder of this library describes itself. Redisson does not know it.
pub(crate) fn about(lock: &LockKey) -> String {
    let name = lock.as_str();
    if has_tag(name) { format!("{name}:@about") } else { format!("{{{name}}}@about") }
}

/// Names the field of a claim.
pub(crate) fn field(owner: OwnerId) -> String {
    of_thread(owner, CLAIM)
}

/// Names the field of a claim that was released and keeps the lock for a while.
pub(crate) fn kept(owner: OwnerId) -> String {
    of_thread(owner, KEPT)
}

fn of_thread(owner: OwnerId, thread: &str) -> String {
    let hex = owner.to_hex();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}:{thread}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// The owner of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Claim(OwnerId),
    Kept(OwnerId),
    /// A client of Redisson, and its thread, whose id may be any text in other languages.
    Redisson(String, String),
}

impl Field {
    /// Reads `uuid:thread`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (client, thread) = text.split_once(':')?;
        let hyphens: Vec<usize> = client.match_indices('-').map(|(at, _)| at).collect();
        let owner = OwnerId::from_hex(&client.replace('-', "")).filter(|_| hyphens == [8, 13, 18, 23])?;
        Some(match thread {
            CLAIM => Self::Claim(owner),
            KEPT => Self::Kept(owner),
            _ => Self::Redisson(client.to_owned(), thread.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, about, channel, check, field, kept, latch};
    use lock_store::types::key::LockKey;
    use lock_store::types::owner::OwnerId;

    fn lock(name: &str) -> LockKey {
        LockKey::new(name).unwrap()
    }

    #[test]
    fn what_belongs_to_a_lock_has_the_names_that_redisson_gives_it() {
        let request = OwnerId::from_hex("00112233445566778899aabbccddeeff").unwrap();
        let hex = "00112233445566778899aabbccddeeff";
        for (name, its_channel, its_latch, its_about) in [
            ("order:1", "redisson_lock__channel:{order:1}", "redisson_unlock_latch:{order:1}:", "{order:1}@about"),
            ("o:{1}", "redisson_lock__channel:o:{1}", "redisson_unlock_latch:o:{1}:", "o:{1}:@about"),
        ] {
            let lock = lock(name);
            assert_eq!(channel(&lock), its_channel);
            assert_eq!(latch(&lock, request), format!("{its_latch}{hex}"));
            assert_eq!(about(&lock), its_about);
        }
    }

    #[test]
    fn names_that_split_slots_or_belong_to_other_data_are_refused() {
        for good in ["a", "{a}", "a{b}c", "a}{b}", "{a}}", "a{b"].map(lock) {
            assert_eq!(check(&good).is_ok(), good.as_str() != "a{b", "{good}");
        }
        for bad in ["a{", "{}", "{}a{b}", "a}", "}", "redisson_unlock_latch:{a}:b", "distributed-lock:clock"].map(lock)
        {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_field_tells_whose_it_is() {
        let owner = OwnerId::random();
        assert_eq!(Field::read(&field(owner)), Some(Field::Claim(owner)));
        assert_eq!(Field::read(&kept(owner)), Some(Field::Kept(owner)));
        let client = "8743c9c0-0795-4907-87fd-6c719a6b4586";
        let java = Field::Redisson(client.to_owned(), "42".to_owned());
        assert_eq!(Field::read(&format!("{client}:42")), Some(java));
        for no in ["mode", client, "a:1", &format!("{}:1", client.replace('-', ""))] {
            assert_eq!(Field::read(no), None, "{no}");
        }
    }
}
