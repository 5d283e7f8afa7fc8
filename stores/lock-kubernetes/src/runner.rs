//! The work on the thread of a store beside its calls.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_store::thread::{OnThread, ThreadState};
use lock_store::{Claim, Inbox, LockError, Notice};
use tokio::task::JoinSet;

use crate::calls::acquire::undo;
use crate::shared::Shared;
use crate::url::Settings;
use crate::watch::{wake, watch};

/// How long a background connection is waited for before its failure is reported.
const PATIENCE: Duration = Duration::from_secs(5);

impl OnThread for Shared {
    type Settings = Settings;

    const THREAD: &'static str = "lock-kubernetes";
    const SERVER: &'static str = "the API server";

    fn begin(settings: Settings, thread: ThreadState) -> Arc<Self> {
        let shared = Arc::new(Self::new(settings, thread));
        shared.runtime.spawn(wake(Arc::clone(&shared)));
        shared
    }

    async fn give_back(shared: &Arc<Self>, claim: &Claim) {
        undo(shared, claim).await;
    }

    async fn end(_: &Arc<Self>) {}
}

/// Watches the namespace while an inbox listens.
pub(crate) async fn attend(shared: &Arc<Shared>, inbox: &Inbox) -> LockError {
    if let Err(error) = shared.api.connection(shared.now().after(PATIENCE)).await {
        inbox.notice(&Notice::Connection { node: &shared.api.settings.node, up: false });
        return error;
    }
    let _listening = shared.listen(inbox);
    // Dropped first. Otherwise the watch could open the inbox again after it was closed.
    let mut watching = JoinSet::new();
    watching.spawn_on(watch(Arc::clone(shared)), &shared.runtime);
    pending().await
}
