//! One claim of this process in the store, and what a turn can carry.
//!
//! A claim belongs to the gate and not to one caller. If the caller that sent it gives up, the next local waiter
//! continues it. The process therefore keeps its place in the store's queue.

pub(crate) mod all;
pub(crate) mod free;
mod pending;
pub(crate) mod spec;
pub(crate) mod tag;

use std::sync::{Arc, Weak};

use crate::engine::claim::free::{PAST, free, release_unheld};
use crate::engine::claim::spec::LockSpec;
use crate::engine::gate::{self, Membership, Turn};
use crate::engine::lease::{Ending, Lease, Occupant, Terms};
use crate::engine::shared::{Engine, Interrupted, PendingEntry};
use lock_store::contract::backend::Attempt;
use lock_store::types::error::{LockError, Result};
use lock_store::types::owner::{Holder, OwnerId};
use lock_store::types::system::clock::Timestamp;

pub(crate) use pending::{ClaimAnswer, GRANT_TTL, PendingClaim, Success};

/// The payload that a turn carries to the next local waiter.
#[derive(Debug)]
pub(crate) struct Handoff {
    carried: Carried,
    /// Keeps the engine's shutdown waiting: between two callers the payload has no owner, and must not get lost.
    entry: PendingEntry,
}

#[derive(Debug)]
pub(crate) enum Carried {
    /// The lock itself.
    Lease(Arc<Lease>),
    /// A lease that has ended. Its release is sent together with the next claim, in one call.
    Retiring(Arc<Lease>),
    /// A claim that is already in the store's queue.
    PendingClaim(Box<PendingClaim>),
}

impl Handoff {
    pub(crate) fn new(engine: &Arc<Engine>, carried: Carried) -> Self {
        Self { carried, entry: engine.enter() }
    }

    /// Unpacks the payload. It counts as pending for as long as the entry is kept.
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
            // The holder that passed the lease on may wait for its arrival. It must not wait for one unpolled waiter
            // after another, so the lease is released in the store.
            Carried::Lease(lease) | Carried::Retiring(lease) => {
                end(self.entry.engine(), &lease);
                release_behind(self.entry.engine(), &lease, Some(turn));
            }
            Carried::PendingClaim(_) => self.reclaim(turn),
        }
    }
}

/// A lease that several callers of this process hold at the same time.
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
    /// Tells the waiters of this process who holds the lock.
    pub(crate) fn set_holder(&self, holder: HolderHint) {
        if let Self::Turn(turn) = self {
            turn.set_holder(holder);
        }
    }
}

/// The knowledge of this process's callers about the holder of a key.
#[derive(Clone, Debug)]
pub(crate) enum HolderHint {
    /// A caller of this process holds it.
    Here(Weak<dyn Occupant>),
    /// The caller with the turn found the lock taken by a claim from outside of this queue.
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

/// Follows a pending claim for one caller. Dropping it passes the claim on or undoes it.
pub(crate) struct ClaimGuard {
    pending: Option<PendingClaim>,
    turn: Option<Turn<Handoff>>,
}

impl ClaimGuard {
    /// Starts a claim. `before` is the lease to release with it.
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

    /// Sends the claim now, or continues a send that is in flight. Awaits the answer until the limit. Also returns the
    /// time of the answer.
    pub(crate) async fn ask(
        &mut self,
        spec: &LockSpec,
        now_and_limit: (Timestamp, Timestamp),
    ) -> (Result<ClaimAnswer>, Timestamp) {
        self.pending().ask(spec, now_and_limit).await
    }

    /// Tells the waiters behind this caller who holds the lock.
    pub(crate) fn name_holder(&mut self, holder: Holder) {
        if let Some(turn) = &mut self.turn {
            turn.set_blocked(true);
            turn.set_holder(HolderHint::Elsewhere(Box::new(holder)));
        }
    }

    /// Tells the callers behind this one why the store could not be asked. Returns that error.
    pub(crate) fn name_error(&self, error: LockError) -> LockError {
        if let Some(turn) = &self.turn {
            turn.set_holder(HolderHint::OutOfReach(error.clone()));
        }
        error
    }

    /// Notes whether the caller holds another lock while it waits.
    pub(crate) fn set_holds_others(&mut self, holds: bool) {
        self.pending().holds_others = holds;
    }

    /// Returns the identity of the claim.
    pub(crate) fn owner(&mut self) -> OwnerId {
        self.pending().claim.owner
    }

    /// Returns whether the store announced a grant that its next answer then confirmed.
    pub(crate) fn was_told(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.told)
    }

    /// Returns whether the next send also releases the lease before.
    pub(crate) fn releases(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.retiring.is_some())
    }

    /// Waits for a grant. Also returns the time at which the grant was accepted. `None` means that the claim must ask again.
    pub(crate) async fn listen(
        &mut self,
        spec: &LockSpec,
        until: Timestamp,
    ) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        self.pending().listen(spec.accepted, until).await
    }

    /// Hands the granted claim over as a lease.
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
        // The place in the store's queue belongs to the process. The next caller with the same terms continues the claim.
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

/// Ends a lease in the store. Its release is sent with the next claim of this process if there is one, otherwise in the
/// background. If another turn already waits in the store's queue, the release also goes to the background: a second
/// claim of this process would only stand behind that turn.
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
        // The next caller of this process may ask only now. Earlier it would find the lock taken by our own lease.
        drop(turn);
    });
}

/// A lease whose release is in flight. Dropping this marks it as arrived, even if the keeper ends before the answer.
struct Arrival(Arc<Lease>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

/// Undoes a claim that no caller waits for any more. Awaits the command in flight, then frees what it took.
fn abandon(engine: &Arc<Engine>, pending: PendingClaim, turn: Turn<Handoff>) {
    let PendingClaim { claim, in_flight, unsettled_until, retiring, queued, .. } = pending;
    let nothing_sent = in_flight.is_none() && unsettled_until.is_none() && !queued;
    if let Some(lease) = retiring {
        // The lease's release was to go out with this claim. If nothing was sent, it can still go out with another claim.
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
                // The store did not give the lock to this claim, so no lock must be freed.
                Ok(Attempt::Held { .. } | Attempt::Contended) | Err(_) => {}
            }
        }
        // While it is unknown what the store did, the next caller of this process must ask the store. The turn is kept
        // only if the outcome is known: the next caller then waits until the lock is free.
        let unsettled = unsettled_until.is_some_and(|at| at > worker.clock.now());
        let turn = Some(turn).filter(|_| !unsettled);
        if taken {
            let settled_at = unsettled_until.unwrap_or(PAST);
            if let Err(error) = free(&worker, claim, PAST, settled_at).await {
                tracing::debug!(%error, "could not undo an abandoned acquire; its lease ends by itself");
            }
        }
        drop(turn);
    });
}
