//! The sentinels' reports about replicas, and how many replicas could take over.
//!
//! Any sentinel may be the one that chooses, among the replicas that it knows. So every replica counts that one of them
//! knows, and nothing is known before most of them have told: an answer that was refused, or cannot be read, is none.

use std::collections::{BTreeMap, BTreeSet};

use crate::connection::url::Address;
use crate::sentinel::one::View;
use lock_store::types::error::{LockError, LockErrorKind, Result};

/// The last report of each sentinel.
#[derive(Debug, Default)]
pub(crate) struct Told {
    by_sentinel: BTreeMap<Address, Replicas>,
    /// Why one could not tell, of those that cannot.
    why_not: BTreeMap<Address, LockError>,
}

/// The replicas that one sentinel knows.
#[derive(Debug)]
struct Replicas {
    known: BTreeSet<Address>,
    /// The replicas that it considers down.
    down: BTreeSet<Address>,
}

impl Told {
    /// Takes note of an answer.
    pub(crate) fn note(&mut self, sentinel: &Address, view: &View) {
        // Without all sentinels it is not known what most of them say either.
        let replicas = match (&view.sentinels, &view.replicas) {
            (Ok(_), Ok(replicas)) => replicas,
            (Err(error), _) | (_, Err(error)) => {
                self.by_sentinel.remove(sentinel);
                self.why_not.insert(sentinel.clone(), error.clone());
                return;
            }
        };
        let known = replicas.iter().map(|(replica, _)| replica.clone()).collect();
        let down = replicas.iter().filter(|(_, down)| *down).map(|(replica, _)| replica.clone()).collect();
        self.why_not.remove(sentinel);
        self.by_sentinel.insert(sentinel.clone(), Replicas { known, down });
    }

    /// Returns how many replicas of a master could take over: all except the replicas that most sentinels consider down.
    /// Fewer sentinels may be cut off together with this process, while the others make that replica the master.
    pub(crate) fn count(&self, sentinels: &BTreeSet<Address>, master: Option<&Address>) -> Result<u64> {
        let told: Vec<&Replicas> = sentinels.iter().filter_map(|sentinel| self.by_sentinel.get(sentinel)).collect();
        if told.len() <= sentinels.len() / 2 {
            return Err(self.unknown(sentinels));
        }
        // A sentinel that has not heard of a promotion may still list the promoted server as a replica.
        let known: BTreeSet<&Address> =
            told.iter().flat_map(|one| &one.known).filter(|replica| Some(*replica) != master).collect();
        let is_down =
            |replica: &Address| told.iter().filter(|one| one.down.contains(replica)).count() > sentinels.len() / 2;
        Ok(known.into_iter().filter(|replica| !is_down(replica)).count() as u64)
    }

    fn unknown(&self, sentinels: &BTreeSet<Address>) -> LockError {
        let why_not: Vec<&LockError> = sentinels.iter().filter_map(|sentinel| self.why_not.get(sentinel)).collect();
        let is_mistake = |error: &&LockError| error.kind() == LockErrorKind::Misconfigured;
        if why_not.iter().filter(|error| is_mistake(error)).count() > sentinels.len() / 2
            && let Some(mistake) = why_not.iter().find(|error| is_mistake(error))
        {
            return (*mistake).clone();
        }
        let each: Vec<String> = why_not.iter().map(|error| format!("; {error}")).collect();
        LockError::unavailable(format!(
            "acks=all counts the replicas that the sentinels know, and most sentinels name none: start them, or write \
             the number of replicas, as in acks=1{}",
            each.concat(),
        ))
    }
}

/// Returns the view of the latest decision. A sentinel that was away tells of an earlier one, whoever answers first.
pub(crate) fn newest(views: Vec<View>) -> Option<View> {
    views.into_iter().max_by_key(|view| view.epoch)
}

#[cfg(test)]
#[path = "tests/told.rs"]
mod tests;
