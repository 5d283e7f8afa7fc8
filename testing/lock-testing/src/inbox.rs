//! An inbox for driving a store without a manager.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use lock_store::contract::backend::{Grant, Inbox, Message};
use lock_store::contract::event::{LockObserver, Observers};
use lock_store::types::key::LockKey;
use lock_store::types::owner::OwnerId;

/// Makes an [`Inbox`] for [`LockBackend::drive`](lock_store::LockBackend::drive), with its receiving end.
///
/// `observer` receives the notices of the store.
pub fn inbox(observer: impl LockObserver) -> (Inbox, Reports) {
    let observers = Observers::new();
    observers.add(Arc::new(observer));
    let (inbox, messages) = Inbox::new(Arc::new(observers));
    (inbox, Reports(messages))
}

/// Makes an [`Inbox`] that a store addresses by the same name as `inbox`. Its reports wait at the receiving end, where
/// a simulated network can pass them on or lose them.
#[must_use]
pub fn stand_in(inbox: &Inbox) -> (Inbox, Reports) {
    let (stand_in, messages) = inbox.stand_in();
    (stand_in, Reports(messages))
}

/// The reports that a store sent into an inbox made by [`inbox`] or [`stand_in`].
///
/// ```
/// use lock_testing::{EventLog, inbox};
///
/// // `LockBackend::drive` of the store under test gets the inbox; the test reads the reports.
/// let (inbox, reports) = inbox(EventLog::default());
/// # drop((inbox, reports));
/// ```
#[derive(Debug)]
pub struct Reports(UnboundedReceiver<Message>);

/// One report of a store.
///
/// See the example of [`Reports`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// The lock passed to a claim in the queue.
    Granted(Grant),
    /// A claim in the queue must ask again.
    AskAgain(OwnerId),
    /// A key may have changed hands.
    Suspect(LockKey),
    /// A claim waits for a lock that this owner's claim shares.
    Wanted(OwnerId),
    /// An operator takes this owner's lock away.
    Revoked(OwnerId),
    /// The connection was reopened.
    Reconnected,
}

impl Reports {
    /// Waits for the next report. `None` once the inbox is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no report.
    pub async fn next(&mut self) -> Option<Report> {
        self.0.recv().await.map(Report::from)
    }

    /// Waits for the next grant, and skips all other reports. `None` once the inbox is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no grant.
    pub async fn next_grant(&mut self) -> Option<Grant> {
        loop {
            if let Message::Granted(grant) = self.0.recv().await? {
                return Some(grant);
            }
        }
    }

    /// Returns the next report if it is there already.
    pub fn try_next(&mut self) -> Option<Report> {
        self.0.try_recv().ok().map(Report::from)
    }
}

impl From<Message> for Report {
    fn from(message: Message) -> Self {
        match message {
            Message::Granted(grant) => Self::Granted(grant),
            Message::AskAgain(owner) => Self::AskAgain(owner),
            Message::Suspect(key) => Self::Suspect(key),
            Message::Wanted(owner) => Self::Wanted(owner),
            Message::Revoked { owner, .. } => Self::Revoked(owner),
            Message::Reconnected => Self::Reconnected,
        }
    }
}
