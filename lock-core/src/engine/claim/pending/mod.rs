//! A claim and all that is known about it: what was sent, answered and granted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::claim::free::ensure_freed;
use crate::engine::claim::spec::LockSpec;
use crate::engine::claim::tag::LeaseTag;
use crate::engine::lease::grants::{Listener, News};
use crate::engine::lease::{Beginning, Lease, Terms, deadline_of};
use crate::engine::shared::{Engine, FAIR_TIME, Interrupted};
use lock_store::contract::backend::{AcquireRequest, Attempt, BoxFuture, Claim, Release, Ticket};
use lock_store::contract::event::Notice;
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::options::{Durability, Wait};
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Timestamp;

/// The longest lease that a grant through the queue starts with. A live process renews it to the full ttl. A process
/// that died while it waited blocks the others for no longer than this.
pub(crate) const GRANT_TTL: Duration = Duration::from_secs(3);

/// How long a claim sleeps at a time after it has waited for long. A sleeping claim neither confirms its place nor
/// asks. The store makes the first two waiters of a queue ask sooner. If both are dead and nobody hands the lock on, a
/// free lock may stay unused for this long.
const SLEEP: Duration = Duration::from_secs(10);

/// A claim and all that is known about it.
pub(crate) struct PendingClaim {
    pub(super) engine: Arc<Engine>,
    pub(super) claim: Claim,
    pub(super) terms: Terms,
    /// The command in flight.
    pub(super) in_flight: Option<SentClaim>,
    /// When the store stops executing earlier sends that were never answered.
    pub(super) unsettled_until: Option<Timestamp>,
    /// The lease before. Its release is sent along until it is answered.
    pub(super) retiring: Option<Arc<Lease>>,
    /// Receives grants, once the claim may have queued.
    listener: Option<Listener>,
    /// Whether the claim is in the store's queue.
    pub(super) queued: bool,
    /// Whether it slept in the queue when the last answer came.
    asleep: bool,
    /// How often it was sent.
    sends: u32,
    /// Whether it may have been in the store's queue before its last answer. Then a grant may still be in flight.
    may_have_queued: bool,
    /// When the newest answered send was sent. Grants made earlier are void.
    confirmed: Timestamp,
    /// The failover count of the key's server before the newest send.
    failovers: u64,
    /// Whether the caller holds another lock while it waits.
    pub(super) holds_others: bool,
    /// Whether the store announced a grant that the next answer must confirm.
    pub(super) told: bool,
}

/// A command in flight.
pub(crate) struct SentClaim {
    pub(crate) command: BoxFuture<'static, Result<Attempt>>,
    pub(crate) sent_at: Timestamp,
    /// When to stop waiting for the answer.
    pub(crate) until: Timestamp,
    /// How long after the send the store may execute the command.
    execute_within: Duration,
    /// The newest token of the key that was known when the command was sent. A grant must have a higher one.
    floor: FencingToken,
    /// Whether it had a ticket, and so could enter the queue.
    may_queue: bool,
    /// Whether the claim is sent again with a ticket if the lock is taken.
    tentative: bool,
}

impl SentClaim {
    /// Returns when the store will certainly not execute this command any more, if it is given up at that time. The
    /// command may have left just before: it may have waited for a connection, or was refused as stale and resent.
    pub(crate) fn settled_after(&self, given_up_at: Timestamp) -> Timestamp {
        given_up_at.after(self.execute_within)
    }
}

/// The store's answer.
pub(crate) enum ClaimAnswer {
    Granted(Success),
    /// The lock is taken. The claim may be in the store's queue.
    Taken {
        holder: Holder,
        queued: bool,
        /// How long the claim need not ask.
        pause: Option<Duration>,
    },
    /// The lock is taken. The holder is given if the store named it. The claim must be sent again, with a ticket.
    Contended(Option<Holder>),
}

/// A grant, and the time from which its lease is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Success {
    pub(crate) token: FencingToken,
    pub(crate) sent_at: Timestamp,
    pub(crate) granted_for: Duration,
    /// Whether a waiter exists, or may exist, for the shared lock.
    pub(crate) wanted: bool,
}

impl PendingClaim {
    /// Makes a fresh claim that was not sent yet. `before` is the lease to release.
    pub(super) fn new(engine: &Arc<Engine>, spec: &LockSpec, before: Option<Arc<Lease>>) -> Self {
        let durability = spec.options.durability.unwrap_or_else(|| engine.backend.durability());
        let mut claim = Claim::new(spec.events.key.clone(), spec.options.ttl)
            .with_mode(spec.events.mode)
            .with_durability(durability);
        claim.owner = spec.lease.map_or(claim.owner, LeaseTag::draw);
        Self {
            engine: Arc::clone(engine),
            claim,
            terms: Terms::of(&spec.options, spec.events.mode),
            in_flight: None,
            unsettled_until: None,
            retiring: before,
            listener: None,
            queued: false,
            asleep: false,
            sends: 0,
            may_have_queued: false,
            confirmed: Timestamp::from_nanos(0),
            failovers: engine.failovers(&spec.events.key),
            holds_others: false,
            told: false,
        }
    }

    /// Returns whether there is anything to continue or to undo.
    pub(super) fn has_begun(&self) -> bool {
        self.queued || self.in_flight.is_some() || self.unsettled_until.is_some() || self.retiring.is_some()
    }

    /// Turns the granted claim into its lease.
    pub(super) fn into_lease(self, spec: &LockSpec, success: Success, now: Timestamp) -> Arc<Lease> {
        if self.claim.mode.is_shared() {
            self.engine.shares.store(true, Ordering::Relaxed);
        }
        // No grant can be in flight to a claim that never queued, so such a claim needs no listener. A claim that
        // shares its lock keeps its listener: through it the process hears of waiters.
        let listener = self.listener.filter(|_| self.may_have_queued || self.claim.mode.is_shared());
        if let Some(listener) = &listener {
            listener.mark_held();
        }
        // A send that was given up may still be executed, even after the release. The release then waits for it to settle.
        let unsettled = self.in_flight.map(|sent| sent.settled_after(now)).max(self.unsettled_until);
        let beginning = Beginning {
            token: success.token,
            sent_at: success.sent_at,
            granted_for: success.granted_for,
            wanted: success.wanted,
            push_loss: self.engine.backend.capabilities().push_loss,
            unsettled_until: unsettled,
            failovers: self.failovers,
            listener,
        };
        Lease::begin(self.engine.clock.clone(), self.claim, &spec.options, beginning, now)
    }

    pub(super) async fn ask(
        &mut self,
        spec: &LockSpec,
        (now, limit): (Timestamp, Timestamp),
    ) -> (Result<ClaimAnswer>, Timestamp) {
        let engine = Arc::clone(&self.engine);
        let sent = match self.in_flight.take() {
            None => self.send(spec, now, limit),
            // The caller that sent the claim may have polled it on its own runtime. This caller may not have a runtime.
            Some(sent) => SentClaim { command: engine.route(spec.caller, sent.command), ..sent },
        };
        let sent = self.in_flight.insert(sent);
        let (sent_at, bounds) = (sent.sent_at, (sent.sent_at, sent.until.min(limit)));
        let (floor, may_queue, tentative) = (sent.floor, sent.may_queue, sent.tentative);
        let (answer, now) = engine.timed("acquire", &self.claim.key, bounds, &mut sent.command, |_| None).await;
        let settled_at = sent.settled_after(now);
        self.in_flight = None;
        if !matches!(answer, Ok(Attempt::Granted { .. } | Attempt::Shared { .. })) {
            self.may_have_queued |= may_queue;
        }
        let answer = match answer {
            Ok(Attempt::Held { holder }) if tentative => Ok(ClaimAnswer::Contended(Some(holder))),
            Ok(Attempt::Contended) if tentative => Ok(ClaimAnswer::Contended(None)),
            Ok(attempt) => {
                if let Some(before) = self.retiring.take() {
                    ensure_freed(&engine, &before, Some(sent_at));
                }
                self.confirmed = self.confirmed.max(sent_at);
                Ok(self.answered(&engine, spec, attempt, sent_at, floor))
            }
            Err(error) => {
                if error.is_ambiguous() {
                    self.unsettled_until = self.unsettled_until.max(Some(settled_at));
                }
                if self.listener.is_none() && engine.wakes && spec.options.wait != Wait::None {
                    // It tells when the connection is back. The claim is then sent again before its pause ends.
                    self.listener = Some(engine.grants.listen(self.claim.owner));
                }
                Err(error)
            }
        };
        (answer, now)
    }

    pub(super) fn answered(
        &mut self,
        engine: &Engine,
        spec: &LockSpec,
        attempt: Attempt,
        sent_at: Timestamp,
        floor: FencingToken,
    ) -> ClaimAnswer {
        // A token that does not exceed the newest known one of its key means that the store went back in time. It is only reported.
        let queued = matches!(attempt, Attempt::Queued { .. } | Attempt::Asleep { .. });
        // A queued claim stays queued. It keeps its place even while grants cannot be heard and it asks for no place.
        self.queued |= queued;
        self.asleep = matches!(attempt, Attempt::Asleep { .. });
        // If the store did not confirm the announced grant, the announcement is void.
        self.told &= matches!(attempt, Attempt::Granted { .. } | Attempt::Shared { .. });
        let (ttl, taken) = (self.claim.ttl, |holder, pause| ClaimAnswer::Taken { holder, queued, pause });
        let (token, granted_for, wanted) = match attempt {
            Attempt::Granted { token, lease } => {
                if token <= floor {
                    let (label, store) = (&spec.events.label, &*spec.events.origin.store);
                    engine.observers.notice(&Notice::FencingRegressed { label, store, token, newest: floor });
                }
                (token, lease.unwrap_or(ttl).min(ttl), false)
            }
            // Regression is not checked here, because the token of a phase is older than the claims that join it. A process
            // that cannot hear of waiters lets no other caller in under its claim. Otherwise newcomers could keep a
            // waiting writer out.
            Attempt::Shared { token, wanted } => (token, ttl, wanted || self.listener.is_none()),
            Attempt::Held { holder } | Attempt::Queued { holder } => return taken(holder, None),
            Attempt::Asleep { holder, pause } => return taken(holder, Some(pause)),
            Attempt::Contended => return taken(Holder::unseen(), None),
        };
        engine.newest_tokens.note(&self.claim.key, token);
        // From here on, dropping this claim frees the lock: the caller may disappear before it takes the grant.
        self.unsettled_until = self.unsettled_until.max(Some(sent_at));
        ClaimAnswer::Granted(Success { token, sent_at, granted_for, wanted })
    }

    /// Makes the request to the store, without a place in its queue. The store does not execute it much later than
    /// `limit`, the end of the caller's budget.
    pub(super) fn request(&self, spec: &LockSpec, now: Timestamp, limit: Timestamp) -> AcquireRequest {
        let mut request = AcquireRequest::new(self.claim.clone(), spec.events.holder_info());
        request.execute_within = limit.since(now).max(FAIR_TIME).min(spec.options.command_timeout());
        request.kept_for = spec.kept_for;
        request.repeated = self.sends > 1;
        request.asleep = self.asleep && !self.told;
        request
    }

    fn send(&mut self, spec: &LockSpec, sent_at: Timestamp, limit: Timestamp) -> SentClaim {
        self.sends = self.sends.saturating_add(1);
        let engine = Arc::clone(&self.engine);
        self.failovers = engine.failovers(&self.claim.key);
        let mut request = self.request(spec, sent_at, limit);
        let may_wait = engine.wakes && spec.options.wait != Wait::None && engine.inbox.is_open();
        request.tentative = may_wait
            && self.sends == 1
            && self.retiring.is_none()
            // A claim that shares needs its listener from the start, to hear of waiters.
            && !self.claim.mode.is_shared()
            && !engine.backend.is_contended(&self.claim.key);
        let (may_queue, tentative) = (may_wait && !request.tentative, request.tentative);
        if may_queue {
            let grant_ttl = self.claim.ttl.min(GRANT_TTL);
            let mut ticket = Ticket::new(Arc::clone(engine.inbox.id()), sent_at.as_nanos(), grant_ttl);
            // A caller that holds another lock while it waits must look for deadlocks, so its claim does not sleep.
            ticket.sleep = (!self.holds_others).then_some(SLEEP);
            request.ticket = Some(ticket);
            if self.listener.is_none() {
                self.listener = Some(engine.grants.listen(self.claim.owner));
            }
        }
        let floor = engine.newest_tokens.of(&self.claim.key);
        let execute_within = request.execute_within;
        let backend = Arc::clone(&engine.backend);
        let command = match &self.retiring {
            Some(lease) => backend.requeue(Release::new(lease.claim()), request),
            None => backend.try_acquire(request),
        };
        let until = sent_at.after(execute_within);
        let command = engine.route(spec.caller, command);
        SentClaim { command, sent_at, until, execute_within, floor, may_queue, tentative }
    }

    pub(super) async fn listen(
        &mut self,
        accepted: bool,
        until: Timestamp,
    ) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        let engine = Arc::clone(&self.engine);
        let Some(listener) = &self.listener else {
            return engine.until(until, accepted, std::future::pending()).await;
        };
        loop {
            let grant = match engine.until(until, accepted, listener.next()).await? {
                News::Granted(grant) => grant,
                News::Verify => return Ok(None),
            };
            let now = engine.clock.now();
            let stamp = Timestamp::from_nanos(grant.stamp).min(now);
            if stamp < self.confirmed {
                // This process confirmed its place after the grant was made, and the answer was not a grant. So the
                // grant has ended in the meantime. Accepting it would make a second holder.
                continue;
            }
            engine.newest_tokens.note(&self.claim.key, grant.token);
            // The lock belongs to this claim from now on. If the caller disappears, the lock must be freed.
            self.unsettled_until = self.unsettled_until.max(Some(stamp));
            let granted_for = grant.claim.ttl;
            if self.claim.durability != Durability::Master
                || deadline_of(stamp, granted_for).since(now) <= granted_for / 3
            {
                // The grant is not confirmed by replicas, or too little time is left to rely on it, for example after a
                // suspend. The claim asks again. If it still has the lock, the answer confirms and extends the lease.
                self.told = true;
                return Ok(None);
            }
            // The lock came through the queue, so other claims have waited and may still wait.
            let wanted = self.claim.mode.is_shared();
            return Ok(Some((Success { token: grant.token, sent_at: stamp, granted_for, wanted }, now)));
        }
    }
}

impl std::fmt::Debug for PendingClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingClaim").field("claim", &self.claim).field("queued", &self.queued).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "time is the paused one of the test's runtime, which drives the manager too"
)]
mod tests;
