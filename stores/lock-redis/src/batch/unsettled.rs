//! Attempts that the server may still execute although nobody awaits them any more, or although their claim ends.
//!
//! A native attempt has no deadline that the server could compare. So the command that ends its claim follows it on the
//! same connection, or waits until it is answered, or has the server close that connection first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use crate::connection::link::{ClientId, Link};
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// Where a command was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) generation: u64,
    pub(crate) client: ClientId,
    /// From when on it need not be answered: its caller stopped awaiting it.
    pub(crate) since: Timestamp,
    /// Closes when the connection has ended.
    pub(crate) gone: watch::Receiver<()>,
}

/// The claims with such a command.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    by_owner: Mutex<HashMap<OwnerId, Arc<Sent>>>,
    /// How many there are, nearly always none.
    count: AtomicUsize,
    /// Notified when one of them is settled.
    pub(crate) settled: Notify,
}

impl Unsettled {
    /// Notes a claim that was sent over a connection.
    pub(crate) fn note(&self, owner: OwnerId, link: &Link) {
        let Some(client) = link.client() else { return };
        let sent = Arc::new(Sent {
            generation: link.generation,
            client: client.clone(),
            since: Clock::system().now(),
            gone: link.gone(),
        });
        let mut by_owner = self.by_owner.lock();
        by_owner.insert(owner, sent);
        self.count.store(by_owner.len(), Ordering::Release);
    }

    /// Returns where an unsettled claim was sent.
    pub(crate) fn get(&self, owner: OwnerId) -> Option<Arc<Sent>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.by_owner.lock().get(&owner).cloned()
    }

    /// Notes that the command of a claim was answered.
    pub(crate) fn answered(&self, owner: OwnerId) {
        self.settle(|by_owner| _ = by_owner.remove(&owner));
    }

    /// Notes that the server executes nothing more from a connection.
    pub(crate) fn closed(&self, generation: u64) {
        self.settle(|by_owner| by_owner.retain(|_, sent| sent.generation != generation));
    }

    fn settle(&self, settle: impl FnOnce(&mut HashMap<OwnerId, Arc<Sent>>)) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut by_owner = self.by_owner.lock();
        settle(&mut by_owner);
        self.count.store(by_owner.len(), Ordering::Release);
        drop(by_owner);
        self.settled.notify_waiters();
    }
}
