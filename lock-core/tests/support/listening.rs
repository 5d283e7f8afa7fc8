//! A store that is driven without a manager.

use std::sync::Arc;

use lock_core::LockBackend;
use lock_store::Inbox;
use lock_testing::{EventLog, Reports, inbox};

use crate::support::eventually;

/// Drives a store, and waits until it delivers. Returns the inbox to which it does, and the other end of that.
pub(crate) async fn listening<B: LockBackend>(store: &Arc<B>) -> (Inbox, Reports) {
    let (inbox, reports) = inbox(EventLog::default());
    tokio::spawn({
        let (store, inbox) = (Arc::clone(store), inbox.clone());
        async move { store.drive(inbox).await }
    });
    eventually("it listens", || inbox.is_open()).await;
    (inbox, reports)
}
