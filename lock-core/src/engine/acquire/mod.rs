//! From request to grant: the local queue, the attempts at the store, and the one budget for both.

pub(crate) mod all;
mod pauses;
mod turn;
pub(crate) mod waiting;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::engine::acquire::pauses::{again_at, poll_pause};
use crate::engine::acquire::turn::{Start, guest_of};
use crate::engine::acquire::waiting::Telling;
use crate::engine::claim::spec::LockSpec;
use crate::engine::claim::{Carried, ClaimAnswer, ClaimGuard, Handoff, LocalPlace, Success, retire};
use crate::engine::context;
use crate::engine::context::deadlock::{self, Nested};
use crate::engine::gate::Turn;
use crate::engine::handle::EngineHandle;
use crate::engine::hold::Hold;
use crate::engine::hold::owned::{HolderRole, OwnedHold};
use crate::engine::lease::{Lease, deadline_of};
use crate::engine::report::trace;
use crate::engine::shared::{Engine, FAIR_TIME, Interrupted, PendingEntry};
use lock_store::contract::event::{GrantPath, LockEventKind};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::options::Wait;
use lock_store::types::owner::Holder;
use lock_store::types::system::blocking::yielding;
use lock_store::types::system::clock::Timestamp;

/// Acquires a lock.
///
/// # Cancel safety
///
/// Dropping the future at any await point leaves nothing behind. The keeper awaits the command in flight and undoes it.
pub(crate) fn acquire<T>(
    handle: Arc<EngineHandle>,
    spec: LockSpec,
    make: impl FnOnce(OwnedHold) -> T + Send,
) -> impl Future<Output = Result<T>> + Send {
    let mut acquire = Acquire::new(handle, spec);
    // Only one future: it goes to the heap, and each future around it would hold a copy.
    async move {
        acquire.start();
        let outcome = acquire.run().await;
        match acquire.end(outcome) {
            Ok(owned) => Ok(make(owned)),
            // The acquire keeps nothing while the caller yields. A success does not pay for its move.
            Err(error) => {
                drop(acquire);
                yielding(Err(error)).await.map(make)
            }
        }
    }
}

/// The result of an acquire.
enum Obtained {
    New(Granted),
    /// A grant that an enclosing scope of the same task holds.
    Reentrant(Arc<Hold>),
}

/// A grant that no caller holds yet.
struct Granted {
    token: FencingToken,
    lease: Arc<Lease>,
    place: LocalPlace,
    path: GrantPath,
    at: Timestamp,
}

/// One acquire under way. Emits its events, including its cancellation.
pub(crate) struct Acquire {
    /// Keeps the manager alive until the cleanup of this acquire was handed to the keeper.
    handle: Arc<EngineHandle>,
    spec: LockSpec,
    span: Span,
    started: Timestamp,
    /// The end of the one budget that all stages of waiting share.
    until: Timestamp,
    telling: Telling,
    /// The last holder that was seen.
    holder: Option<Holder>,
    /// Why the last command to the store failed, if it did.
    out_of_reach: Option<LockError>,
    /// Whether its first event was emitted, and its last was not.
    under_way: bool,
    /// Set once it has the turn. A shutdown then waits for the lock that it may take.
    claiming: Option<PendingEntry>,
    /// Whether the task holds another lock while it waits.
    nested: bool,
}

impl Acquire {
    /// Prepares an acquire. Its budget has not begun.
    fn new(handle: Arc<EngineHandle>, spec: LockSpec) -> Self {
        let (span, never) = (Span::none(), Timestamp::NEVER);
        let (holder, out_of_reach, claiming, under_way, nested) = (None, None, None, false, false);
        let (started, until, telling) = (never, never, Telling::default());
        Self { handle, spec, span, started, until, telling, holder, out_of_reach, under_way, claiming, nested }
    }

    /// Prepares an acquire whose budget begins now.
    pub(crate) fn starting_now(handle: Arc<EngineHandle>, spec: LockSpec) -> Self {
        let mut acquire = Self::new(handle, spec);
        acquire.start();
        acquire
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    fn start(&mut self) {
        self.started = self.engine().clock.now();
        self.until = match self.spec.options.wait.limit() {
            None => Timestamp::NEVER,
            Some(Duration::ZERO) => self.started.after(self.spec.options.command_timeout()),
            Some(limit) => self.started.after(limit),
        };
        self.telling.at = self.started.after(waiting::FIRST);
        // A request that does not wait cannot be part of a deadlock, so its lock order is not recorded.
        if self.spec.options.wait != Wait::None && self.spec.events.origin.order.is_some() {
            context::each_held(self.engine().identity(), |hold| self.spec.events.note_order(&hold.events));
        }
    }

    /// Continues with one key, after a joint attempt, within the same budget.
    pub(crate) async fn continue_alone(mut self) -> Result<OwnedHold> {
        // Each key's wait counts from here. A request that may wait keeps the budget of all keys.
        let until = self.until;
        self.start();
        if self.spec.options.wait != Wait::None {
            self.until = until;
        }
        let outcome = self.run().await;
        self.end(outcome)
    }

    async fn run(&mut self) -> Result<Obtained> {
        self.begin();
        let span = self.span.clone();
        match Nested::of(self.engine(), &self.spec) {
            None => self.attempt().instrument(span).await,
            Some(nested) => {
                self.nested = true;
                Box::pin(async {
                    tokio::select! {
                        biased;
                        obtained = self.attempt().instrument(span) => obtained,
                        error = nested.victim() => Err(error),
                    }
                })
                .await
            }
        }
    }

    fn begin(&mut self) {
        self.under_way = true;
        self.span = trace::acquire(&self.spec.events);
        self.spec.events.emit(LockEventKind::WaitStarted);
    }

    async fn attempt(&mut self) -> Result<Obtained> {
        if self.engine().refuses(self.spec.accepted) {
            return Err(self.engine().refusal());
        }
        self.engine().check(&self.spec.options)?;
        let mode = self.spec.events.mode;
        if mode.is_shared() && !self.engine().backend.capabilities().modes {
            return Err(mode.unknown_to_store());
        }
        if let Some(hold) = context::holds(self.engine().identity(), &self.spec.events.key) {
            let covered = hold.lease.mode().covers(mode);
            if self.spec.reentrant && covered && hold.add_guard() {
                return Ok(Obtained::Reentrant(hold));
            }
            // A caller that does not wait finds the lock taken, which is true and harmless.
            if self.spec.options.wait != Wait::None {
                let key = &self.spec.events.key;
                return Err(if covered { LockError::would_deadlock(key) } else { LockError::no_upgrade() });
            }
        }
        let (mut turn, waited, mut now) = loop {
            let (mut turn, waited, now) = self.take_turn().await?;
            let Some(membership) = turn.take_membership() else { break (turn, waited, now) };
            if let Some((lease, token)) = guest_of(&membership, now) {
                let place = LocalPlace::Member(membership);
                return Ok(Obtained::New(Granted { token, lease, place, path: GrantPath::Shared, at: now }));
            }
            // The lease was lost while this caller joined, so try again.
        };
        let (carried, entry) = turn.take_payload().map(Handoff::unpack).unzip();
        self.claiming = Some(entry.unwrap_or_else(|| self.engine().enter()));
        let start = match carried {
            None => {
                if !self.engine().has_room() {
                    // A request that does not wait for the lock does not wait for room either.
                    let until = if self.spec.options.wait == Wait::None { self.started } else { self.until };
                    Box::pin(self.engine().room(until, self.spec.accepted)).await?;
                    now = self.engine().clock.now();
                }
                Start::Fresh(None)
            }
            Some(Carried::PendingClaim(pending)) => Start::Pending(pending),
            Some(Carried::Lease(lease)) => match lease.next_token(now) {
                Some(token) => {
                    let place = self.local_place(turn, &lease);
                    return Ok(Obtained::New(Granted { token, lease, place, path: GrantPath::Handoff, at: now }));
                }
                // The lease was lost between the two holders.
                None => Start::after(lease),
            },
            Some(Carried::Retiring(lease)) => Start::after(lease),
        };
        // Boxed, so that a hand-off, which never gets here, does not pay for this large future.
        Box::pin(self.claim_from_store(start, turn, waited, now)).await
    }

    /// Asks the store and waits until it grants.
    async fn claim_from_store(
        &mut self,
        start: Start,
        turn: Turn<Handoff>,
        mut waited: bool,
        mut now: Timestamp,
    ) -> Result<Obtained> {
        let mut guard = match start {
            Start::Fresh(before) => ClaimGuard::new(self.engine(), &self.spec, turn, before),
            Start::Pending(pending) => ClaimGuard::resume(*pending, turn),
        };
        guard.set_holds_others(self.nested);
        let mut refusals = 0;
        // The turn may have come from a holder that lost it to the shutdown.
        if self.engine().refuses(self.spec.accepted) {
            return Err(self.engine().refusal());
        }
        loop {
            let (releases, asked_at) = (guard.releases(), now);
            let (asked, answered_at) = self.ask(&mut guard, now, waited).await;
            if self.engine().refuses(self.spec.accepted) {
                return Err(self.engine().refusal());
            }
            now = answered_at;
            let again_at = match asked {
                Ok(ClaimAnswer::Granted(success)) => {
                    if deadline_of(success.sent_at, success.granted_for) > now {
                        let path = match (releases || guard.was_told(), waited) {
                            (true, _) => GrantPath::Granted,
                            (false, true) => GrantPath::Polled,
                            (false, false) => GrantPath::Uncontended,
                        };
                        return self.take(guard, success, path, now);
                    }
                    // The answer took longer than the lease lasts. Asking again extends the lease.
                    now
                }
                // Ask again at once, with a ticket and a listener.
                Ok(ClaimAnswer::Contended(_)) if now < self.until => continue,
                Ok(ClaimAnswer::Contended(holder)) => {
                    let holder = holder.or_else(|| self.holder.take());
                    self.contended(holder);
                    now
                }
                Ok(ClaimAnswer::Taken { holder, queued, pause }) => {
                    self.out_of_reach = None;
                    // A holder of the classic protocol does not announce its release, so the claim polls.
                    let is_announced = queued && holder.info.is_some();
                    refusals = if is_announced || pause.is_some() { 0 } else { refusals + 1 };
                    let left = holder.ttl_left;
                    guard.name_holder(holder.clone());
                    self.contended(Some(holder));
                    // A lease of the same holder does not wait for itself.
                    if self.spec.options.wait == Wait::None || self.spec.is_of_same(self.holder.as_ref()) {
                        return Err(LockError::busy(self.holder.clone()));
                    }
                    again_at(now, (pause, &self.engine().ticks), refusals, self.spec.options.ttl, left)
                }
                Err(error) if error.kind() == LockErrorKind::Unavailable && self.spec.options.wait != Wait::None => {
                    refusals += 1;
                    // A store that had too little time to answer or to execute it is not to blame: who holds the lock is the reason.
                    let fair = asked_at.after(FAIR_TIME);
                    let is_late = error.is_ambiguous() || self.until <= fair && fair <= now;
                    if !(waited && is_late && now >= self.until) {
                        self.out_of_reach = Some(guard.name_error(error));
                    }
                    now.after(poll_pause(refusals, None))
                }
                Err(error) => return Err(error),
            };
            waited = true;
            match self.listen(&mut guard, again_at.min(self.until)).await {
                Ok(Some((success, now))) => return self.take(guard, success, GrantPath::Granted, now),
                Ok(None) => {}
                Err(Interrupted::TimedOut) if again_at < self.until => {}
                Err(why) => return Err(self.interrupted(why)),
            }
            now = self.engine().clock.now();
        }
    }

    /// Takes up a lease that has not ended at `now`.
    fn take(&mut self, guard: ClaimGuard, success: Success, path: GrantPath, now: Timestamp) -> Result<Obtained> {
        let (lease, turn) = guard.granted(&self.spec, success, now);
        self.out_of_reach.take().inspect(|_| turn.set_holder(None));
        match lease.next_token(now) {
            Some(token) => {
                let place = self.local_place(turn, &lease);
                Ok(Obtained::New(Granted { token, lease, place, path, at: now }))
            }
            None => {
                retire(self.engine(), &lease, turn);
                Err(LockError::unavailable("the store granted the token zero, which stands for none"))
            }
        }
    }

    /// Remembers the holder of the lock, and emits an event when it changes.
    #[inline]
    fn contended(&mut self, holder: Option<Holder>) {
        let seen = |holder: &Option<Holder>| {
            // A holder of another library has no identity, but its store may tell who it is and since when.
            let foreign = |of: &Holder| (of.owner.is_none() && !of.shared).then(|| (of.since, of.info.clone()));
            holder.as_ref().map(|holder| (holder.owner, holder.token, foreign(holder)))
        };
        let news = self.holder.is_none() || seen(&self.holder) != seen(&holder);
        self.holder = holder;
        if news && self.spec.options.wait != Wait::None {
            self.spec.events.emit(LockEventKind::Contended { holder: self.holder.as_ref() });
        }
    }

    /// Returns the error of a wait that ended without a grant. If the last command to the store failed, that is the reason.
    fn interrupted(&mut self, why: Interrupted) -> LockError {
        match (why, self.out_of_reach.take()) {
            (Interrupted::Closed, _) => self.engine().refusal(),
            (Interrupted::TimedOut, Some(error)) => error,
            (Interrupted::TimedOut, None) => self.spec.events.mode.timed_out(self.waited(), self.holder.clone()),
        }
    }

    fn emit_end(&self, kind: LockEventKind<'_>) {
        trace::ended(&self.span, &kind);
        self.spec.events.emit(kind);
    }

    /// Emits how the acquire ended, and puts a grant under the watchdog.
    fn end(&mut self, outcome: Result<Obtained>) -> Result<OwnedHold> {
        self.under_way = false;
        let (events, holder) = (&self.spec.events, self.holder.as_ref());
        let (hold, path, now) = match outcome {
            Ok(Obtained::New(Granted { token, lease, place, path, at })) => {
                (Hold::begin(at, events.clone(), &self.spec.options, token, lease, place), path, at)
            }
            Ok(Obtained::Reentrant(hold)) => (hold, GrantPath::Reentrant, self.engine().clock.now()),
            Err(error) => {
                let waited = self.waited();
                let error = deadlock::naming_held(self.engine(), error).with_key(&events.key);
                self.emit_end(match error.kind() {
                    LockErrorKind::Busy => LockEventKind::Busy { waited, holder },
                    LockErrorKind::Timeout => LockEventKind::TimedOut { waited, holder },
                    _ => LockEventKind::Failed { waited, error: &error },
                });
                return Err(error);
            }
        };
        self.emit_end(LockEventKind::Acquired {
            waited: now.since(self.started),
            token: hold.token,
            owner: hold.lease.claim.owner,
            path,
            lease_left: hold.lease.deadline().since(now),
            waited_for: holder,
        });
        let handle = Arc::clone(&self.handle);
        Ok(match path {
            GrantPath::Reentrant => OwnedHold::shared(handle, hold, events.clone()),
            GrantPath::Handoff => OwnedHold::new(handle, hold, HolderRole::Next),
            GrantPath::Shared => OwnedHold::new(handle, hold, HolderRole::Guest),
            _ => OwnedHold::new(handle, hold, HolderRole::First),
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        // Dropped before the handle, which may wait for everything that is pending.
        self.claiming = None;
        if self.under_way {
            self.emit_end(LockEventKind::Cancelled { waited: self.waited(), holder: self.holder.as_ref() });
        }
    }
}
