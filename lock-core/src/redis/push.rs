//! The connection that listens: for grants from the queue, for locks that operators take away, and for
//! changes to locks that were renewed over it.
//!
//! Redis remembers which connection read a key (`CLIENT TRACKING`) and reports the key's next
//! change to it: `DEL`, `SET`, expiry, eviction, `FLUSHALL`. Only renewals read anything over this
//! connection, so a lock that is released before its first renewal costs nothing, and `NOLOOP`
//! keeps our own renewals quiet. Such a report is only a hint: the keeper asks the server before it
//! believes it. It may also be false: a server that tracks more keys than `tracking-table-max-keys`
//! allows forgets some, and reports them as changed.
//!
//! What was refused, tracking or reading, is asked for again while the connection lasts.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};

use crate::backend::Inbox;
use crate::clock::{Clock, jitter};
use crate::error::LockErrorKind;
use crate::key::LockKey;
use crate::redis::keep::BACKOFF;
use crate::redis::link::{Link, ServerTime};
use crate::redis::node::Node;
use crate::redis::{greeting, keys, steps};

/// How long the connection may take to prove that it is alive, after a renewal without an answer.
const PROOF_WITHIN: Duration = Duration::from_secs(1);

/// The pauses before the server is asked again for what it refused: the first, and the longest.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The listening connections of one store, one for each runtime with a keeper.
#[derive(Debug, Default)]
pub(super) struct ChangeListeners {
    open: Mutex<HashMap<Id, Arc<ChangeListener>>>,
    /// Whether the server does not report changes, or does not let us ask for reports.
    refused: AtomicBool,
}

/// A connection on which the server reports changes, if it is willing to.
#[derive(Debug)]
pub(super) struct ChangeListener {
    pub(super) link: Link,
    /// Whether the server reports changes to the keys that are read over it.
    tracks: AtomicBool,
    refused: Notify,
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

    /// Returns the connection to renew over, if this is a keeper whose connection tracks and seems alive.
    pub(super) fn current(&self) -> Option<Arc<ChangeListener>> {
        let runtime = Handle::try_current().ok()?.id();
        let serves = |listener: &&Arc<ChangeListener>| {
            listener.tracks.load(Ordering::Relaxed) && !listener.in_doubt.load(Ordering::Relaxed)
        };
        self.open().get(&runtime).filter(serves).cloned()
    }
}

impl ChangeListener {
    /// Notes that the server refuses to let us read over this connection.
    pub(super) fn refuse(&self) {
        self.tracks.store(false, Ordering::Relaxed);
        self.refused.notify_one();
    }

    /// Begins a renewal: unless it is answered, the connection must prove that it is alive.
    pub(super) fn unanswered(&self) -> Unanswered<'_> {
        Unanswered(Some(self))
    }

    /// Checks that the connection is alive after each renewal that got no answer. Ends when it is
    /// not.
    async fn prove_alive(&self) {
        loop {
            self.doubted.notified().await;
            let ping = redis::cmd("PING");
            #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
            let proof = tokio::time::timeout(PROOF_WITHIN, self.link.send(&ping)).await;
            // A refusal is an answer too.
            let alive = proof.is_ok_and(|answer| answer.map_or_else(|error| error.code().is_some(), |_| true));
            if !alive {
                return;
            }
            self.in_doubt.store(false, Ordering::Relaxed);
        }
    }

    /// Asks the server to report changes again whenever it has refused, with growing pauses. Ends with the
    /// connection.
    async fn keep_tracking(&self, listeners: &ChangeListeners, inbox: &Inbox, node: &str) {
        let clock = Clock::system();
        let mut pause = ASK_AGAIN.0;
        loop {
            if self.tracks.load(Ordering::Relaxed) {
                listeners.refused.store(false, Ordering::Relaxed);
                let since = clock.now();
                self.refused.notified().await;
                if clock.now().since(since) > ASK_AGAIN.1 {
                    pause = ASK_AGAIN.0;
                }
            }
            if !listeners.refused.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    node,
                    "this server does not tell of changes to locks, so renewals discover losses; it takes Redis 7 \
                     and permission for CLIENT TRACKING and MGET",
                );
            }
            clock.sleep_until(clock.now().after(jitter(pause / 2, pause))).await;
            pause = (pause * 2).min(ASK_AGAIN.1);
            let Ok(answers) = self.link.send_all(&greeting::tracking()).await else { return };
            if greeting::tracks(&answers) {
                self.tracks.store(true, Ordering::Relaxed);
                // Renews every lease, which the server then tracks.
                inbox.reconnected();
            }
        }
    }
}

/// Makes a connection available to renewals, until it is dropped.
struct Opened<'a> {
    listeners: &'a ChangeListeners,
    runtime: Id,
    listener: Arc<ChangeListener>,
}

impl<'a> Opened<'a> {
    fn new(listeners: &'a ChangeListeners, link: Link, tracks: bool) -> Self {
        let listener = Arc::new(ChangeListener {
            link,
            tracks: tracks.into(),
            refused: Notify::new(),
            in_doubt: AtomicBool::new(false),
            doubted: Notify::new(),
        });
        let runtime = Handle::current().id();
        listeners.open().insert(runtime, Arc::clone(&listener));
        Self { listeners, runtime, listener }
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
pub(super) struct Unanswered<'a>(Option<&'a ChangeListener>);

impl Unanswered<'_> {
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

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
        let (mut was_open, mut pause) = (None, BACKOFF.0);
        loop {
            let mut retirements = self.pool.retirements();
            match self.pool.place().listen(&[&channel, keys::REVOKED]).await {
                Ok(mut listening) => {
                    self.pool.history.observe(listening.history.as_ref());
                    // The connection ends when the last handle to it goes, and with it what waits for that.
                    let (_open, gone) = watch::channel(());
                    let time = ServerTime::new(0, clock.now());
                    let (connection, client) = (listening.connection, listening.client);
                    let link = Link::new(connection, self.pool.number(), time, gone, client);
                    let link = link.to(listening.history, listening.moves);
                    let moved = link.ended();
                    let opened = Opened::new(&self.listeners, link, listening.tracks);
                    let _hearing = self.hears(inbox);
                    let before = was_open.replace(opened.listener.link.generation);
                    if before.is_some() {
                        // Some grants and changes may have been missed, and nothing says which.
                        inbox.reconnected();
                    }
                    let opened_at = clock.now();
                    tokio::select! {
                        () = self.hear(&mut listening.pushes, inbox) => {}
                        () = self.settle_renewals(&opened.listener.link, before) => {}
                        () = opened.listener.prove_alive() => {}
                        () = opened.listener.keep_tracking(&self.listeners, inbox, self.pool.node()) => {}
                        () = moved => {}
                        _ = retirements.changed() => {}
                    }
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

    /// Makes sure that the server executes no renewal any more that went over the connection before, so that
    /// its claims can be renewed natively again. Never returns.
    async fn settle_renewals(&self, link: &Link, before: Option<u64>) {
        if let Some(sent) = before.and_then(|generation| self.renewals.in_flight.over(generation))
            && let Err(error) = self.close(link, &sent).await
        {
            tracing::debug!(node = self.pool.node(), %error, "renewals of an earlier connection stay in doubt");
        }
        pending::<()>().await;
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
                    } else if let Some(owner) = steps::wanted(text) {
                        inbox.wanted(owner);
                    } else if let Some(owner) = steps::called(text) {
                        inbox.ask_again(owner);
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
