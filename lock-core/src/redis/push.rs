//! The connection that listens: for grants from the queue, for locks that operators take away, and for
//! changes to locks that were renewed over it.
//!
//! Redis remembers which connection read a key (`CLIENT TRACKING`) and reports the key's next
//! change to it: `DEL`, `SET`, expiry, eviction, `FLUSHALL`. Only renewals read anything over this
//! connection, so a lock that is released before its first renewal costs nothing, and `NOLOOP`
//! keeps our own renewals quiet. Such a report is only a hint: the keeper asks the server before it
//! believes it.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};

use crate::backend::{Claim, Inbox, Renewal};
use crate::clock::Clock;
use crate::error::{LockError, LockErrorKind, Result};
use crate::key::LockKey;
use crate::redis::link::{Link, ServerTime};
use crate::redis::node::{BACKOFF, Node};
use crate::redis::{keys, steps};

/// How long the connection may take to prove that it is alive, after a renewal without an answer.
const PROOF_WITHIN: Duration = Duration::from_secs(1);

/// The listening connections of one store, one for each runtime with a keeper.
#[derive(Debug, Default)]
pub(super) struct ChangeListeners {
    open: Mutex<HashMap<Id, Arc<ChangeListener>>>,
    /// Whether the server does not report changes, or does not let us ask for reports.
    refused: AtomicBool,
}

/// A connection on which the server reports changes.
#[derive(Debug)]
struct ChangeListener {
    link: Link,
    /// Whether a renewal got no answer. Until the connection proves alive, other renewals go over
    /// another connection.
    in_doubt: AtomicBool,
    doubted: Notify,
}

impl ChangeListeners {
    /// Returns whether the server reports changes, as far as is known.
    pub(super) fn can_hear(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Id, Arc<ChangeListener>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command over every listening connection, and returns what was refused.
    pub(super) async fn send_to_all(&self, command: &Cmd) -> Vec<RedisError> {
        let all: Vec<_> = self.open().values().cloned().collect();
        let mut refused = Vec::new();
        for listener in all {
            refused.extend(listener.link.send(command).await.err());
        }
        refused
    }

    /// Returns the connection to renew over, if this is a keeper and its connection seems alive.
    fn current(&self) -> Option<Arc<ChangeListener>> {
        let runtime = Handle::try_current().ok()?.id();
        self.open().get(&runtime).filter(|listener| !listener.in_doubt.load(Ordering::Relaxed)).cloned()
    }
}

/// Makes a connection available to renewals, until it is dropped.
struct Opened<'a> {
    listeners: &'a ChangeListeners,
    runtime: Id,
    listener: Arc<ChangeListener>,
}

impl<'a> Opened<'a> {
    fn new(listeners: &'a ChangeListeners, runtime: Id, link: Link) -> Self {
        let listener = Arc::new(ChangeListener { link, in_doubt: AtomicBool::new(false), doubted: Notify::new() });
        listeners.open().insert(runtime, Arc::clone(&listener));
        Self { listeners, runtime, listener }
    }

    /// Checks that the connection is alive after each renewal that got no answer. Ends when it is
    /// not.
    async fn prove_alive(&self) {
        loop {
            self.listener.doubted.notified().await;
            let ping = redis::cmd("PING");
            #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
            let proof = tokio::time::timeout(PROOF_WITHIN, self.listener.link.send(&ping)).await;
            // A refusal is an answer too.
            let alive = proof.is_ok_and(|answer| answer.map_or_else(|error| error.code().is_some(), |_| true));
            if !alive {
                return;
            }
            self.listener.in_doubt.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let mut open = self.listeners.open();
        // Another manager on the same runtime may have put its own connection here.
        let removed = match open.get(&self.runtime) {
            Some(listener) if Arc::ptr_eq(listener, &self.listener) => open.remove(&self.runtime),
            _ => None,
        };
        drop(open);
        drop(removed);
    }
}

/// Marks a connection as doubtful if this is dropped before the answer has come.
struct Unanswered<'a>(Option<&'a ChangeListener>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(listener) = self.0 {
            listener.in_doubt.store(true, Ordering::Relaxed);
            listener.doubted.notify_one();
        }
    }
}

impl Node {
    /// Listens for grants to this process, and for changes to its locks. While this is not
    /// possible, callers poll and renewals discover losses.
    pub(super) async fn listen(&self, inbox: &Inbox) {
        let clock = Clock::system();
        let channel = keys::inbox_channel(inbox.id());
        let (mut was_open, mut pause) = (false, BACKOFF.0);
        loop {
            let mut retirements = self.pool.retirements();
            match self.pool.place().listen(&[&channel, keys::REVOKED]).await {
                Ok(mut listening) => {
                    self.pool.history.observe(listening.history.as_ref());
                    let connection = listening.connection;
                    let (_open, gone) = watch::channel(());
                    let time = ServerTime::new(0, clock.now());
                    let told_before = self.listeners.refused.swap(!listening.tracks, Ordering::Relaxed);
                    if !listening.tracks && !told_before {
                        tracing::info!(
                            node = self.pool.node(),
                            "this server does not tell of changes to locks, so renewals discover losses; it takes \
                             Redis 7 and permission for CLIENT TRACKING",
                        );
                    }
                    let link =
                        Link::new(connection.clone(), 0, time, gone, None).to(listening.history, listening.moves);
                    let moved = link.ended();
                    let opened = listening.tracks.then(|| Opened::new(&self.listeners, Handle::current().id(), link));
                    let hearing = self.hears(inbox);
                    if was_open {
                        // Some grants and changes may have been missed, and nothing says which.
                        inbox.reconnected();
                    }
                    was_open = true;
                    let opened_at = clock.now();
                    let silenced = async {
                        match &opened {
                            Some(opened) => opened.prove_alive().await,
                            None => pending().await,
                        }
                    };
                    tokio::select! {
                        () = self.hear(&mut listening.pushes, inbox) => {}
                        () = silenced => {}
                        () = moved => {}
                        _ = retirements.changed() => {}
                    }
                    drop(hearing);
                    drop(connection);
                    if clock.now().since(opened_at) >= BACKOFF.1 {
                        pause = BACKOFF.0;
                    }
                }
                Err(error) => {
                    if error.kind() == LockErrorKind::Misconfigured {
                        self.listeners.refused.store(true, Ordering::Relaxed);
                    }
                    tracing::debug!(node = self.pool.node(), %error, "cannot listen for grants");
                }
            }
            self.pause(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Renews claims over the listening connection, which then receives changes to them. `None` if
    /// there is no such connection, or the server refuses.
    pub(super) async fn renew_tracked(&self, claims: &[Claim]) -> Option<Result<Vec<Result<Renewal>>>> {
        let listener = self.listeners.current()?;
        let mut unanswered = Unanswered(Some(&listener));
        let answers = self.renew_over(&listener.link, claims, true).await;
        if answers.is_ok() {
            unanswered.0 = None;
        }
        let denied = |error: &LockError| error.kind() == LockErrorKind::Misconfigured;
        let refused = match &answers {
            Ok(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(denied)),
            Err(error) => denied(error),
        };
        if refused {
            // MGET may be forbidden where GET is not. Renewing without tracking shows whether that
            // is the only problem.
            unanswered.0 = None;
            self.listeners.refused.store(true, Ordering::Relaxed);
            let removed = self.listeners.open().remove(&Handle::current().id());
            drop(removed);
            return None;
        }
        Some(answers)
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
                    } else if let Some(grant) = steps::granted(text)
                        && self.cluster.as_ref().is_none_or(|cluster| cluster.is_news(&grant))
                    {
                        inbox.granted(grant);
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
}
