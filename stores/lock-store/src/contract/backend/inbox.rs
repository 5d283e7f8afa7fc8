//! Messages that a store sends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::contract::backend::Grant;
use crate::contract::event::{Notice, Observers};
use crate::types::key::LockKey;
use crate::types::owner::OwnerId;

/// Receives the messages that a store sends by itself.
///
/// ```
/// use lock_core::{LockError, LockKey};
/// use lock_store::Inbox;
///
/// // What a store does on its listening connection.
/// fn changed(inbox: &Inbox, key: &str) -> Result<(), LockError> {
///     inbox.suspect(LockKey::new(key)?);
///     Ok(())
/// }
/// # let _ = changed;
/// ```
#[derive(Clone, Debug)]
pub struct Inbox {
    id: Arc<str>,
    /// Whether grants can arrive.
    open: Arc<AtomicBool>,
    sender: tokio::sync::mpsc::UnboundedSender<Message>,
    observers: Arc<Observers>,
}

/// A message of a store.
#[derive(Debug)]
pub enum Message {
    /// A claim of this process got the lock.
    Granted(Grant),
    /// A claim in the queue must ask again.
    AskAgain(OwnerId),
    /// A key may have changed hands.
    Suspect(LockKey),
    /// A waiter exists for a lock that a claim of this process shares.
    Wanted(OwnerId),
    /// An operator takes a lock away.
    Revoked { owner: OwnerId, actor: String, reason: String },
    /// The connection was reopened. Earlier messages may be missing.
    Reconnected,
}

impl Inbox {
    #[doc(hidden)]
    pub fn new(observers: Arc<Observers>) -> (Self, tokio::sync::mpsc::UnboundedReceiver<Message>) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let id = OwnerId::random().to_hex().into();
        (Self { id, open: Arc::default(), sender, observers }, receiver)
    }

    /// Makes an inbox of the same name with another receiver.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn stand_in(&self) -> (Self, tokio::sync::mpsc::UnboundedReceiver<Message>) {
        let (inbox, receiver) = Self::new(Arc::clone(&self.observers));
        (Self { id: Arc::clone(&self.id), ..inbox }, receiver)
    }

    /// Returns the name by which the store addresses this process.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Sets whether grants reach this inbox from now on. While they do not, callers poll.
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    /// Returns whether grants reach this inbox.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Delivers a grant.
    pub fn granted(&self, grant: Grant) {
        let _ = self.sender.send(Message::Granted(grant));
    }

    /// Reports that a claim in the queue must ask again, because no release will grant it the lock.
    pub fn ask_again(&self, owner: OwnerId) {
        let _ = self.sender.send(Message::AskAgain(owner));
    }

    /// Reports that another client may have changed a key since the store renewed its lease. The lease is then verified
    /// at once. A hint about a lease that was never renewed is ignored.
    pub fn suspect(&self, key: LockKey) {
        let _ = self.sender.send(Message::Suspect(key));
    }

    /// Reports that a waiter exists for a lock that this owner's claim shares. The process then lets no other caller in
    /// under the claim.
    pub fn wanted(&self, owner: OwnerId) {
        let _ = self.sender.send(Message::Wanted(owner));
    }

    /// Reports that an operator takes this owner's lock away, with the operator's name and reason. If a claim of this
    /// process has the lock, its holder learns of the loss at once, without asking the store.
    pub fn revoked(&self, owner: OwnerId, actor: &str, reason: &str) {
        let (actor, reason) = (actor.to_owned(), reason.to_owned());
        let _ = self.sender.send(Message::Revoked { owner, actor, reason });
    }

    /// Reports that the connection was reopened, or cannot be reopened, or that all keys may have changed. Every lease
    /// is then verified at once, and every waiting claim asks again.
    pub fn reconnected(&self) {
        let _ = self.sender.send(Message::Reconnected);
    }

    /// Tells the observers.
    pub fn notice(&self, notice: &Notice<'_>) {
        self.observers.notice(notice);
    }
}
