//! Asks the store about a key.

use lock_core::inspect::{EntryState, FleetReader, LockEntry, Topology, Waiter};
use lock_core::store::JobRecord;
use lock_core::{Clock, LockKey, Timestamp};

use crate::commands::why::blocked::{self, Walk};
use crate::commands::why::votes::Votes;
use crate::end::Failure;
use crate::members::Seen;

/// The store, and the URL that names its servers.
pub(crate) struct Store<'a> {
    pub(crate) fleet: &'a FleetReader,
    pub(crate) url: &'a str,
}

/// What was read.
pub(crate) struct Stored {
    /// `None` if it is free, or if only a minority of a quorum has it.
    pub(crate) entry: Option<LockEntry>,
    /// When the entry was read.
    pub(crate) read_at: Timestamp,
    pub(crate) queue: Vec<Waiter>,
    /// The record of the job, if this is the lock of a job.
    pub(crate) job: Option<JobRecord>,
    /// The lock that its holder waits for, then the lock that the next holder waits for, and so on.
    pub(crate) blocked: Walk,
    /// The answer of each member, if the store is a quorum.
    pub(crate) votes: Option<Votes>,
}

impl Store<'_> {
    pub(crate) async fn read(&self, key: &LockKey) -> Result<Stored, Failure> {
        let seen = Seen::read(self.fleet, key).await?;
        let (entry, read_at) = (taken(&seen), Clock::system().now());
        let (queue, job) = (self.fleet.waiters(key).await?, seen.job(self.fleet).await?);
        let (blocked, votes) = match &seen.members {
            None => (blocked::walk(self.fleet, key).await?, None),
            // A quorum is not told what its holders wait for.
            Some(_) => {
                let topology = Topology::read(self.url).await.map_err(Failure::Url)?;
                (Walk::default(), Some(Votes { seen, topology }))
            }
        };
        Ok(Stored { entry, read_at, queue, job, blocked, votes })
    }

    /// Reads again who has it.
    pub(crate) async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>, Failure> {
        Ok(taken(&Seen::read(self.fleet, key).await?))
    }
}

/// Returns what is held, or may be held.
fn taken(seen: &Seen) -> Option<LockEntry> {
    seen.entry.clone().filter(|entry| entry.state != EntryState::Minority)
}
