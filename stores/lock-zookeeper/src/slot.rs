//! The place of a session: it is opened when a call needs it, and watched until it ends.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{Clock, LockError, Notice, Result, Timestamp};
use tokio::sync::{Notify, watch};
use zookeeper_client::SessionState;

use crate::session::{Session, sleep, within};
use crate::shared::Shared;
use crate::url::Settings;

/// The knowledge about a session.
#[derive(Clone, Debug)]
enum Known {
    Nothing,
    Open(Arc<Session>),
    Failed(LockError),
}

/// The place of a session.
#[derive(Debug)]
pub(crate) struct Slot {
    known: watch::Sender<Known>,
    wanted: Notify,
    /// Whether its session ends only some time after the store: see [`Session::open`].
    lingers: bool,
}

impl Slot {
    pub(crate) fn new(lingers: bool) -> Self {
        Self { known: watch::Sender::new(Known::Nothing), wanted: Notify::new(), lingers }
    }

    /// Returns the session once it is connected. Opens it if there is none.
    pub(crate) async fn session(&self, settings: &Settings, clock: &Clock, until: Timestamp) -> Result<Arc<Session>> {
        let (mut changes, mut asked) = (self.known.subscribe(), false);
        let reached = async {
            loop {
                let known = changes.borrow_and_update().clone();
                match known {
                    Known::Open(session) if !session.has_ended() => {
                        tokio::select! {
                            () = session.connected() => return Ok(session),
                            _ = changes.changed() => continue,
                        }
                    }
                    Known::Failed(error) if asked => return Err(error),
                    _ => {}
                }
                if !std::mem::replace(&mut asked, true) {
                    self.wanted.notify_one();
                }
                // The sender is this.
                let _ = changes.changed().await;
            }
        };
        within(until.since(clock.now()), reached).await.unwrap_or_else(|| {
            Err(LockError::not_executed(format!(
                "ZooKeeper at {} was not reached in time; the request was not sent",
                settings.hosts
            )))
        })
    }

    /// Forgets a session that has ended. Returns whether it was in this place.
    pub(crate) fn leave(&self, session: &Session) -> bool {
        self.known.send_if_modified(|known| {
            let is_here = matches!(&*known, Known::Open(open) if open.id == session.id);
            if is_here {
                *known = Known::Nothing;
            }
            is_here
        })
    }

    /// Takes the session out, to close it.
    pub(crate) fn take(&self) -> Option<Arc<Session>> {
        match self.known.send_replace(Known::Nothing) {
            Known::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Waits until there is a session.
    pub(crate) async fn opened(&self) -> Arc<Session> {
        let mut changes = self.known.subscribe();
        loop {
            if let Known::Open(session) = &*changes.borrow_and_update() {
                return Arc::clone(session);
            }
            let _ = changes.changed().await;
        }
    }

    /// Waits until a session is no longer in this place.
    pub(crate) async fn left(&self, session: &Session) {
        let mut changes = self.known.subscribe();
        while matches!(&*changes.borrow_and_update(), Known::Open(open) if open.id == session.id) {
            let _ = changes.changed().await;
        }
    }
}

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
                shared.note_time(session.began.0, session.began.1);
                let session = Arc::new(session);
                slot.known.send_replace(Known::Open(Arc::clone(&session)));
                shared.spawn(attend(Arc::clone(&shared), place, session));
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
