//! The place of a session. A call that needs a session waits here until there is one.

use std::sync::Arc;

use lock_store::{Clock, LockError, Result, Timestamp};
use tokio::sync::{Notify, watch};

use crate::session::{Session, within};
use crate::url::Settings;

/// The knowledge about a session.
#[derive(Clone)]
pub(crate) enum Known {
    Nothing,
    Open(Arc<Session>),
    Failed(LockError),
}

/// The place of a session.
pub(crate) struct Slot {
    pub(crate) known: watch::Sender<Known>,
    /// Asks for a session to be opened.
    pub(crate) wanted: Notify,
    /// Whether its session ends only some time after the store: see [`Session::open`].
    pub(crate) lingers: bool,
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
        let is_left = |known: &Known| !matches!(known, Known::Open(open) if open.id == session.id);
        let _ = self.known.subscribe().wait_for(is_left).await;
    }
}
