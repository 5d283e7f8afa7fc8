//! Opens the session of a place when a call needs it, and watches it until it ends.

use std::sync::Arc;
use std::time::Duration;

use lock_store::Notice;
use zookeeper_client::SessionState;

use crate::session::{Session, sleep, within};
use crate::shared::Shared;
use crate::slot::{Known, Slot};

/// Opens the session of a place whenever one is wanted. Never returns.
pub(crate) async fn open_when_wanted(shared: Arc<Shared>, place: fn(&Shared) -> &Slot) {
    let slot = place(&shared);
    loop {
        slot.wanted.notified().await;
        let known = slot.known.borrow().clone();
        if let Known::Open(session) = known {
            if !session.has_ended() {
                continue;
            }
            shared.lose(&session);
        }
        match Session::open(&shared.settings, &shared.paths, slot.lingers).await {
            Ok(session) => {
                shared.note_written(&session, session.began.0, session.began.1);
                let session = Arc::new(session);
                slot.known.send_replace(Known::Open(Arc::clone(&session)));
                shared.runtime.spawn(attend(Arc::clone(&shared), place, session));
            }
            Err(error) => drop(slot.known.send_replace(Known::Failed(error))),
        }
    }
}

/// Watches a session until it ends. All of its claims are lost then.
async fn attend(shared: Arc<Shared>, place: fn(&Shared) -> &Slot, session: Arc<Session>) {
    let tell = |up: bool| {
        if let Some(inbox) = shared.inbox().filter(|_| !place(&shared).lingers) {
            inbox.notice(&Notice::Connection { node: &shared.settings.hosts, up });
            if up {
                // Messages may be missing. Holders and waiters ask again.
                inbox.reconnected();
            }
        }
    };
    let ended = async {
        let (mut states, mut is_up) = (session.states(), true);
        while !session.has_ended() {
            if session.client.state() == SessionState::SyncConnected {
                if !std::mem::replace(&mut is_up, true) {
                    tell(true);
                }
                states.changed().await;
                continue;
            }
            if std::mem::replace(&mut is_up, false) {
                tell(false);
            }
            // The client gives a session up after 1.4 of its time without an answer. This is the latest that it may.
            if within(session.lasts * 2, states.changed()).await.is_none() {
                return;
            }
        }
    };
    tokio::select! {
        () = ended => {
            tracing::debug!(session = session.id, "a session with ZooKeeper has ended, and its locks with it");
            shared.lose(&session);
        }
        // The store is dropped. A session is closed as soon as nobody has it.
        () = place(&shared).left(&session) => {}
    }
}

/// Closes a session, and waits until the servers know.
pub(crate) async fn close(session: Arc<Session>) {
    let mut states = session.states();
    drop(session);
    // The client ends its task when it has sent the request.
    let closed = async {
        while !states.changed().await.is_terminated() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = within(Duration::from_millis(500), closed).await;
}
