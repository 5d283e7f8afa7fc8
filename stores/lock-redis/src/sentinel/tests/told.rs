use std::collections::BTreeSet;

use super::{Told, newest};
use crate::connection::url::Address;
use crate::sentinel::one::View;
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
