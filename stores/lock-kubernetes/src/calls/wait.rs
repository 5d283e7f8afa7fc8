//! Announces in a Lease that a claim waits for it, for operators and for the order in which waiters are woken.
//!
//! No lock depends on it. An announcement changes nothing that a candidate watches of a holder, so it delays no take-over.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{LockKey, OwnerId};

use crate::calls::change::change;
use crate::data::{Annotations, later, remove_wait, write_wait};
use crate::record::notes_of;
use crate::shared::Shared;
use crate::waiters::Waiter;

/// How long an announcement may take, and how long it counts.
const BOUND: Duration = Duration::from_secs(5);
const COUNTS: Duration = Duration::from_secs(25 * 60);

/// Writes that a claim waits.
pub(crate) async fn announce(shared: Arc<Shared>, key: LockKey, waiter: Waiter) {
    let Waiter { owner, info, since, .. } = waiter;
    edit(&shared, &key, |notes, now| write_wait(notes, owner, &info, since, later(now, COUNTS))).await;
    if !shared.waiters.has(&key, owner) {
        // It has left meanwhile, perhaps with the lock.
        withdraw(shared, key, owner).await;
    }
}

/// Removes what an announcement has written.
pub(crate) async fn withdraw(shared: Arc<Shared>, key: LockKey, owner: OwnerId) {
    edit(&shared, &key, |notes, _| remove_wait(notes, owner)).await;
}

/// Changes the annotations of a Lease, if `edit` does. A waiter that may not write is not shown.
async fn edit(shared: &Shared, key: &LockKey, edit: impl Fn(&mut Annotations, i64) -> bool) {
    let changed = change(shared, key, None, shared.now().after(BOUND), |record, now| {
        let mut lease = record.lease().clone();
        let is_changed = edit(notes_of(&mut lease), now);
        Ok((is_changed.then_some(lease), ()))
    });
    if let Err(error) = changed.await {
        tracing::debug!(%error, "a waiter is not announced in its Lease");
    }
}
