//! One claim of this process on its way through the store, and what a turn can carry.
//!
//! A claim belongs to the gate, not to a caller: when the caller that sent it gives up, the next in
//! the local queue goes on with it, so that the process keeps its place in the store's queue.

pub(crate) mod all;
pub(crate) mod free;
mod pending;
pub(crate) mod spec;

use std::sync::{Arc, Weak};

use crate::contract::backend::Attempt;
use crate::engine::claim::free::{PAST, free, release_unheld};
use crate::engine::claim::spec::LockSpec;
use crate::engine::gate::{self, Membership, Turn};
use crate::engine::lease::{Ending, Lease, Occupant, Terms};
use crate::engine::shared::{Engine, Interrupted, PendingEntry};
use crate::types::error::{LockError, Result};
use crate::types::owner::Holder;
use crate::types::system::clock::Timestamp;

pub(crate) use pending::{ClaimAnswer, GRANT_TTL, PendingClaim, Success};

/// What a turn carries to the next in the local queue.
#[derive(Debug)]
pub(crate) struct Handoff {
    carried: Carried,
    /// On its way from one caller to the next it has no owner, and must not get lost.
    entry: PendingEntry,
}

#[derive(Debug)]
pub(crate) enum Carried {
    /// The lock itself.
    Lease(Arc<Lease>),
    /// A lease whose release goes along with the next claim, in one call.
    Retiring(Arc<Lease>),
    /// A claim that already stands in the store's queue.
    PendingClaim(Box<PendingClaim>),
}

impl Handoff {
    pub(crate) fn new(engine: &Arc<Engine>, carried: Carried) -> Self {
        Self { carried, entry: engine.enter() }
    }

    /// Unpacks what came along. It stays pending for as long as the entry is kept.
    pub(crate) fn unpack(self) -> (Carried, PendingEntry) {
        (self.carried, self.entry)
    }
}

impl gate::Payload for Handoff {
    type Terms = Terms;
    type Holder = HolderHint;
    type Shared = SharedLease;

    fn admits(shared: &SharedLease) -> bool {
        shared.lease.admits_guests()
    }

    fn end(shared: SharedLease, turn: Option<Turn<Self>>) {
        let SharedLease { engine, lease } = shared;
        match turn {
            Some(turn) => retire(&engine, &lease, turn),
            None => {
                end(&engine, &lease);
                release_behind(&engine, &lease, None);
            }
        }
    }

    fn reclaim(self, turn: Turn<Self>) {
        match self.carried {
            Carried::Lease(lease) | Carried::Retiring(lease) => retire(self.entry.engine(), &lease, turn),
            Carried::PendingClaim(pending) => drop(ClaimGuard::resume(*pending, turn)),
        }
    }

    fn take_back(self, turn: Turn<Self>) {
        match self.carried {
            // The holder that passed the lease on may wait for its arrival. It must not wait for one unpolled waiter after
            // another, so the lease goes back to the store.
            Carried::Lease(lease) | Carried::Retiring(lease) => {
                end(self.entry.engine(), &lease);
                release_behind(self.entry.engine(), &lease, Some(turn));
            }
            Carried::PendingClaim(_) => self.reclaim(turn),
        }
    }
}

/// A lease that several callers of this process hold at one time.
#[derive(Clone, Debug)]
pub(crate) struct SharedLease {
    pub(crate) engine: Arc<Engine>,
    pub(crate) lease: Arc<Lease>,
}

/// The place of a holder among the callers of this process.
#[derive(Debug)]
pub(crate) enum LocalPlace {
    /// At the head of the local queue.
    Turn(Turn<Handoff>),
    /// In a group whose members all hold the same lease.
    Member(Membership<Handoff>),
}

impl LocalPlace {
    /// Names the holder to the callers of this process that wait for it.
    pub(crate) fn set_holder(&self, holder: HolderHint) {
        if let Self::Turn(turn) = self {
            turn.set_holder(holder);
        }
    }
}

/// What the callers of this process know about the holder of a key.
#[derive(Clone, Debug)]
pub(crate) enum HolderHint {
    /// One of them holds it.
    Here(Weak<dyn Occupant>),
    /// The caller with the turn found the lock taken by somebody else.
    Elsewhere(Box<Holder>),
    /// The store could not answer the caller with the turn, or could grant nothing: whoever was seen before counts no more.
    OutOfReach(LockError),
}

impl HolderHint {
    pub(crate) fn describe(&self, now: Timestamp) -> Option<Holder> {
        match self {
            Self::Here(hold) => hold.upgrade().map(|hold| hold.holder(now)),
            Self::Elsewhere(holder) => Some(Holder::clone(holder)),
            Self::OutOfReach(_) => None,
        }
    }
}

/// Follows a pending claim on behalf of one caller. Dropped, it passes it on or undoes it.
pub(crate) struct ClaimGuard {
    pending: Option<PendingClaim>,
    turn: Option<Turn<Handoff>>,
}

impl ClaimGuard {
    /// Starts a claim, or continues the one that the turn carried. `before` is the lease to release.
    pub(crate) fn new(engine: &Arc<Engine>, spec: &LockSpec, turn: Turn<Handoff>, before: Option<Arc<Lease>>) -> Self {
        Self { pending: Some(PendingClaim::new(engine, spec, before)), turn: Some(turn) }
    }

    pub(crate) fn resume(pending: PendingClaim, turn: Turn<Handoff>) -> Self {
        Self { pending: Some(pending), turn: Some(turn) }
    }

    fn pending(&mut self) -> &mut PendingClaim {
        match &mut self.pending {
            Some(pending) => pending,
            None => unreachable!("a claim is handed over once, by value"),
        }
    }

    /// Sends the claim now, or continues a send that is on its way, and awaits the answer, at most until a
    /// limit. Also returns when it ended.
    pub(crate) async fn ask(
        &mut self,
        spec: &LockSpec,
        now_and_limit: (Timestamp, Timestamp),
    ) -> (Result<ClaimAnswer>, Timestamp) {
        self.pending().ask(spec, now_and_limit).await
    }

    /// Tells the callers behind us who holds the lock.
    pub(crate) fn name_holder(&mut self, holder: Holder) {
        if let Some(turn) = &mut self.turn {
            turn.set_blocked(true);
            turn.set_holder(HolderHint::Elsewhere(Box::new(holder)));
        }
    }

    /// Tells the callers behind us why the store could not be asked. Returns that error.
    pub(crate) fn name_error(&self, error: LockError) -> LockError {
        if let Some(turn) = &self.turn {
            turn.set_holder(HolderHint::OutOfReach(error.clone()));
        }
        error
    }

    /// Says whether the caller holds another lock while it waits.
    pub(crate) fn set_holds_others(&mut self, holds: bool) {
        self.pending().holds_others = holds;
    }

    /// Returns whether the store has told of a grant that was then confirmed.
    pub(crate) fn was_told(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.told)
    }

    /// Returns whether the next send also releases the lease before.
    pub(crate) fn releases(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.retiring.is_some())
    }

    /// Waits for a grant. Returns also when it was found good. `None` means that it is time to ask again.
    pub(crate) async fn listen(
        &mut self,
        spec: &LockSpec,
        until: Timestamp,
    ) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        self.pending().listen(spec.accepted, until).await
    }

    /// Hands the granted claim over.
    pub(crate) fn granted(mut self, spec: &LockSpec, success: Success, now: Timestamp) -> (Arc<Lease>, Turn<Handoff>) {
        let (Some(pending), Some(mut turn)) = (self.pending.take(), self.turn.take()) else {
            unreachable!("a claim is handed over once, by value")
        };
        turn.set_blocked(false);
        (pending.into_lease(spec, success, now), turn)
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let (Some(pending), Some(turn)) = (self.pending.take(), self.turn.take()) else { return };
        let engine = Arc::clone(&pending.engine);
        let terms = pending.terms;
        // The place in the store's queue belongs to the process: the next caller with the same terms goes on with it.
        let (pending, turn) = if pending.has_begun() {
            let pending = Carried::PendingClaim(Box::new(pending));
            match turn.hand_on(Handoff::new(&engine, pending), |next| next == terms) {
                Ok(()) => return,
                Err((turn, handoff)) => match handoff.unpack().0 {
                    Carried::PendingClaim(pending) => (*pending, turn),
                    Carried::Lease(_) | Carried::Retiring(_) => return,
                },
            }
        } else {
            (pending, turn)
        };
        abandon(&engine, pending, turn);
    }
}

/// Ends a lease towards the store: together with the next claim of this process if there is one, else in the background.
/// Where another turn waits in the store's queue already, the background it is: a second claim of this process would only
/// stand behind that one.
pub(crate) fn retire(engine: &Arc<Engine>, lease: &Arc<Lease>, turn: Turn<Handoff>) {
    end(engine, lease);
    if turn.has_enough_blocked() {
        return release_behind(engine, lease, Some(turn));
    }
    let handoff = Handoff::new(engine, Carried::Retiring(Arc::clone(lease)));
    if let Err((turn, _)) = turn.hand_on(handoff, |_| true) {
        // The waiters have just left.
        release_behind(engine, lease, Some(turn));
    }
}

fn end(engine: &Engine, lease: &Lease) {
    if let Ok(ended) = lease.end(Ending::Released) {
        engine.timer.cancel(ended.alarm);
    }
}

/// Releases a lease that has ended, in the background.
fn release_behind(engine: &Arc<Engine>, lease: &Arc<Lease>, turn: Option<Turn<Handoff>>) {
    let (worker, arrival) = (Arc::clone(engine), Arrival(Arc::clone(lease)));
    engine.clean_up(async move {
        release_unheld(&worker, &arrival.0).await;
        drop(arrival);
        // Only now may the next caller of this process ask: earlier, it would find the lock taken by us.
        drop(turn);
    });
}

/// A lease on its way to the store. It has arrived when this is dropped, also by a keeper that ends.
struct Arrival(Arc<Lease>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

/// Undoes a claim that no caller waits for any more: finishes what is on its way, then frees what it took.
fn abandon(engine: &Arc<Engine>, pending: PendingClaim, turn: Turn<Handoff>) {
    let PendingClaim { claim, in_flight, unsettled_until, retiring, queued, .. } = pending;
    let nothing_sent = in_flight.is_none() && unsettled_until.is_none() && !queued;
    if let Some(lease) = retiring {
        // Its release was to go along with this claim. If nothing was sent, it still can go along with another.
        if nothing_sent {
            retire(engine, &lease, turn);
            return;
        }
        let worker = Arc::clone(engine);
        engine.clean_up(async move { release_unheld(&worker, &lease).await });
    }
    if nothing_sent {
        return;
    }
    let worker = Arc::clone(engine);
    engine.clean_up(async move {
        let (mut unsettled_until, mut taken) = (unsettled_until, queued || unsettled_until.is_some());
        if let Some(mut sent) = in_flight {
            match worker.bounded("acquire", &claim.key, sent.until, &mut sent.command).await {
                Ok(
                    Attempt::Granted { .. } | Attempt::Shared { .. } | Attempt::Queued { .. } | Attempt::Asleep { .. },
                ) => taken = true,
                Err(error) if error.is_ambiguous() => {
                    taken = true;
                    unsettled_until = unsettled_until.max(Some(sent.settled_after(worker.clock.now())));
                }
                Ok(Attempt::Held { .. } | Attempt::Contended) | Err(_) => {}
            }
        }
        // As long as nobody knows what the store did, the next caller of this process must ask it.
        let unsettled = unsettled_until.is_some_and(|at| at > worker.clock.now());
        let turn = Some(turn).filter(|_| !unsettled);
        if taken {
            let settled_at = unsettled_until.unwrap_or(PAST);
            if let Err(error) = free(&worker, claim, PAST, settled_at).await {
                tracing::debug!(%error, "an abandoned acquire could not be undone; its lease runs out by itself");
            }
        }
        drop(turn);
    });
}
