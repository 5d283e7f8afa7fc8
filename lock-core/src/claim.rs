//! One claim of this process on its way through the store, and what a turn can carry.
//!
//! A claim belongs to the gate, not to a caller: when the caller that sent it gives up, the next in
//! the local queue goes on with it, so that the process keeps its place in the store's queue.

pub(crate) mod together;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::acquire::Wish;
use crate::backend::{AcquireRequest, Attempt, BoxFuture, Claim, Release, Ticket};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::event::Notice;
use crate::fencing::FencingToken;
use crate::gate::{self, Turn};
use crate::keeper::grants::{Listener, News};
use crate::keeper::{Engine, Interrupted, PendingEntry, conclude, lay_to_rest, undo};
use crate::lease::Lease;
use crate::options::Wait;
use crate::owner::Holder;
use crate::tenure::{Beginning, Tenure, Terms, deadline_of};

/// The longest lease that a grant through the queue starts with. Whoever gets it raises it; whoever
/// died meanwhile costs the others no more than this.
pub(crate) const GRANT_TTL: Duration = Duration::from_secs(3);

/// What a turn carries to the next in the local queue.
#[derive(Debug)]
pub(crate) struct Cargo {
    load: Load,
    /// On its way from one caller to the next it is nobody's, and must not be forgotten.
    pending: PendingEntry,
}

#[derive(Debug)]
pub(crate) enum Load {
    /// The lock itself.
    Tenure(Arc<Tenure>),
    /// A tenure whose release goes along with the next claim, in one call.
    Retiring(Arc<Tenure>),
    /// A claim that already stands in the store's queue.
    Pursuit(Box<Pursuit>),
}

impl Cargo {
    pub(crate) fn new(engine: &Arc<Engine>, load: Load) -> Self {
        Self { load, pending: engine.enter() }
    }

    /// Unpacks what came along. It stays pending for as long as the entry is kept.
    pub(crate) fn unpack(self) -> (Load, PendingEntry) {
        (self.load, self.pending)
    }
}

impl gate::Cargo for Cargo {
    type Terms = Terms;
    type Holder = Known;

    fn abandon(self, turn: Turn<Self>) {
        match self.load {
            Load::Tenure(tenure) | Load::Retiring(tenure) => conclude(self.pending.engine(), &tenure, turn),
            Load::Pursuit(pursuit) => drop(Pursuer { pursuit: Some(pursuit), turn: Some(turn) }),
        }
    }
}

/// What the callers of this process know of whoever holds a key.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// One of them holds it.
    Here(Weak<Lease>),
    /// The one with the turn found somebody else in the way.
    Elsewhere(Box<Holder>),
}

impl Known {
    pub(crate) fn describe(&self, now: Timestamp) -> Option<Holder> {
        match self {
            Self::Here(lease) => lease.upgrade().map(|lease| lease.holder(now)),
            Self::Elsewhere(holder) => Some(Holder::clone(holder)),
        }
    }
}

/// A claim and everything that is known of it.
pub(crate) struct Pursuit {
    engine: Arc<Engine>,
    pub(crate) claim: Claim,
    terms: Terms,
    /// The command on its way.
    in_flight: Option<InFlight>,
    /// When the store stops executing earlier sends that were never answered.
    pub(crate) unsettled_until: Option<Timestamp>,
    /// The tenure before, whose release goes along until it is answered.
    pub(crate) retiring: Option<Arc<Tenure>>,
    /// Where grants arrive, once the claim may have queued.
    listener: Option<Listener>,
    /// Whether the claim stands in the store's queue.
    queued: bool,
    /// How often it was sent.
    sends: u32,
    /// Whether the answer to its very first send granted it, so that it has never stood in that queue.
    never_queued: bool,
    /// When the newest send was sent that the store has answered. Older grants are void.
    confirmed: Timestamp,
}

/// A command on its way to the store.
pub(crate) struct InFlight {
    pub(crate) command: BoxFuture<'static, Result<Attempt>>,
    pub(crate) sent_at: Timestamp,
    /// When its answer is waited for no longer.
    pub(crate) until: Timestamp,
    /// How long after it was sent the store may execute it.
    execute_within: Duration,
    /// The least token it may be granted.
    floor: FencingToken,
}

impl InFlight {
    /// When this is executed no more, if it is given up at a moment. It may have been sent only just
    /// before: first it waited for a connection, or was refused as stale and sent again.
    pub(crate) fn settled_after(&self, given_up_at: Timestamp) -> Timestamp {
        given_up_at.after(self.execute_within)
    }
}

/// What the store said.
pub(crate) enum Answer {
    Granted(Success),
    /// The lock is taken. The claim may stand in the store's queue.
    Taken {
        holder: Holder,
        queued: bool,
    },
}

/// A grant, and what the lease of it is counted from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Success {
    pub(crate) token: FencingToken,
    pub(crate) block: u32,
    pub(crate) sent_at: Timestamp,
    pub(crate) granted_for: Duration,
}

/// Follows a pursuit on behalf of one caller. Dropped, it passes it on or undoes it.
pub(crate) struct Pursuer {
    pursuit: Option<Box<Pursuit>>,
    turn: Option<Turn<Cargo>>,
}

impl Pursuer {
    /// Starts a claim, or goes on with what the turn carried. `before` is the tenure to release.
    pub(crate) fn new(engine: &Arc<Engine>, wish: &Wish, turn: Turn<Cargo>, before: Option<Arc<Tenure>>) -> Self {
        let pursuit = Pursuit {
            engine: Arc::clone(engine),
            claim: Claim::new(wish.story.key.clone(), wish.options.ttl),
            terms: Terms::of(&wish.options),
            in_flight: None,
            unsettled_until: None,
            retiring: before,
            listener: None,
            queued: false,
            sends: 0,
            never_queued: false,
            confirmed: Timestamp::from_nanos(0),
        };
        Self::resume(Box::new(pursuit), turn)
    }

    pub(crate) fn resume(pursuit: Box<Pursuit>, turn: Turn<Cargo>) -> Self {
        Self { pursuit: Some(pursuit), turn: Some(turn) }
    }

    fn pursuit(&mut self) -> &mut Pursuit {
        match &mut self.pursuit {
            Some(pursuit) => pursuit,
            None => unreachable!("a pursuit is handed over once, by value"),
        }
    }

    /// Sends the claim, or goes on with a send that is on its way, and awaits the answer, at most
    /// until `limit`.
    pub(crate) async fn ask(&mut self, wish: &Wish, limit: Timestamp) -> Result<Answer> {
        let followers = self.turn.as_ref().map_or(0, Turn::waiters);
        self.pursuit().ask(wish, limit, followers).await
    }

    /// Tells those who wait behind us who holds the lock.
    pub(crate) fn name_holder(&self, holder: Holder) {
        if let Some(turn) = &self.turn {
            turn.set_holder(Known::Elsewhere(Box::new(holder)));
        }
    }

    /// Returns whether the next send also releases the tenure before.
    pub(crate) fn releases(&self) -> bool {
        self.pursuit.as_ref().is_some_and(|pursuit| pursuit.retiring.is_some())
    }

    /// Waits for a grant. Returns also when it was found good. `None` means that it is time to ask again.
    pub(crate) async fn listen(&mut self, until: Timestamp) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        self.pursuit().listen(until).await
    }

    /// Hands the granted claim over.
    pub(crate) fn granted(mut self, wish: &Wish, success: Success, now: Timestamp) -> (Arc<Tenure>, Turn<Cargo>) {
        let (Some(pursuit), Some(turn)) = (self.pursuit.take(), self.turn.take()) else {
            unreachable!("a pursuit is handed over once, by value")
        };
        // No grant is on its way for a claim that never queued: most locks need no ear for one.
        let listener = pursuit.listener.filter(|_| !pursuit.never_queued);
        if let Some(listener) = &listener {
            listener.settle();
        }
        // A send that nobody awaits any more may still be executed, after the release even.
        let unsettled = pursuit.in_flight.map(|sent| sent.settled_after(now)).max(pursuit.unsettled_until);
        let beginning = Beginning {
            token: success.token,
            block: success.block,
            sent_at: success.sent_at,
            granted_for: success.granted_for,
            push_loss: pursuit.engine.backend.capabilities_dyn().push_loss,
            unsettled_until: unsettled,
            listener,
        };
        (Tenure::begin(pursuit.engine.clock.clone(), pursuit.claim, &wish.options, beginning, now), turn)
    }
}

impl Pursuit {
    async fn ask(&mut self, wish: &Wish, limit: Timestamp, followers: usize) -> Result<Answer> {
        let engine = Arc::clone(&self.engine);
        if self.in_flight.is_none() {
            let sent = self.send(wish, followers);
            self.in_flight = Some(sent);
        }
        let Some(sent) = &mut self.in_flight else { unreachable!("it was sent above") };
        let (sent_at, until, floor) = (sent.sent_at, sent.until, sent.floor);
        let answer = engine.bounded("acquire", &self.claim.key, until.min(limit), &mut sent.command).await;
        let sent = self.in_flight.take();
        match answer {
            Ok(attempt) => {
                if let Some(before) = self.retiring.take() {
                    lay_to_rest(&engine, &before, Some(sent_at));
                }
                self.confirmed = self.confirmed.max(sent_at);
                Ok(self.answered(&engine, wish, attempt, sent_at, floor))
            }
            Err(error) => {
                if error.is_ambiguous() {
                    let settled_at = sent.map(|sent| sent.settled_after(engine.clock.now()));
                    self.unsettled_until = self.unsettled_until.max(settled_at);
                }
                Err(error)
            }
        }
    }

    fn answered(
        &mut self,
        engine: &Engine,
        wish: &Wish,
        attempt: Attempt,
        sent_at: Timestamp,
        floor: FencingToken,
    ) -> Answer {
        self.queued = matches!(attempt, Attempt::Queued { .. });
        self.never_queued = self.sends == 1 && matches!(attempt, Attempt::Granted { .. });
        match attempt {
            Attempt::Granted { token, block } => {
                engine.newest_token.fetch_max(token.get(), Ordering::Relaxed);
                // A repeat answers with the token of the grant, which may be older than the floor.
                if token <= floor && self.unsettled_until.is_none() && self.listener.is_none() {
                    let label = &wish.story.label;
                    engine.observers.notice(&Notice::FencingRegressed { label, token, newest: floor });
                }
                // Undone, should the caller vanish before it has taken the grant.
                self.unsettled_until = self.unsettled_until.max(Some(sent_at));
                Answer::Granted(Success { token, block, sent_at, granted_for: self.claim.ttl })
            }
            Attempt::Held { holder } | Attempt::Queued { holder } => Answer::Taken { holder, queued: self.queued },
        }
    }

    /// What the store is asked for, but for a place in its queue.
    fn request(&self, wish: &Wish, followers: usize) -> AcquireRequest {
        let engine = &self.engine;
        let mut request = AcquireRequest::new(self.claim.clone(), wish.story.holder_info());
        request.execute_within = wish.options.command_timeout();
        request.floor = FencingToken::new(engine.newest_token.load(Ordering::Relaxed));
        if self.terms.handoff && followers > 0 {
            // As many as may be needed, since those who have had the lock may want it again. What is left
            // is given back. Most claims have no followers, and then nothing is.
            request.block = engine.handoff.passes.saturating_add(1);
        }
        request
    }

    fn send(&mut self, wish: &Wish, followers: usize) -> InFlight {
        self.sends = self.sends.saturating_add(1);
        let engine = Arc::clone(&self.engine);
        let mut request = self.request(wish, followers);
        let sent_at = engine.clock.now();
        if engine.queues && wish.options.wait != Wait::None && engine.inbox.is_open() {
            let grant_ttl = self.claim.ttl.min(GRANT_TTL);
            request.ticket = Some(Ticket::new(Arc::clone(engine.inbox.id()), sent_at.as_nanos(), grant_ttl));
            if self.listener.is_none() {
                self.listener = Some(engine.grants.listen(self.claim.owner));
            }
        }
        let (floor, execute_within) = (request.floor, request.execute_within);
        let backend = Arc::clone(&engine.backend);
        let command = match &self.retiring {
            Some(tenure) => {
                let mut release = Release::new(tenure.claim.clone());
                release.last_token = tenure.last_used();
                backend.requeue_dyn(release, request)
            }
            None => backend.try_acquire_dyn(request),
        };
        let until = sent_at.after(execute_within);
        InFlight { command: engine.route(wish.caller, command), sent_at, until, execute_within, floor }
    }

    async fn listen(&mut self, until: Timestamp) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        let engine = Arc::clone(&self.engine);
        let Some(listener) = &self.listener else {
            return engine.until(until, std::future::pending()).await;
        };
        loop {
            let grant = match engine.until(until, listener.next()).await? {
                News::Granted(grant) => grant,
                News::Verify => return Ok(None),
            };
            let now = engine.clock.now();
            let stamp = Timestamp::from_nanos(grant.stamp).min(now);
            if stamp < self.confirmed {
                // From before the place in the queue that was confirmed since: it is void.
                continue;
            }
            engine.newest_token.fetch_max(grant.token.get(), Ordering::Relaxed);
            // Ours from now on, even if the caller vanishes.
            self.unsettled_until = self.unsettled_until.max(Some(stamp));
            let granted_for = grant.claim.ttl;
            if deadline_of(stamp, granted_for).since(now) <= granted_for / 3 {
                // Too little is left to rely on. Asking again raises the lease, if it is still ours.
                return Ok(None);
            }
            return Ok(Some((Success { token: grant.token, block: grant.block, sent_at: stamp, granted_for }, now)));
        }
    }

    /// Takes apart what must be undone.
    pub(crate) fn into_parts(self) -> (Claim, Option<InFlight>, Option<Timestamp>, Option<Arc<Tenure>>, bool) {
        (self.claim, self.in_flight, self.unsettled_until, self.retiring, self.queued)
    }
}

impl std::fmt::Debug for Pursuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pursuit").field("claim", &self.claim).field("queued", &self.queued).finish_non_exhaustive()
    }
}

impl Drop for Pursuer {
    fn drop(&mut self) {
        let (Some(pursuit), Some(turn)) = (self.pursuit.take(), self.turn.take()) else { return };
        let engine = Arc::clone(&pursuit.engine);
        let terms = pursuit.terms;
        // The place in the queue is the process's, not the caller's.
        let begun = pursuit.queued
            || pursuit.in_flight.is_some()
            || pursuit.unsettled_until.is_some()
            || pursuit.retiring.is_some();
        let (pursuit, turn) = if begun {
            match turn.hand_on(Cargo::new(&engine, Load::Pursuit(pursuit)), |next| next == terms) {
                Ok(()) => return,
                Err((turn, cargo)) => match cargo.unpack().0 {
                    Load::Pursuit(pursuit) => (pursuit, turn),
                    Load::Tenure(_) | Load::Retiring(_) => return,
                },
            }
        } else {
            (pursuit, turn)
        };
        undo(&engine, *pursuit, turn);
    }
}
