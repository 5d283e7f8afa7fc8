//! One Redis server: its connections, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::Notify;

use crate::batch::coalesce::{Coalescer, Flush};
use crate::batch::exchange::{Answer, Call};
use crate::connection::connect::Target;
use crate::connection::redirect::{Redirections, Refusal};
use crate::connection::slots::Found;
use crate::error;
use crate::on_drop::OnDrop;
use crate::protocol::clock::Floor;
use crate::protocol::keys::Keys;
use crate::protocol::keys::hash_slot::slot_of;
use crate::protocol::steps::script::Eval;
use crate::sentinel::place::Place;
use crate::server::changes::{ChangeListeners, Sleepers};
use crate::server::collisions::Collisions;
use crate::server::common::Common;
use crate::server::pool::{Pool, Renewals};
use crate::server::repeats::Repeats;
use crate::server::rounds::Rounds;
use crate::server::slot_inboxes::SlotInboxes;
use lock_store::contract::backend::{AcquireRequest, Inbox};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Durability;
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::sync::Mutex;

/// The upper limits of the pause before reconnecting: the first, and the longest.
pub(crate) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// How often there is reason to look at a cluster while one of its masters does not answer.
const DOUBT_EVERY: Duration = Duration::from_millis(100);

/// How a command reaches a key whose slot is being moved. By default as any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// The server is taking the slot over, and serves it only if it is asked to.
    pub(crate) asking: bool,
    /// The key is worked on without its companions, which may be on the other server.
    pub(crate) alone: bool,
}

impl Way {
    /// Runs a script. Rarely needed state is on the heap.
    pub(crate) async fn run(self, connection: &Arc<Coalescer>, eval: Eval, flush: Flush) -> Answer {
        if self.asking {
            Box::pin(connection.link.eval_asking(&eval)).await.into()
        } else {
            // Only a confirmation of a place has time.
            let call = if flush == Flush::Soon { Call::Place(eval) } else { Call::Eval(eval) };
            connection.call(call, flush).await
        }
    }
}

/// A server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) pool: Pool,
    pub(crate) listeners: ChangeListeners,
    /// The newest token of the server that this process knows.
    floor: Floor,
    pub(crate) collisions: Collisions,
    pub(crate) renewals: Renewals,
    /// The releases to resend if another server takes over.
    pub(crate) repeats: Arc<Repeats>,
    /// Notified when it has taken over, so that it may not have heard of that.
    pub(crate) taken_over: Notify,
    pub(crate) rounds: Arc<Rounds>,
    /// Where a lock must have arrived before it counts, if its request does not say.
    pub(crate) durability: Durability,
    /// Whether the URL accepts that a failover may lose locks (`acks=0`).
    pub(crate) accepts_loss: bool,
    /// Whether the server's eviction policy has been logged.
    pub(crate) warned_of_eviction: AtomicBool,
    /// Whether it has been logged that a failover may lose locks.
    pub(crate) warned_of_replicas: AtomicBool,
    /// In a cluster: the state that this master shares with the others.
    pub(crate) cluster: Option<Arc<Common>>,
    pub(crate) redirections: Redirections,
    /// Whether there is reason to think that it is no longer a master, or gone.
    suspect: AtomicBool,
    pub(crate) sleepers: Sleepers,
    /// The number of the credentials with which its connections were last logged in, if they can expire.
    pub(crate) logged_in: AtomicU64,
    /// Whether it did not let us in the last time.
    pub(crate) refuses: AtomicBool,
    /// In a cluster: the inboxes that receive its grants.
    hearing: Mutex<Vec<Arc<str>>>,
    /// In a cluster: the slots in which claims of this process wait.
    pub(crate) slot_inboxes: SlotInboxes,
    /// In a cluster: the result of the last refresh.
    found: Mutex<Found>,
}

impl Node {
    #[cfg(feature = "inspect")]
    pub(crate) fn at(target: Target) -> Self {
        Self::new(Place::Fixed(Arc::new(target)), Durability::Master, None)
    }

    /// Makes a node of a cluster.
    pub(crate) fn in_cluster(target: Target, durability: Durability, cluster: &Arc<Common>) -> Self {
        Self::new(Place::Fixed(Arc::new(target)), durability, Some(Arc::clone(cluster)))
    }

    /// Makes a node, wherever its server is now. One of a cluster has `cluster`.
    pub(crate) fn new(place: Place, durability: Durability, cluster: Option<Arc<Common>>) -> Self {
        Self {
            repeats: cluster.as_ref().map_or_else(Arc::default, |cluster| Arc::clone(&cluster.repeats)),
            taken_over: Notify::new(),
            rounds: Rounds::new(place.clone()),
            renewals: Renewals::new(place.clone()),
            pool: Pool::new(place),
            listeners: ChangeListeners::default(),
            floor: Floor::default(),
            collisions: Collisions::default(),
            durability,
            accepts_loss: cluster.as_ref().is_some_and(|cluster| cluster.accepts_loss),
            warned_of_eviction: AtomicBool::new(false),
            warned_of_replicas: AtomicBool::new(false),
            cluster,
            redirections: Redirections::default(),
            suspect: AtomicBool::new(false),
            sleepers: Sleepers::default(),
            logged_in: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            hearing: Mutex::default(),
            slot_inboxes: SlotInboxes::default(),
            found: Mutex::default(),
        }
    }

    /// Refuses a key under which no lock can lie.
    pub(crate) fn check(&self, key: &LockKey) -> Result<()> {
        if self.cluster.is_some() { Keys::check_in_cluster(key) } else { Keys::check(key) }
    }

    /// Names the keys of a lock.
    pub(crate) fn keys_of(&self, key: &LockKey) -> Result<Keys> {
        self.check(key)?;
        Ok(Keys::of_taken(key))
    }

    /// Returns the floor of the clock from which the tokens of a key are drawn.
    pub(crate) fn floor_of(&self, key: &LockKey) -> &Floor {
        match &self.cluster {
            Some(cluster) => cluster.floor(usize::from(slot_of(key))),
            None => &self.floor,
        }
    }

    /// Notes what a look at the cluster found.
    pub(crate) fn note_found(&self, found: Found) {
        *self.found.lock() = found;
    }

    /// Returns slots that this master of a cluster served when it was looked at.
    pub(crate) fn settled_slots(&self) -> impl Iterator<Item = u16> + use<> {
        let ends = self.found.lock().ends();
        ends.into_iter().flat_map(|(first, last)| [first, last])
    }

    /// Returns whether a key is served here, as far as is known.
    pub(crate) fn serves(&self, key: &LockKey) -> bool {
        self.cluster.is_none() || self.found.lock().has(slot_of(key))
    }

    /// Returns how many replicas there are that could take over, if anybody knows them all. A master of a cluster is
    /// asked in each round; this is how many it had.
    pub(crate) fn replicas(&self) -> Result<u64> {
        if self.cluster.is_none() {
            return self.pool.place.replicas();
        }
        Ok(self.rounds.replicas().unwrap_or_else(|| self.found.lock().replicas))
    }

    /// Notes that it may be gone, and has the cluster find out.
    pub(crate) fn doubt(&self) {
        if let Some(cluster) = &self.cluster {
            self.suspect.store(true, Ordering::Relaxed);
            cluster.look_soon();
        }
    }

    /// Does so repeatedly: while a caller waits for its answer, the server that replaces it must be found soon.
    pub(crate) async fn doubt_until_dropped(&self) {
        let clock = Clock::system();
        loop {
            self.doubt();
            clock.sleep_until(clock.now().after(DOUBT_EVERY)).await;
        }
    }

    /// Waits a little before the server is connected to again, unless it is found at another address.
    pub(crate) async fn pause(&self, backoff: &mut Backoff) {
        let clock = Clock::system();
        tokio::select! {
            () = clock.sleep_until(clock.now().after(backoff.pause())) => {}
            () = self.pool.place.moved() => {}
        }
    }

    /// Notes that it has answered.
    pub(crate) fn answered(&self) {
        for flag in [&self.suspect, &self.refuses] {
            if flag.load(Ordering::Relaxed) {
                flag.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Says that grants of this server reach an inbox, until the result is dropped.
    pub(crate) fn hears<'a>(&'a self, inbox: &'a Inbox) -> OnDrop<impl FnMut() + 'a> {
        if self.cluster.is_some() {
            self.hearing.lock().push(Arc::clone(inbox.id()));
        }
        inbox.set_open(true);
        OnDrop(move || {
            if self.cluster.is_none() {
                inbox.set_open(false);
                return;
            }
            // Other masters may still be heard.
            let mut hearing = self.hearing.lock();
            if let Some(at) = hearing.iter().position(|id| id == inbox.id()) {
                hearing.swap_remove(at);
            }
        })
    }

    /// Returns whether grants of this master reach the inbox of a request that is to queue.
    pub(crate) fn is_heard(&self, request: &AcquireRequest) -> bool {
        request.ticket.as_ref().is_none_or(|ticket| self.hearing.lock().contains(&ticket.inbox))
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    /// Returns the server's name, without credentials.
    pub(crate) fn name(&self) -> &str {
        self.pool.place.name()
    }

    pub(crate) fn failed(&self, op: &str, error: &RedisError) -> LockError {
        let text = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
        self.retire_if_demoted(&text);
        self.explained(error::executing(self.name(), op, error), &text)
    }

    /// The same for an error that a script answered.
    pub(crate) fn script_failed(&self, op: &str, text: &str) -> LockError {
        self.retire_if_demoted(text);
        self.explained(error::answered(self.name(), op, text), text)
    }

    /// Attaches what a refusal says about where the command belongs.
    fn explained(&self, error: LockError, text: &str) -> LockError {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        let refusal =
            error::code_of(code, detail).and_then(|code| Refusal::read(code, detail, self.pool.target().host()));
        match refusal {
            Some(refusal) if self.cluster.is_some() || matches!(refusal, Refusal::Moved(_)) => {
                error.with_source(refusal)
            }
            _ => error,
        }
    }

    fn retire_if_demoted(&self, text: &str) {
        if error::is_of_replica(text) {
            self.retire();
        }
    }

    /// Replaces every connection over which locks are taken, renewed and freed.
    pub(crate) fn retire(&self) {
        self.pool.retire();
        self.renewals.pool.retire();
    }

    pub(crate) fn unreadable(&self, op: &str) -> LockError {
        error::unreadable(self.name(), op)
    }
}
