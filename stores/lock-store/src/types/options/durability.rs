//! How many servers must have a lock before it counts.

use std::fmt;
use std::str::FromStr;

use crate::types::error::LockError;

/// Where a grant or a renewal must have arrived before it counts.
///
/// Replication is asynchronous. Without confirmation, a server that takes over may not know the last locks. A grant
/// that is not confirmed in time counts as not granted and is undone. A renewal that is not confirmed does not extend
/// the lease. Releases are never confirmed.
///
/// In a URL, write `?acks=1`, `?acks=all`, `?fsync=local` or `?fsync=1`. It applies to every lock that does not ask for
/// another durability.
///
/// ```
/// use lock_core::{Durability, LockOptions};
///
/// let options = LockOptions::default().with_durability(Durability::Acks(1));
/// assert_eq!("acks=1".parse::<Durability>()?, Durability::Acks(1));
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// On the master.
    #[default]
    Master,
    /// On the master and in the memory of this many replicas (`WAIT`).
    ///
    /// If there are more replicas, one that has not confirmed may take over.
    Acks(u8),
    /// On the master and in the memory of every replica that its sentinels can reach, at least one. Every replica that
    /// can take over then knows the lock. Only with the URL of sentinels, which know the replicas.
    AllReplicas,
    /// On disk (`WAITAOF`, Redis 7.2): on the master's disk if `local`, and on the disks of this many replicas.
    Fsync {
        /// Whether the master must have written it to its disk.
        local: bool,
        /// How many replicas must have written it to their disks.
        replicas: u8,
    },
}

/// Reads `master`, `acks=1`, `acks=all`, `fsync=local` or `fsync=1`.
impl FromStr for Durability {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let replicas = |count: &str| count.parse().ok().filter(|count| *count > 0);
        let read = match text.split_once('=') {
            None if text == "master" => Some(Self::Master),
            Some(("acks", "all")) => Some(Self::AllReplicas),
            Some(("acks", count)) => replicas(count).map(Self::Acks),
            Some(("fsync", "local")) => Some(Self::Fsync { local: true, replicas: 0 }),
            Some(("fsync", count)) => replicas(count).map(|replicas| Self::Fsync { local: true, replicas }),
            _ => None,
        };
        read.ok_or_else(|| {
            // The text may come from a URL, where a password can stand in its place, so it is not shown.
            LockError::misconfigured(
                "this is not a durability; write acks=1 (replicas that must confirm, 1 to 255, or all), fsync=local or \
                 fsync=1 (disks of replicas too), or master",
            )
        })
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master => f.write_str("master"),
            Self::Acks(count) => write!(f, "acks={count}"),
            Self::AllReplicas => f.write_str("acks=all"),
            Self::Fsync { replicas: 0, .. } => f.write_str("fsync=local"),
            Self::Fsync { replicas, .. } => write!(f, "fsync={replicas}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Durability;

    #[test]
    fn text_is_read_and_written() {
        for text in ["master", "acks=1", "acks=255", "acks=all", "fsync=local", "fsync=2"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        for text in ["", "acks", "acks=0", "acks=256", "acks=-1", "fsync=all", "fsync=0", "all", "acks=1 "] {
            assert!(text.parse::<Durability>().unwrap_err().to_string().contains("write acks=1"), "{text}");
        }
    }
}
