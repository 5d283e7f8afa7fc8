//! The sentinels' reports about replicas, and how many replicas could take over.
//!
//! Any sentinel may be the one that chooses, among the replicas that it knows. So every replica counts that one of them
//! knows, and nothing is known before most of them have told: an answer that was refused, or cannot be read, is none.

use std::collections::{BTreeMap, BTreeSet};

use crate::sentinel::one::View;
use crate::connection::url::Address;
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
            "acks=all counts the replicas that the sentinels know, and most of them have not told: start them, or write the \
             number of replicas, as in acks=1{}",
            each.concat(),
        ))
    }
}

/// Returns the view of the latest decision. A sentinel that was away tells of an earlier one, whoever answers first.
pub(crate) fn newest(views: Vec<View>) -> Option<View> {
    views.into_iter().max_by_key(|view| view.epoch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Told, newest};
    use crate::sentinel::one::View;
    use crate::connection::url::Address;
    use lock_store::types::error::{LockError, LockErrorKind};

    fn at(port: u16) -> Address {
        Address { host: "h".to_owned(), port }
    }

    /// The report of a sentinel about replicas, each down or not.
    fn view(replicas: &[(u16, bool)]) -> View {
        let replicas = replicas.iter().map(|(port, down)| (at(*port), *down)).collect();
        View { master: at(1), epoch: 1, sentinels: Ok(Vec::new()), replicas: Ok(replicas) }
    }

    #[test]
    fn every_replica_counts_that_one_sentinel_knows_and_not_most_take_for_down() {
        let sentinels: BTreeSet<Address> = [11, 12, 13].map(at).into();
        let first = at(1);
        let count = |said: &[&[(u16, bool)]]| {
            let mut told = Told::default();
            for (sentinel, said) in (11..).zip(said) {
                told.note(&at(sentinel), &view(said));
            }
            told.count(&sentinels, Some(&first))
        };
        assert_eq!(count(&[&[(2, false)], &[(2, false)]]), Ok(1));
        assert_eq!(count(&[&[], &[]]), Ok(0));
        // A sentinel that started a short time ago does not know all of them.
        assert_eq!(count(&[&[(2, false), (3, false)], &[]]), Ok(2));
        assert_eq!(count(&[&[(2, true)], &[(2, false)], &[]]), Ok(1));
        assert_eq!(count(&[&[(2, true)], &[(2, true)], &[(2, false)]]), Ok(0));
        // It was promoted.
        assert_eq!(count(&[&[(1, false)], &[(2, false)]]), Ok(1));
        // One of three.
        assert_eq!(count(&[&[(2, false)]]).unwrap_err().kind(), LockErrorKind::Unavailable);
        assert_eq!(count(&[]).unwrap_err().kind(), LockErrorKind::Unavailable);
    }

    #[test]
    fn what_was_refused_is_not_none() {
        let sentinels: BTreeSet<Address> = [at(11)].into();
        let mut told = Told::default();
        told.note(&at(11), &view(&[(2, false)]));
        let refused = || LockError::misconfigured("refused");
        told.note(&at(11), &View { replicas: Err(refused()), ..view(&[]) });
        assert_eq!(told.count(&sentinels, None), Err(refused()));
        told.note(&at(11), &View { sentinels: Err(refused()), ..view(&[]) });
        assert_eq!(told.count(&sentinels, None), Err(refused()));
        told.note(&at(11), &view(&[(2, false)]));
        assert_eq!(told.count(&sentinels, None), Ok(1));
    }

    #[test]
    fn a_sentinel_that_returns_with_an_older_epoch_is_not_believed() {
        for order in [[(1, 7), (2, 9), (1, 7)], [(2, 9), (1, 7), (1, 7)], [(1, 7), (1, 7), (2, 9)]] {
            let views = order.map(|(port, epoch)| View { master: at(port), epoch, ..view(&[]) }).into();
            assert_eq!(newest(views).map(|view| view.master.port), Some(2), "{order:?}: the two others were away");
        }
        assert!(newest(Vec::new()).is_none());
    }
}
