//! Delivers the store's grants to the claims that wait for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use lock_store::contract::backend::Grant;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// The claims of this process that are, or were, in the store's queue.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    claims: Mutex<HashMap<OwnerId, Arc<Mailbox>, RandomState>>,
    registered: AtomicU64,
}

#[derive(Debug)]
struct Mailbox {
    owner: OwnerId,
    number: u64,
    state: Mutex<MailboxState>,
    news: Notify,
    /// Whether a waiter exists for the lock that the claim shares.
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct MailboxState {
    grant: Option<Box<Grant>>,
    /// Whether a message may have been missed, so that the claim must ask the store again.
    verify: bool,
    /// Whether the claim holds the lock. A late grant then says nothing new and is dropped.
    held: bool,
}

/// News for a waiting claim.
#[derive(Debug)]
pub(crate) enum News {
    Granted(Grant),
    /// The claim must ask again: the connection was reopened, or the store told it to.
    Verify,
}

impl Grants {
    /// Registers a claim. This must happen before the claim enters the store's queue, or a grant could arrive unheard.
    pub(crate) fn listen(self: &Arc<Self>, owner: OwnerId) -> Listener {
        let number = self.registered.fetch_add(1, Ordering::Relaxed);
        let (state, news, wanted) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        let mailbox = Arc::new(Mailbox { owner, number, state, news, wanted });
        self.claims().insert(owner, Arc::clone(&mailbox));
        Listener { grants: Arc::clone(self), mailbox }
    }

    /// Delivers a grant. Returns the grant if its claim is not registered: the caller must then release the lock.
    /// Otherwise the lock would stay taken until its lease ends, and nobody would use it.
    pub(crate) fn deliver(&self, grant: Grant) -> Result<(), Grant> {
        let Some(mailbox) = self.claims().get(&grant.claim.owner).cloned() else { return Err(grant) };
        let mut state = mailbox.state();
        if !state.held {
            state.grant = Some(Box::new(grant));
            drop(state);
            mailbox.news.notify_one();
        }
        Ok(())
    }

    /// Notes that a waiter exists for the lock that a claim shares. The message may arrive before the answer that tells
    /// the claim that it shares the lock.
    pub(crate) fn wanted(&self, owner: OwnerId) {
        if let Some(mailbox) = self.claims().get(&owner) {
            mailbox.wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Makes one claim ask again, if it waits.
    pub(crate) fn verify(&self, owner: OwnerId) {
        let mailbox = self.claims().get(&owner).cloned();
        if let Some(mailbox) = mailbox {
            mailbox.state().verify = true;
            mailbox.news.notify_one();
        }
    }

    /// Makes every waiting claim ask again.
    pub(crate) fn verify_all(&self) {
        let mut mailboxes: Vec<Arc<Mailbox>> = self.claims().values().cloned().collect();
        // In a fixed order, so that a run on virtual time can be repeated.
        mailboxes.sort_unstable_by_key(|mailbox| mailbox.number);
        for mailbox in mailboxes {
            mailbox.state().verify = true;
            mailbox.news.notify_one();
        }
    }

    /// Returns how many claims are registered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.claims().len()
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<OwnerId, Arc<Mailbox>, RandomState>> {
        self.claims.lock()
    }
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock()
    }
}

/// Receives the news of one claim. It is dropped when the claim has ended.
pub(crate) struct Listener {
    grants: Arc<Grants>,
    mailbox: Arc<Mailbox>,
}

impl Listener {
    /// Waits for the next news. The future is safe to drop: news that was not returned stays.
    pub(crate) async fn next(&self) -> News {
        loop {
            {
                let mut state = self.mailbox.state();
                if let Some(grant) = state.grant.take() {
                    return News::Granted(*grant);
                }
                if std::mem::take(&mut state.verify) {
                    return News::Verify;
                }
            }
            self.mailbox.news.notified().await;
        }
    }

    /// Returns whether a waiter exists for the lock that the claim shares, as far as this process knows.
    pub(crate) fn is_wanted(&self) -> bool {
        self.mailbox.wanted.load(Ordering::Relaxed)
    }

    /// Notes that the claim holds the lock.
    pub(crate) fn mark_held(&self) {
        let mut state = self.mailbox.state();
        state.held = true;
        state.grant = None;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.grants.claims().remove(&self.mailbox.owner);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?})", self.mailbox.owner)
    }
}
