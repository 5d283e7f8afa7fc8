//! Reads from an answer where a command belongs, and when to resend it.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connection::url::Address;
use lock_store::types::error::{LockError, Result};

/// How a node says of a script that a slot is not, or not wholly, there.
const NOT_HERE: [&str; 2] = ["non local key", "do not hash to the same slot"];

/// The meaning of a definite refusal. The command was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another master serves the slot from now on.
    Moved(Address),
    /// Another master has taken its place before it was reached.
    Replaced,
    /// Another master is taking the slot over, and may have the key already.
    Ask(Address),
    /// The slot is being moved, and some of the keys have gone.
    TryAgain,
    /// The slot is not, or not wholly, at this node, which does not say where it is.
    NotHere,
    /// The node does not serve the slot as a master, or the cluster has no master for it.
    NoMaster,
    /// The master cannot serve at the moment.
    NotNow,
    /// The node does not accept our credentials, or does not permit a command.
    NotAllowed,
}

impl Refusal {
    /// Reads an error's code and text. `asked` is the host that answered.
    pub(crate) fn read(code: &str, detail: &str, asked: &str) -> Option<Self> {
        let address = || Address::redirected(detail.split_ascii_whitespace().nth(1)?, asked);
        match code {
            "MOVED" => address().map(Self::Moved),
            "ASK" => address().map(Self::Ask),
            "TRYAGAIN" => Some(Self::TryAgain),
            "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" => Some(Self::NoMaster),
            "LOADING" | "BUSY" | "MISCONF" | "OOM" | "NOREPLICAS" => Some(Self::NotNow),
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Some(Self::NotAllowed),
            "ERR" if NOT_HERE.iter().any(|text| detail.contains(text)) => Some(Self::NotHere),
            _ => None,
        }
    }

    /// Returns the refusal that an error describes.
    pub(crate) fn of(error: &LockError) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved(to) => write!(f, "{to} serves the slot"),
            Self::Replaced => f.write_str("another master serves the slot"),
            Self::Ask(to) => write!(f, "{to} is taking the slot over"),
            Self::TryAgain => f.write_str("the slot is being moved"),
            Self::NotHere => f.write_str("the slot is not at this node"),
            Self::NoMaster => f.write_str("no master of the slot answered"),
            Self::NotNow => f.write_str("the master cannot serve now"),
            Self::NotAllowed => f.write_str("the node does not permit it"),
        }
    }
}

impl Error for Refusal {}

/// The redirections that are counted, as metric labels.
const KINDS: [&str; 4] = ["moved", "ask", "try_again", "no_master"];

/// How often a master redirected callers, since observers were told.
#[derive(Debug, Default)]
pub(crate) struct Redirections([AtomicU64; KINDS.len()]);

impl Redirections {
    /// Counts an answer if it is a redirection.
    pub(crate) fn count<T>(&self, answer: &Result<T>) {
        let kind = match answer.as_ref().err().and_then(Refusal::of) {
            Some(Refusal::Moved(_)) => 0,
            Some(Refusal::Ask(_)) => 1,
            Some(Refusal::TryAgain | Refusal::NotHere) => 2,
            Some(Refusal::NoMaster) => 3,
            _ => return,
        };
        self.0[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what was counted.
    pub(crate) fn take(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.swap(0, Ordering::Relaxed));
        KINDS.into_iter().zip(counts).filter(|(_, times)| *times > 0)
    }
}

#[cfg(test)]
#[path = "tests/redirect.rs"]
mod tests;
