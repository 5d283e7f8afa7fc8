//! Attempts that nobody awaits any more and that the server may still execute.
//!
//! A native attempt has no deadline that the server could compare. So the command that ends its claim
//! follows it on the same connection, or waits until it is answered, or has the server close that connection
//! first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::clock::{Clock, Timestamp};
use crate::owner::OwnerId;
use crate::redis::link::{ClientId, Link};

/// Where an attempt was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) generation: u64,
    pub(super) client: ClientId,
    /// When its caller stopped awaiting it.
    pub(super) since: Timestamp,
    /// Closes when the connection has ended.
    pub(super) gone: watch::Receiver<()>,
}

/// The claims whose native attempt is unanswered although nobody awaits it.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    by_owner: Mutex<HashMap<OwnerId, Sent>>,
    /// How many there are, nearly always none.
    count: AtomicUsize,
    /// Notified when one of them is settled.
    pub(super) settled: Notify,
}

impl Unsettled {
    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Sent>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a claim that was sent over a connection.
    pub(super) fn note(&self, owner: OwnerId, link: &Link) {
        let Some(client) = link.client() else { return };
        let sent = Sent {
            generation: link.generation,
            client: client.clone(),
            since: Clock::system().now(),
            gone: link.gone(),
        };
        let mut by_owner = self.lock();
        by_owner.insert(owner, sent);
        self.count.store(by_owner.len(), Ordering::Release);
    }

    /// Returns where an unsettled claim was sent.
    pub(super) fn get(&self, owner: OwnerId) -> Option<Sent> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(&owner).cloned()
    }

    /// Notes that an attempt was answered.
    pub(super) fn answered(&self, owner: OwnerId) {
        self.retain(|settling, _| *settling != owner);
    }

    /// Notes that the server executes nothing more from a connection.
    pub(super) fn closed(&self, generation: u64) {
        self.retain(|_, sent| sent.generation != generation);
    }

    fn retain(&self, keep: impl Fn(&OwnerId, &Sent) -> bool) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut by_owner = self.lock();
        by_owner.retain(|owner, sent| keep(owner, sent));
        self.count.store(by_owner.len(), Ordering::Release);
        drop(by_owner);
        self.settled.notify_waiters();
    }
}
