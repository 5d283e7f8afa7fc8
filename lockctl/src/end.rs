//! How a command ends, and what is said when it cannot go on.

use std::io;

use lock_core::LockError;
use lock_core::text::visible;

/// How a command ended; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok = 0,
    /// Not found, or not held by the owner that was named.
    NotFound = 1,
    Usage = 2,
    Unavailable = 3,
    /// Reached, but refused: credentials, permissions, a key that is not a lock.
    Refused = 4,
}

/// What to do about a URL.
pub(crate) const SET_IT: &str = " (set it with --url or LOCK_URL)";

/// Why a command could not go on.
pub(crate) enum Failure {
    /// The URL makes no sense.
    Url(LockError),
    Lock(LockError),
    /// The reader of our output has gone, or the disk is full.
    Output(io::Error),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Prints an error for a person.
pub(crate) fn complain(what: &str) {
    eprintln!("lockctl: {}", visible(what));
}
