//! Confirmation by replicas and disks, for all that a server has executed.
//!
//! A round is a write and `WAIT` behind it, on a connection of its own, because `WAIT` holds its connection up. `WAIT`
//! counts from the last write of its connection, so without a write of its own it would confirm nothing. With one it
//! covers everything that the server executed before, from any connection. So one round serves all waiting callers. Rounds
//! that ask for different things have connections of their own. So locks that nobody confirms do not delay the renewals of others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;

use crate::batch::coalesce::Coalescer;
use crate::connection::greeting::line;
use crate::connection::link::{Link, within};
use crate::connection::slots::Topology;
use crate::error;
use crate::protocol::keys::hash_slot::slot_of_name;
use crate::sentinel::place::Place;
use crate::server::pool::Pool;
use lock_store::contract::backend::Inbox;
use lock_store::contract::event::Notice;
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::Clock;
use lock_store::types::system::sync::Mutex;

/// How long one round waits for confirmations, in ms.
const ROUND: u64 = 1000;
/// How long a round waits for an answer at all.
const SILENCE: Duration = Duration::from_millis(2 * ROUND);

/// The reaction to replicas that do not confirm.
const REPLICAS: &str = "see INFO replication for a replica that is away or slow, or ask for fewer acks";

/// The state of a round: not finished yet, or the history of the server that confirmed it.
pub(crate) type Outcome = Option<Result<Option<Arc<str>>>>;

/// A round that gathers those who wait, with the keys that its write may have.
#[derive(Debug)]
struct Gathered {
    outcome: watch::Sender<Outcome>,
    markers: Vec<String>,
}

type Gathering = HashMap<(Id, Wanted), Option<Gathered>>;

/// The confirmations that a round asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) replicas: u64,
    /// Whether disks must have it, and not only memories: on the master, if that is true.
    pub(crate) on_disk: Option<bool>,
    /// Whether these must be all replicas that a master of a cluster has in the end, and not only as many as it had.
    pub(crate) every: bool,
}

/// The rounds of one server.
#[derive(Debug)]
pub(crate) struct Rounds {
    place: Place,
    /// The connections of those that ask for the same.
    pools: Mutex<Vec<(Wanted, Arc<Pool>)>>,
    /// For each runtime whose task makes rounds.
    gathering: Mutex<Gathering>,
    /// The observers of each round, once they are known.
    told: Mutex<Option<Inbox>>,
    /// How many replicas the last round found that asked; 0 before.
    replicas: AtomicU64,
}

impl Rounds {
    pub(crate) fn new(place: Place) -> Arc<Self> {
        let (gathering, told) = (Mutex::default(), Mutex::default());
        Arc::new(Self { place, pools: Mutex::default(), gathering, told, replicas: AtomicU64::new(0) })
    }

    /// Returns how many replicas a round has found, if one has asked.
    pub(crate) fn replicas(&self) -> Option<u64> {
        Some(self.replicas.load(Ordering::Relaxed)).filter(|replicas| *replicas > 0)
    }

    /// Reports every round from now on.
    pub(crate) fn report_to(&self, inbox: &Inbox) {
        *self.told.lock() = Some(inbox.clone());
    }

    fn report(&self, wanted: Wanted, elapsed: Duration, enough: bool) {
        let (told, node) = (self.told.lock().clone(), self.place.name());
        if let Some(inbox) = told {
            inbox.notice(&Notice::Confirmation { node, replicas: wanted.replicas > 0, elapsed, enough });
        }
    }

    /// Joins the next round that begins.
    pub(crate) fn join(
        self: &Arc<Self>,
        runtime: &Handle,
        wanted: Wanted,
        markers: impl FnOnce() -> Vec<String>,
    ) -> watch::Receiver<Outcome> {
        let mut gathering = self.gathering.lock();
        let entry = gathering.entry((runtime.id(), wanted));
        if let Entry::Occupied(entry) = &entry
            && let Some(round) = entry.get()
        {
            return round.outcome.subscribe();
        }
        let (sender, outcome) = watch::channel(None);
        let is_idle = matches!(entry, Entry::Vacant(_));
        entry.insert_entry(Some(Gathered { outcome: sender, markers: markers() }));
        drop(gathering);
        if is_idle {
            let worker = Worker { rounds: Arc::clone(self), runtime: runtime.id(), wanted };
            runtime.spawn(async move { worker.run().await });
        }
        outcome
    }

    /// Makes its next rounds over new connections.
    pub(crate) fn retire(&self) {
        self.pools.lock().iter().for_each(|(_, pool)| pool.retire());
    }

    fn pool(&self, wanted: Wanted) -> Arc<Pool> {
        let mut pools = self.pools.lock();
        if let Some((_, pool)) = pools.iter().find(|(known, _)| *known == wanted) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(self.place.clone()));
        pools.push((wanted, Arc::clone(&pool)));
        pool
    }

    /// Returns every open connection.
    pub(crate) fn open_connections(&self) -> Vec<Arc<Coalescer>> {
        self.pools.lock().iter().flat_map(|(_, pool)| pool.open_connections()).collect()
    }

    /// Makes one round, and another for replicas that have come meanwhile. Returns the history of the server that
    /// confirmed it.
    async fn round(&self, mut wanted: Wanted, markers: &[String]) -> Result<Option<Arc<str>>> {
        let connection = self.pool(wanted).connection().await?;
        let link = &connection.link;
        loop {
            let (local, confirmed, needed) = self.count(link, wanted, markers).await?;
            if confirmed >= needed && (local || wanted.on_disk != Some(true)) {
                return Ok(link.history().cloned());
            }
            if needed <= wanted.replicas {
                return Err(self.too_few(Wanted { replicas: needed, ..wanted }, confirmed));
            }
            wanted.replicas = needed;
        }
    }

    /// Asks whether the disk of the server has what it has executed, and how many replicas; returns how many must.
    async fn count(&self, link: &Link, wanted: Wanted, markers: &[String]) -> Result<(bool, u64, u64)> {
        let mut asking = redis::pipe();
        for marker in markers {
            asking.cmd("XADD").arg(marker).arg("MAXLEN").arg("~").arg(1).arg("*").arg("k").arg("v");
        }
        match wanted.on_disk {
            None => asking.cmd("WAIT").arg(wanted.replicas).arg(ROUND),
            Some(local) => asking.cmd("WAITAOF").arg(u8::from(local)).arg(wanted.replicas).arg(ROUND),
        };
        if wanted.every {
            // Executed after the wait, so that nobody is missing who has come during it.
            asking.cmd("CLUSTER").arg("SLOTS");
            asking.cmd("INFO").arg("replication");
        }
        let node = self.place.name();
        let answers = within(SILENCE, link.send_all(&asking)).await.ok_or_else(|| self.unconfirmed(wanted, SILENCE))?;
        let mut answers = answers.map_err(|error| error::executing(node, "confirm", &error))?;
        let after = answers.split_off((markers.len() + 1).min(answers.len()));
        let Some((answer, written)) = answers.split_last() else { return Err(error::unreadable(node, "confirm")) };
        let refusals: Vec<RedisError> = written.iter().filter_map(refusal).collect();
        // One write is enough.
        let why = if refusals.len() == written.len() { refusals.first().cloned() } else { None };
        if let Some(error) = why.or_else(|| refusal(answer)) {
            return Err(self.refused(&error));
        }
        let (local, replicas) = match answer {
            Value::Int(replicas) => (true, *replicas),
            Value::Array(counts) => match counts.as_slice() {
                [Value::Int(local), Value::Int(replicas)] => (*local > 0, *replicas),
                _ => return Err(error::unreadable(node, "confirm")),
            },
            _ => return Err(error::unreadable(node, "confirm")),
        };
        let confirmed = u64::try_from(replicas).unwrap_or(0);
        if !wanted.every {
            return Ok((local, confirmed, wanted.replicas));
        }
        let taken = markers.iter().zip(written).find(|(_, answer)| refusal(answer).is_none());
        let slot = taken.map(|(marker, _)| slot_of_name(marker));
        if let Some(error) = after.iter().find_map(refusal) {
            return Err(error::executing(node, "count its replicas", &error));
        }
        let known = slot.and_then(|slot| every_replica(&after, slot, self.place.target().host()));
        let known = known.ok_or_else(|| error::unreadable(node, "count its replicas"))?.max(1);
        self.replicas.store(known, Ordering::Relaxed);
        Ok((local, confirmed, known))
    }

    /// The error of a round in which the server counted too few.
    fn too_few(&self, wanted: Wanted, confirmed: u64) -> LockError {
        let node = self.place.name();
        let Wanted { replicas, on_disk, .. } = wanted;
        if replicas == 0 {
            return self.without_disk("in time");
        }
        let where_to = if on_disk.is_some() { "their disks have" } else { "they have" };
        LockError::unavailable(format!(
            "{confirmed} of {replicas} replicas of {node} confirmed in time that {where_to} the lock, so it does not count \
             and is undone; {REPLICAS}",
        ))
    }

    /// The error where nobody has counted within this time.
    pub(crate) fn unconfirmed(&self, wanted: Wanted, within: Duration) -> LockError {
        let node = self.place.name();
        let within = format!("within {} ms", within.as_millis());
        let Wanted { replicas, on_disk, .. } = wanted;
        if replicas == 0 {
            return self.without_disk(&within);
        }
        let whose = match (replicas, on_disk.is_some()) {
            (1, false) => "a replica has".to_owned(),
            (1, true) => "the disk of a replica has".to_owned(),
            (_, false) => format!("{replicas} replicas have"),
            (_, true) => format!("the disks of {replicas} replicas have"),
        };
        LockError::unavailable(format!(
            "{node} did not confirm {within} that {whose} the lock, so it does not count and is undone; {REPLICAS}"
        ))
    }

    fn without_disk(&self, when: &str) -> LockError {
        LockError::unavailable(format!(
            "{} did not confirm {when} that its disk has the lock, so it does not count and is undone; see INFO persistence, \
             and appendfsync: with no, it writes when the system does",
            self.place.name(),
        ))
    }

    fn refused(&self, error: &RedisError) -> LockError {
        let (node, detail) = (self.place.name(), error.detail().unwrap_or_default());
        if detail.contains("unknown command") {
            return LockError::misconfigured(format!(
                "{node} cannot tell when a lock is on disk (WAITAOF), which takes Redis 7.2; write acks instead of fsync",
            ));
        }
        if detail.contains("appendonly") {
            return LockError::misconfigured(format!(
                "{node} has no append-only file; set appendonly yes, or write acks instead of fsync",
            ));
        }
        error::executing(node, "confirm", error)
    }
}

fn refusal(answer: &Value) -> Option<RedisError> {
    if let Value::ServerError(error) = answer { Some(error.clone().into()) } else { None }
}

/// Reads how many replicas a master has that could take over, out of `CLUSTER SLOTS` and `INFO replication`: as many as
/// the cluster knows, or as follow it already. `None` if either cannot be read.
fn every_replica(answers: &[Value], slot: u16, asked: &str) -> Option<u64> {
    let [slots, info] = answers else { return None };
    let known = Topology::read(slots, asked)?.replicas_in(slot)?;
    let info: String = redis::from_redis_value(info.clone()).ok()?;
    let connected: u64 = line(&info, "connected_slaves:")?.parse().ok()?;
    let each: Vec<&str> = info.lines().filter(|line| line.starts_with("slave") && line.contains(":ip=")).collect();
    // A replica that receives its first copy of the data cannot take over yet.
    let without_data = each.iter().filter(|line| !line.contains("state=online")).count() as u64;
    Some(known.max(connected.checked_sub(without_data)?))
}

/// Makes one round after the other while somebody waits. It belongs to none of them.
struct Worker {
    rounds: Arc<Rounds>,
    runtime: Id,
    wanted: Wanted,
}

impl Worker {
    async fn run(&self) {
        loop {
            let round = {
                let mut gathering = self.rounds.gathering.lock();
                match gathering.get_mut(&(self.runtime, self.wanted)).and_then(Option::take) {
                    Some(round) => round,
                    None => {
                        gathering.remove(&(self.runtime, self.wanted));
                        return;
                    }
                }
            };
            let begun = Clock::system().now();
            let outcome = self.rounds.round(self.wanted, &round.markers).await;
            self.rounds.report(self.wanted, Clock::system().now().since(begun), outcome.is_ok());
            round.outcome.send_replace(Some(outcome));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Also when its runtime shuts down in the middle.
        self.rounds.gathering.lock().remove(&(self.runtime, self.wanted));
    }
}
