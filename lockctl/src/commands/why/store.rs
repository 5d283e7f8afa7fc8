//! Asks the store about a key: one server, or the members of a quorum.

use lock_core::inspect::{FleetReader, LockEntry, Topology, Waiter};
use lock_core::store::JobRecord;
use lock_core::{Clock, LockKey, Timestamp};

use crate::commands::why::blocked::{self, Walk};
use crate::commands::why::votes::Votes;
use crate::end::Failure;
use crate::members::{Joint, Members, Question, Verdict, View};

/// Whom to ask.
pub(crate) enum Store<'a> {
    One(&'a FleetReader),
    Quorum { members: &'a Members, url: &'a str },
}

/// What was read.
pub(crate) struct Stored {
    /// `None` if it is free.
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
        match self {
            Self::One(fleet) => {
                let entry = fleet.entry(key).await?;
                Ok(Stored {
                    entry,
                    read_at: Clock::system().now(),
                    queue: fleet.waiters(key).await?,
                    job: fleet.job(key).await?,
                    blocked: blocked::walk(fleet, key).await?,
                    votes: None,
                })
            }
            Self::Quorum { members, url } => {
                // Neither keeps a queue, nor is it told what its holders wait for.
                let (view, topology) = tokio::join!(look(members, key), Topology::read(url));
                let topology = topology.map_err(Failure::Url)?;
                Ok(Stored {
                    entry: held(&view),
                    read_at: Clock::system().now(),
                    queue: Vec::new(),
                    job: view.together().jobs.pop().map(|(_, job)| job),
                    blocked: Walk::default(),
                    votes: Some(Votes { view, topology }),
                })
            }
        }
    }

    /// Reads again who has it.
    pub(crate) async fn entry(&self, key: &LockKey) -> Result<Option<LockEntry>, Failure> {
        Ok(match self {
            Self::One(fleet) => fleet.entry(key).await?,
            Self::Quorum { members, .. } => held(&look(members, key).await),
        })
    }
}

async fn look(members: &Members, key: &LockKey) -> View {
    members.ask(&Question::One { key: key.clone(), owners: true }).await
}

/// Returns what a majority has, or may have: what fewer have is nobody's.
fn held(view: &View) -> Option<LockEntry> {
    view.joint().filter(|joint| joint.verdict != Verdict::Minority).map(|joint| Joint::whole(&joint))
}
