//! One Redis server: its connections, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{RedisError, Value};

use crate::backend::{Claim, Inbox, Renewal};
use crate::clock::{Clock, jitter};
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::Notice;
use crate::key::LockKey;
use crate::options::Durability;
use crate::owner::Holder;
use crate::redis::clock::Floor;
use crate::redis::collisions::Collisions;
use crate::redis::connect::Target;
use crate::redis::discovery::Place;
use crate::redis::durability::Rounds;
use crate::redis::error;
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::redis::pool::Pool;
use crate::redis::push::ChangeListeners;
use crate::redis::repeats::Repeats;
use crate::redis::steps::{self, Unrenewed};

/// How many locks one script renews. This takes about a quarter of a millisecond, in which the server
/// serves nobody else.
const RENEW_BATCH: usize = 50;

/// The upper limits of the pause before reconnecting: the first, and the longest.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How often it is asked how many replicas there are.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) pool: Pool,
    pub(super) listeners: ChangeListeners,
    /// The newest token of the server that this process knows.
    pub(super) floor: Floor,
    pub(super) collisions: Collisions,
    /// What to free again if another server takes over, where that can happen.
    pub(super) repeats: Option<Repeats>,
    pub(super) rounds: Arc<Rounds>,
    /// Where a lock must have arrived before it counts, if its request does not say.
    pub(super) durability: Durability,
    /// Whether the server's eviction policy has been logged.
    warned_of_eviction: AtomicBool,
    /// Whether it has been logged that a failover may lose locks.
    warned_of_replicas: AtomicBool,
}

impl Node {
    pub(super) fn at(target: Target) -> Self {
        Self::found_at(Place::Fixed(Box::new(target)), Durability::Master)
    }

    pub(super) fn found_at(place: Place, durability: Durability) -> Self {
        Self {
            repeats: place.may_move().then(Repeats::default),
            rounds: Rounds::new(place.clone()),
            pool: Pool::new(place),
            listeners: ChangeListeners::default(),
            floor: Floor::default(),
            collisions: Collisions::default(),
            durability,
            warned_of_eviction: AtomicBool::new(false),
            warned_of_replicas: AtomicBool::new(false),
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
            () = self.follow(inbox) => LockError::unavailable("following the master ended"),
            () = self.rotate_credentials() => LockError::unavailable("renewing the credentials ended"),
            () = self.listen(inbox) => LockError::unavailable("listening for grants ended"),
        }
    }

    /// Follows the server from address to address. Never returns.
    async fn follow(&self, inbox: &Inbox) {
        self.rounds.report_to(inbox);
        let moves = async {
            loop {
                self.pool.place().moved().await;
                inbox.notice(&Notice::Moved { node: self.name() });
            }
        };
        tokio::join!(self.pool.place().follow(), moves);
    }

    /// Raises the leases of some claims. Answers come in their order.
    pub(super) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for batch in claims.chunks(RENEW_BATCH) {
            match self.renew_batch(batch).await {
                Ok(batch) => answers.extend(batch),
                Err(error) => answers.extend(batch.iter().map(|claim| Err(error.clone().with_key(&claim.key)))),
            }
        }
        answers
    }

    /// Renews at most [`RENEW_BATCH`] claims.
    async fn renew_batch(&self, claims: &[Claim]) -> Result<Vec<Result<Renewal>>> {
        if let Some(answers) = self.renew_tracked(claims).await {
            return answers;
        }
        let connection = self.pool.connection().await?;
        self.renew_over(&connection.link, claims, false).await
    }

    pub(super) async fn renew_over(&self, link: &Link, claims: &[Claim], track: bool) -> Result<Vec<Result<Renewal>>> {
        let answer = link.eval(&steps::renew(claims, track)).await.map_err(|error| self.failed("renew", &error))?;
        let mut renewals = vec![Ok(Renewal::Renewed); claims.len()];
        for (place, why) in steps::unrenewed(&answer).ok_or_else(|| self.unreadable("renew"))? {
            let Some(renewal) = renewals.get_mut(place) else { return Err(self.unreadable("renew")) };
            *renewal = match why {
                Unrenewed::Lost => Ok(Renewal::Lost),
                Unrenewed::Failed(text) => Err(self.script_failed("renew", &text).with_key(&claims[place].key)),
            };
        }
        self.confirm_renewals(link, claims, &mut renewals).await;
        Ok(renewals)
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

    /// Reports who has a copy of the locks, and whether a failover may lose some.
    async fn check_replication(&self, link: &Link, inbox: &Inbox) {
        let Some((replicas, min_replicas)) = replication(link).await else { return };
        let node = self.name();
        inbox.notice(&Notice::Replication { node, replicas, min_replicas });
        let is_unguarded = replicas > 0 && min_replicas == 0 && self.durability == Durability::Master;
        if is_unguarded && !self.warned_of_replicas.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                node,
                replicas,
                "a failover of this server may lose locks that are held; add acks=1 to its URL, or set \
                 min-replicas-to-write 1",
            );
        }
    }

    /// Keeps a connection open on the keeper, and ends only when that can never succeed.
    async fn keep_connected(&self, inbox: &Inbox) -> LockError {
        let clock = Clock::system();
        let node = self.pool.node();
        let (mut was_up, mut told_down, mut pause) = (false, false, BACKOFF.0);
        let mut failovers = self.pool.history.changes();
        loop {
            let mut retirements = self.pool.retirements();
            match self.pool.connection().await {
                Ok(connection) => {
                    let link = &connection.link;
                    inbox.notice(&Notice::Connection { node, up: true });
                    tracing::debug!(node, generation = link.generation, "connected");
                    if was_up {
                        inbox.reconnected();
                    }
                    if std::mem::replace(&mut failovers, self.pool.history.changes()) != failovers {
                        inbox.notice(&Notice::Failover { node });
                        tracing::warn!(node, "the server has another history than before: it may have lost locks");
                        self.repeat_releases(link).await;
                    }
                    (was_up, told_down) = (true, false);
                    let opened_at = clock.now();
                    let mut ended = std::pin::pin!(link.ended());
                    self.check_eviction(link, inbox).await;
                    self.check_replication(link, inbox).await;
                    // Dropped here, because a connection that was given up must be able to close.
                    drop(connection);
                    loop {
                        tokio::select! {
                            () = &mut ended => break,
                            _ = retirements.changed() => break,
                            () = clock.sleep_until(clock.now().after(CHECK_EVERY)) => {}
                        }
                        if let Ok(connection) = self.pool.connection().await {
                            self.check_replication(&connection.link, inbox).await;
                        }
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
            self.pause(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Waits a little before the server is connected to again, unless it is found at another address.
    pub(super) async fn pause(&self, most: Duration) {
        let clock = Clock::system();
        // Full jitter, so that the processes of a fleet do not reconnect at the same moment.
        tokio::select! {
            () = clock.sleep_until(clock.now().after(jitter(Duration::from_millis(1), most))) => {}
            () = self.pool.place().moved() => {}
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

/// Asks how many replicas are connected, and without how many the server refuses writes.
async fn replication(link: &Link) -> Option<(u32, u32)> {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let replicas = number("connected_slaves:")?;
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("min-replicas-to-write");
    let exactly = match link.send(&config).await {
        Ok(Value::Map(found)) => found.into_iter().next().and_then(|(_, least)| redis::from_redis_value(least).ok()),
        _ => None,
    };
    // Only a server that requires some counts those that are close enough.
    let at_least = u32::from(number("min_slaves_good_slaves:").is_some());
    Some((replicas, exactly.unwrap_or(at_least)))
}
