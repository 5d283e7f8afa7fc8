//! The connection that listens: for grants from the queue, for locks that operators take away, and for
//! changes to locks that were renewed over it.

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::connection::greeting::{Listening, Opened};
use crate::connection::link::{Link, ServerTime};
use crate::protocol::{keys, steps};
use crate::server::node::{BACKOFF, Node};
use lock_store::contract::backend::Inbox;
use lock_store::types::error::LockErrorKind;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Clock;

impl Node {
    /// Listens for grants to this process, and for changes to its locks. While this is not
    /// possible, callers poll and renewals discover losses.
    pub(crate) async fn listen(&self, inbox: &Inbox) {
        let clock = Clock::system();
        let channel = keys::inbox_channel(inbox.id());
        let (mut was_open, mut missed, mut deaf, mut backoff) = (false, false, false, BACKOFF);
        loop {
            let mut retirements = self.pool.retirements();
            let begun = clock.now();
            match self.pool.place.listen(&[&channel, keys::REVOKED]).await {
                Ok(Opened { connection, client, history, moves, more: Listening { mut pushes, tracks } }) => {
                    self.pool.history.observe(history.as_ref());
                    // The connection ends when the last handle to it goes, and with it what waits for that.
                    let (_alive, gone) = watch::channel(());
                    let time = ServerTime::new(0, clock.now());
                    let link = Link::new(connection, self.pool.number(), begun, time, gone, client);
                    let link = link.to(history, moves);
                    let moved = link.ended();
                    let (listener, _open) = self.listeners.open(link, tracks);
                    let _hearing = self.hears(inbox);
                    was_open = true;
                    deaf = false;
                    if std::mem::replace(&mut missed, true) {
                        // Some grants and changes may have been missed, and nothing says which.
                        inbox.reconnected();
                    }
                    let opened_at = clock.now();
                    tokio::select! {
                        () = self.hear(&mut pushes, inbox) => {}
                        () = listener.prove_alive(&self.sleepers) => {}
                        () = listener.keep_tracking(&self.listeners, inbox, self.name()) => {}
                        () = moved => {}
                        _ = retirements.changed() => {}
                    }
                    backoff.went_well_for(clock.now().since(opened_at));
                }
                Err(error) => {
                    missed = true;
                    if was_open && !std::mem::replace(&mut deaf, true) {
                        // Claims that sleep rely on being told. From now on they poll.
                        inbox.reconnected();
                    }
                    if error.kind() == LockErrorKind::Misconfigured {
                        self.listeners.refuse();
                    }
                    tracing::debug!(node = self.name(), %error, "cannot listen for grants");
                }
            }
            self.pause(&mut backoff).await;
        }
    }

    /// Passes on the server's messages, until the connection ends.
    async fn hear(&self, pushes: &mut UnboundedReceiver<PushInfo>, inbox: &Inbox) {
        while let Some(push) = pushes.recv().await {
            match push.kind {
                PushKind::Message => {
                    let [Value::BulkString(channel), Value::BulkString(text)] = push.data.as_slice() else { continue };
                    if channel == keys::REVOKED.as_bytes() {
                        if let Some((owner, actor, reason)) = steps::revocation(text) {
                            inbox.revoked(owner, actor, reason);
                        }
                    } else {
                        self.receive(text, inbox);
                    }
                }
                PushKind::Invalidate => match push.data.first() {
                    Some(Value::Array(keys)) => {
                        for key in keys {
                            if let Value::BulkString(key) = key
                                && let Some(key) = std::str::from_utf8(key).ok().and_then(|key| LockKey::new(key).ok())
                            {
                                inbox.suspect(key);
                            }
                        }
                    }
                    // No key: all of them, after FLUSHALL. The queue is gone too, so waiters ask again.
                    _ => inbox.reconnected(),
                },
                PushKind::Disconnection => return,
                _ => {}
            }
        }
    }

    /// Passes on a message to the inbox of this process.
    pub(crate) fn receive(&self, text: &[u8], inbox: &Inbox) {
        if let Some(grant) = steps::granted(text)
            && self.cluster.as_ref().is_none_or(|cluster| cluster.is_news(&grant))
        {
            inbox.granted(grant);
        } else if let Some(owner) = steps::wanted(text) {
            inbox.wanted(owner);
        } else if let Some(owner) = steps::called(text) {
            inbox.ask_again(owner);
        }
    }
}
