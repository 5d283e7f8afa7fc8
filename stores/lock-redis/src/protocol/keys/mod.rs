//! The names of Redis keys. No other file spells one.
//!
//! The lock itself lies at exactly the key the user wrote, so that clients of the classic protocol
//! exclude us and we exclude them. Everything else that a lock needs lies beside it, under names
//! that hash to the same cluster slot:
//!
//! | user's key | queue | waiters |
//! |---|---|---|
//! | `lock:user:42` | `{lock:user:42}@queue` | `{lock:user:42}@waiters` |
//! | `lock:{user:42}` | `lock:{user:42}:@queue` | `lock:{user:42}:@waiters` |
//!
//! A member of a quorum keeps a third, `@fence`, for an hour, and two keys for all locks: `distributed-lock:birth` and
//! `distributed-lock:members`.
//!
//! The lock that a holder waits for is kept as `@blocked`, for seconds. The last run of a job that runs at most once
//! in a period is kept as `@job`, for ten periods and at most a week more than one. The mark that its work is done for a version is
//! kept as `@done:` with the version behind it, for 400 days.
//!
//! The two forms end differently, because otherwise the locks `a` and `{a}` would share a queue. The
//! patterns of an ACL must therefore allow both `~lock:*` and `~{lock:*`. The names of the queue and
//! of the waiters differ only in their last word: scripts derive one from the other.
//!
//! One more key serves all locks of a server: the clock, `distributed-lock:clock`, from which tokens are
//! drawn. Its name depends on no prefix, since two managers with different prefixes can lock one key. In a
//! cluster each slot has its own, `distributed-lock:clock:{n}`, n being a number that hashes to the slot.

pub(crate) mod hash_slot;
pub(crate) mod marks;

use std::borrow::Cow;
use std::io::Write as _;

use redis::{RedisWrite, ToRedisArgs};

use crate::protocol::keys::hash_slot::{hash_tag, number_in, slot, slot_of};
use crate::protocol::keys::marks::{DONE, split_at_done};
use crate::protocol::value::write_number;
use lock_store::contract::backend::JobVersion;
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;

/// How companion names end.
const COMPANIONS: [&str; 6] = ["queue", "waiters", "blocked", "fence", JOB, "about"];

/// How the name of the record of a job ends.
const JOB: &str = "job";

/// Since when a member of a quorum has kept its data.
pub(crate) const BIRTH: &str = "distributed-lock:birth";

/// Which lists of members are in use at a member of a quorum.
pub(crate) const MEMBERS: &str = "distributed-lock:members";

/// The clock of a server.
pub(crate) const CLOCK: &str = "distributed-lock:clock";

/// How the names of channels begin.
pub(crate) const INBOX: &str = "distributed-lock:inbox:";

/// The channel on which every process learns which locks an operator took away.
pub const REVOKED: &str = "distributed-lock:inbox:revoked";

/// Names the channel on which a process receives its grants.
pub(crate) fn inbox_channel(id: &str) -> String {
    format!("{INBOX}{id}")
}

/// Names the channel of the same process that lies in a slot of a cluster. Scripts make the name from that of the clock.
pub(crate) fn inbox_of_slot(id: &str, slot: u16) -> String {
    format!("{INBOX}{id}:{{{}}}", number_in(slot))
}

/// Returns the slot in which a channel lies.
pub(crate) fn slot_of_inbox(channel: &[u8]) -> Option<u16> {
    let tag = hash_tag(std::str::from_utf8(channel).ok()?)?;
    Some(slot(tag.as_bytes()))
}

/// The Redis keys of one lock.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The lock: the user's key.
    lock: LockKey,
    queue: String,
    waiters: String,
}

impl Keys {
    /// Refuses a key under which something else than a lock lies.
    pub(crate) fn check(key: &LockKey) -> Result<()> {
        let lock = key.as_str();
        if is_of_server(lock) {
            return Err(LockError::invalid_key(format!(
                "{CLOCK}, {BIRTH} and {MEMBERS} are where a server keeps what all locks need; choose another name",
            )));
        }
        if let Some(name) = COMPANIONS.into_iter().find(|name| is_companion(lock, name)) {
            return Err(LockError::invalid_key(format!(
                "names that end in \":@{name}\" or \"}}@{name}\" are where the data of other locks lies; \
                 choose another ending",
            )));
        }
        if split_at_done(lock).is_some() {
            return Err(LockError::invalid_key(format!(
                "names with \":@{DONE}\" or \"}}@{DONE}\" in them are where it lies for which version the work under other locks \
                 is done; choose another name",
            )));
        }
        Ok(())
    }

    /// Names the keys of one lock.
    pub(crate) fn of(key: &LockKey) -> Result<Self> {
        Self::check(key)?;
        Ok(Self::of_taken(key))
    }

    /// Names the keys of a lock that was taken, so that its key was checked.
    pub(crate) fn of_taken(key: &LockKey) -> Self {
        let [queue, waiters] = [COMPANIONS[0], COMPANIONS[1]].map(|name| beside(key.as_str(), name));
        Self { lock: key.clone(), queue, waiters }
    }

    /// As [`check`](Self::check), in a cluster: the keys of a lock must share a slot.
    pub(crate) fn check_in_cluster(key: &LockKey) -> Result<()> {
        let name = key.as_str();
        if hash_tag(name).is_none() && name.contains('}') {
            return Err(LockError::invalid_key(
                "in a cluster a } may only close a part that is not empty, as in lock:{user}:1, because the lock and \
                 its queue must share a slot; remove it",
            ));
        }
        Self::check(key)
    }

    pub(crate) fn lock(&self) -> &str {
        self.lock.as_str()
    }

    /// The claims that wait, in order of arrival.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// The entry of each of them that a grant needs.
    pub(crate) fn waiters(&self) -> &str {
        &self.waiters
    }

    /// The lock that the holder waits for. Few holders wait, so it is not kept.
    pub(crate) fn blocked(&self) -> String {
        beside(self.lock(), COMPANIONS[2])
    }

    /// The last token that a member of a quorum gave of this lock.
    pub(crate) fn fence(&self) -> String {
        beside(self.lock(), COMPANIONS[3])
    }

    /// The record of a job.
    pub(crate) fn job(&self) -> String {
        beside(self.lock(), JOB)
    }

    /// The mark that the work is done for a version.
    pub(crate) fn done(&self, version: &JobVersion) -> String {
        beside(self.lock(), DONE) + version.as_str()
    }

    /// Lists the keys in the order in which the scripts of the queue expect them.
    pub(crate) fn all(&self) -> [&str; 3] {
        [self.lock(), self.queue(), self.waiters()]
    }
}

/// The queue of a lock, written into the command that names it.
pub(crate) struct QueueOf<'a>(pub(crate) &'a LockKey);

impl ToRedisArgs for QueueOf<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let lock = self.0.as_str();
        let [open, close] = around(lock);
        let mut name = out.writer_for_next_arg();
        for part in [open, lock, close, COMPANIONS[0]] {
            // Into memory, which cannot fail.
            let _ = name.write_all(part.as_bytes());
        }
    }
}

/// The clock in the slot of a lock, written into the command that names it.
pub(crate) struct ClockOf<'a>(pub(crate) &'a LockKey);

impl ToRedisArgs for ClockOf<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let mut name = out.writer_for_next_arg();
        // Into memory, which cannot fail.
        let _ = [CLOCK.as_bytes(), b":{"].into_iter().try_for_each(|part| name.write_all(part));
        let _ = write_number(&mut name, number_in(slot_of(self.0)).into());
        let _ = name.write_all(b"}");
    }
}

/// The clock in the slot of a lock.
pub(crate) fn clock_of(lock: &LockKey) -> Cow<'static, str> {
    clock_of_slot(slot_of(lock)).into()
}

/// The clock of a slot.
pub(crate) fn clock_of_slot(of: u16) -> String {
    format!("{CLOCK}:{{{}}}", number_in(of))
}

/// Returns whether data of another lock lies at this key, or a clock, so that no lock can.
pub(crate) fn is_reserved(key: &str) -> bool {
    is_of_server(key) || split_at_done(key).is_some() || COMPANIONS.into_iter().any(|name| is_companion(key, name))
}

/// Returns the lock of the job whose record lies at a key.
#[cfg(feature = "inspect")]
pub(crate) fn lock_of_job(key: &str) -> Option<&str> {
    lock_before(key.strip_suffix(JOB)?)
}

/// Returns the lock in the name of a companion, of which this is the part before its last word.
#[cfg(feature = "inspect")]
fn lock_before(name: &str) -> Option<&str> {
    let lock = name.strip_suffix(":@").filter(|lock| hash_tag(lock).is_some());
    lock.or_else(|| name.strip_suffix("}@")?.strip_prefix('{').filter(|lock| hash_tag(lock).is_none()))
}

/// Names a companion of a lock.
fn beside(lock: &str, name: &str) -> String {
    let [open, close] = around(lock);
    [open, lock, close, name].concat()
}

/// Returns what comes before and behind a key in the names of its companions.
fn around(lock: &str) -> [&'static str; 2] {
    if hash_tag(lock).is_some() { ["", ":@"] } else { ["{", "}@"] }
}

fn is_of_server(key: &str) -> bool {
    key == BIRTH
        || key == MEMBERS
        || key.strip_prefix(CLOCK).is_some_and(|rest| rest.is_empty() || rest.starts_with(":{"))
}

fn is_companion(key: &str, name: &str) -> bool {
    key.strip_suffix(name).is_some_and(|rest| rest.ends_with(":@") || rest.ends_with("}@"))
}

#[cfg(test)]
mod tests;
