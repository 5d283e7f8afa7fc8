//! One Redis server: its connections, and what is known of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{RedisError, Value};

use crate::backend::Inbox;
use crate::clock::{Clock, jitter};
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::Notice;
use crate::key::LockKey;
use crate::owner::Holder;
use crate::redis::clock::Floor;
use crate::redis::collisions::Collisions;
use crate::redis::connect::Target;
use crate::redis::error;
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::redis::pool::Pool;
use crate::redis::push::ChangeListeners;
use crate::redis::renewals::Renewals;
use crate::redis::steps;

/// The upper limits of the pause before reconnecting: the first, and the longest.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) pool: Pool,
    pub(super) listeners: ChangeListeners,
    /// The newest token of the server that this process knows.
    pub(super) floor: Floor,
    pub(super) collisions: Collisions,
    pub(super) renewals: Renewals,
    /// Whether the server's eviction policy has been logged.
    warned_of_eviction: AtomicBool,
}

impl Node {
    pub(super) fn at(target: Target) -> Self {
        Self {
            pool: Pool::new(target),
            listeners: ChangeListeners::default(),
            floor: Floor::default(),
            collisions: Collisions::default(),
            renewals: Renewals::default(),
            warned_of_eviction: AtomicBool::new(false),
        }
    }

    /// Returns the server's name, without credentials.
    pub(super) fn name(&self) -> &str {
        self.pool.node()
    }

    /// Keeps the connections for background work open, until that can never succeed.
    pub(super) async fn drive(&self, inbox: &Inbox) -> LockError {
        tokio::select! {
            error = self.keep_connected(inbox) => error,
            () = self.rotate_credentials() => LockError::unavailable("renewing the credentials ended"),
            () = self.listen(inbox) => LockError::unavailable("listening for grants ended"),
        }
    }

    pub(super) async fn read_holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        let call = steps::holder(&Keys::of(key)?);
        let connection = self.pool.connection().await?;
        let answer = connection.link.eval(&call).await.map_err(|error| self.failed("look at the holder", &error))?;
        steps::read_holder(&answer).ok_or_else(|| self.unreadable("look at the holder"))
    }

    /// Reports whether the server may evict locks when its memory is full.
    async fn check_eviction(&self, link: &Link, inbox: &Inbox) {
        let Some(policy) = eviction_policy(link).await else { return };
        inbox.notice(&Notice::EvictionPolicy { node: self.pool.node(), policy: &policy });
        if policy != "noeviction" && !self.warned_of_eviction.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                node = self.pool.node(),
                policy,
                "this server evicts keys when its memory is full, and locks are the first to go; \
                 set maxmemory-policy to noeviction",
            );
        }
    }

    /// Keeps a connection open on the keeper, and ends only when that can never succeed.
    async fn keep_connected(&self, inbox: &Inbox) -> LockError {
        let clock = Clock::system();
        let node = self.pool.node();
        let (mut was_up, mut told_down, mut pause) = (false, false, BACKOFF.0);
        loop {
            match self.pool.connection().await {
                Ok(connection) => {
                    let link = &connection.link;
                    inbox.notice(&Notice::Connection { node, up: true });
                    tracing::debug!(node, generation = link.generation, "connected");
                    if was_up {
                        inbox.reconnected();
                    }
                    (was_up, told_down) = (true, false);
                    let opened_at = clock.now();
                    let (mut gone, mut retirements) = (link.gone(), self.pool.retirements());
                    self.check_eviction(link, inbox).await;
                    // Dropped here, because a connection that was given up must be able to close.
                    drop(connection);
                    tokio::select! {
                        _ = gone.changed() => {}
                        _ = retirements.changed() => {}
                    }
                    // One that is closed as it opens is no success.
                    if clock.now().since(opened_at) >= BACKOFF.1 {
                        pause = BACKOFF.0;
                    }
                    tracing::debug!(node, "disconnected");
                }
                Err(error) if error.kind() == LockErrorKind::Misconfigured => return error,
                Err(error) => tracing::debug!(node, %error, "cannot connect"),
            }
            if !told_down {
                inbox.notice(&Notice::Connection { node, up: false });
                told_down = true;
            }
            // Full jitter, so that the processes of a fleet do not reconnect at the same moment.
            clock.sleep_until(clock.now().after(jitter(Duration::from_millis(1), pause))).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    pub(super) fn failed(&self, op: &str, error: &RedisError) -> LockError {
        let text = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        self.retire_if_demoted(&text);
        error::executing(self.pool.node(), op, error)
    }

    /// The same for an error that a script answered.
    pub(super) fn script_failed(&self, op: &str, text: &str) -> LockError {
        self.retire_if_demoted(text);
        error::answered(self.pool.node(), op, text)
    }

    fn retire_if_demoted(&self, text: &str) {
        if error::is_of_replica(text) {
            self.pool.retire();
        }
    }

    pub(super) fn unreadable(&self, op: &str) -> LockError {
        error::unreadable(self.pool.node(), op)
    }
}

/// Asks for the eviction policy, in the way that managed servers allow if they forbid the direct
/// one.
async fn eviction_policy(link: &Link) -> Option<String> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy");
    if let Ok(Value::Map(found)) = link.send(&config).await
        && let Some((_, Value::BulkString(policy))) = found.into_iter().next()
    {
        return String::from_utf8(policy).ok();
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(|policy| policy.trim().to_owned())
}
