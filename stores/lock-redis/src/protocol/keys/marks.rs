//! The names of the marks that the work under a lock is done for a version: `{lock}@done:version`.

#[cfg(feature = "inspect")]
use crate::protocol::keys::lock_before;

/// The text between the name of a lock and the version.
pub(super) const DONE: &str = "done:";

/// Splits the name of a mark before the version. A version may itself have what stands between: no lock has.
pub(super) fn split_at_done(key: &str) -> Option<(&str, &str)> {
    let at = key.match_indices("@done:").map(|(at, _)| at).find(|at| key[..*at].ends_with([':', '}']))?;
    Some((&key[..=at], &key[at + 1 + DONE.len()..]))
}

/// Returns the lock and the version of the mark that lies at a key.
#[cfg(feature = "inspect")]
pub(crate) fn lock_of_mark(key: &str) -> Option<(&str, &str)> {
    let (name, version) = split_at_done(key)?;
    Some((lock_before(name)?, version))
}

#[cfg(test)]
#[path = "tests/marks.rs"]
mod tests;
