//! The watchdog: renews leases in batches, and ends leases when their time is up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::lease::{Ending, Lease, LeaseState};
use crate::engine::shared::{Caller, Engine};
use crate::engine::timer::{Alarm, Timer};
use lock_store::contract::backend::{Claim, Renewal};
use lock_store::contract::event::LockEventKind;
use lock_store::types::error::{LockError, LockErrorKind, LossReason, Result};
use lock_store::types::mode::Mode;
use lock_store::types::options::Durability;
use lock_store::types::system::clock::{Timestamp, jitter};

/// The most renewals in one command. More would block the server for too long.
pub(crate) const BATCH: usize = 50;

/// Returns every live lease. Each one has an alarm set, or is being served.
pub(crate) fn leases(timer: &Timer<Lease>) -> Vec<Arc<Lease>> {
    let mut leases = timer.items();
    leases.retain(|lease| lease.state().over.is_none());
    leases
}

/// Sets the alarm of a lease that has just begun, or that has a new holder.
pub(crate) fn watch(engine: &Engine, lease: &Arc<Lease>, now: Timestamp) {
    let mut state = lease.state();
    if state.over.is_none() {
        arm(engine, lease, &mut state, now);
    }
}

/// Serves leases after their alarms. Ends the expired ones and returns the batches to renew.
pub(crate) fn inspect(engine: &Engine, leases: Vec<Arc<Lease>>) -> Vec<Vec<Arc<Lease>>> {
    let mut due: Vec<(Kind, Arc<Lease>)> = Vec::new();
    let now = engine.clock.now();
    for lease in leases {
        let mut state = lease.state();
        if state.over.is_some() {
            continue;
        }
        if let Some(reason) = state.loss_at(now, state.ends_by, lease.deadline()) {
            drop(state);
            end(engine, &lease, reason);
            continue;
        }
        let renew = now >= state.renew_at && !state.renewing;
        if renew {
            (state.renewing, state.suspect) = (true, false);
        }
        arm(engine, &lease, &mut state, now);
        drop(state);
        if renew {
            due.push((Kind::of(engine, &lease), lease));
        }
    }
    into_batches(due)
}

/// The common properties of the leases in one batch. A store confirms and renews different kinds in different ways, and
/// answers for a whole batch at once. So a kind that hangs must not be in the batch of another.
#[derive(Clone, Copy)]
struct Kind {
    lane: u16,
    is_shared: bool,
    durability: Durability,
    /// How long to wait for an answer.
    timeout: Duration,
}

impl Kind {
    fn of(engine: &Engine, lease: &Lease) -> Self {
        let (claim, timeout) = (&lease.claim, lease.command_timeout());
        let (lane, is_shared) = (engine.backend.lane(&claim.key), lease.mode().is_shared());
        Self { lane, is_shared, durability: claim.durability, timeout }
    }

    /// Returns whether another lease may join a batch of this kind. A batch waits only as long as its shortest timeout
    /// allows, so leases with much longer timeouts go elsewhere.
    fn takes(self, other: Self) -> bool {
        self.lane == other.lane
            && self.is_shared == other.is_shared
            && self.durability == other.durability
            && other.timeout <= self.timeout.saturating_mul(2)
    }
}

/// Groups leases by kind, in batches. Batches are independent: one that fails does not delay another.
fn into_batches(mut due: Vec<(Kind, Arc<Lease>)>) -> Vec<Vec<Arc<Lease>>> {
    due.sort_by_key(|(kind, _)| (kind.lane, kind.timeout));
    let mut batches: Vec<(Kind, Vec<Arc<Lease>>)> = Vec::new();
    for (kind, lease) in due {
        match batches.iter_mut().rev().find(|(first, batch)| batch.len() < BATCH && first.takes(kind)) {
            Some((_, batch)) => batch.push(lease),
            None => batches.push((kind, vec![lease])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Renews one batch and applies the answers.
pub(crate) async fn renew(engine: Arc<Engine>, mut batch: Vec<Arc<Lease>>) {
    // A lease is skipped if its release has begun since it became due.
    batch.retain(|lease| lease.state().over.is_none());
    let Some(first) = batch.first() else { return };
    let sent_at = engine.clock.now();
    let failovers = engine.failovers(&first.claim.key);
    let ask = |lease: &Arc<Lease>| {
        let asked = Question::about(lease, sent_at, failovers);
        let mut claim = lease.claim_to_renew();
        claim.ttl = asked.ttl;
        (asked, claim)
    };
    let (asked, claims): (Vec<Question>, Vec<Claim>) = batch.iter().map(ask).unzip();
    let command = Arc::clone(&engine.backend).renew(claims);
    let answers = match renewed(&engine, first, sent_at, async { Ok(command.await) }).await {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    let missing = || Err(LockError::unavailable("the store answered for fewer leases than it was asked"));
    let answers = answers.into_iter().chain(std::iter::repeat_with(missing));
    for ((lease, asked), answer) in batch.iter().zip(asked).zip(answers) {
        apply(&engine, lease, asked, &answer);
    }
}

/// Awaits the answers to renewals. A server may answer, and refuse each of them: the command has failed then.
async fn renewed(
    engine: &Engine,
    first: &Lease,
    sent_at: Timestamp,
    command: impl Future<Output = Result<Vec<Result<Renewal>>>>,
) -> Result<Vec<Result<Renewal>>> {
    let bounds = (sent_at, sent_at.after(first.command_timeout()));
    let answered = engine.timed("renew", &first.claim.key, bounds, command, |answers| match answers.first() {
        Some(Err(error)) if answers.iter().all(Result::is_err) => Some(error),
        _ => None,
    });
    answered.await.0
}

/// The request of a renewal about one lease.
#[derive(Clone, Copy)]
struct Question {
    /// How long a lease it asks for.
    ttl: Duration,
    /// Whether it extends the lease. Otherwise it checks that a fixed lease still exists.
    extends: bool,
    sent_at: Timestamp,
    /// How much later than planned it was sent.
    lateness: Duration,
    /// The failover count of the server before the send.
    failovers: u64,
}

impl Question {
    fn about(lease: &Lease, sent_at: Timestamp, failovers: u64) -> Self {
        let state = lease.state();
        let (ttl, extends) = lease.asks_for(&state, sent_at);
        Self { ttl, extends, sent_at, lateness: sent_at.since(state.renew_at), failovers }
    }
}

/// Applies one answer to its lease.
fn apply(engine: &Engine, lease: &Arc<Lease>, asked: Question, answer: &Result<Renewal>) {
    // Read the clock for each answer: observers of the answer before may have been slow.
    let now = engine.clock.now();
    let mut state = lease.state();
    state.renewing = false;
    if state.over.is_some() {
        return;
    }
    let was_left = lease.deadline().since(now);
    // A fixed lease is only checked and not renewed, so this is not an event.
    let holders = asked.extends.then(|| state.holders());
    // This flag stays set: the store tells a process only of the first waiter.
    state.wanted |= matches!(answer, Ok(Renewal::Wanted));
    let event = match answer.as_ref().map(|answer| answer.lease(asked.ttl)) {
        Ok(Some(given)) if lease.raise(&state, now, asked.sent_at, given) => {
            let was_granted = lease.granted_last(&state);
            lease.confirmed(&mut state, asked.sent_at, [asked.ttl, given], asked.failovers);
            let (lease_left, lateness) = (lease.deadline().since(now), asked.lateness);
            Some(LockEventKind::Renewed { lease: was_granted, lease_was_left: was_left, lease_left, lateness })
        }
        // The answer came too late. A lease that has ended stays ended, and its alarm rings now.
        Ok(Some(_)) => None,
        // The renewal was sent before the downgrade, about the old mode. Its answer says nothing about the lock now.
        Ok(None) if asked.sent_at <= state.downgraded_at => {
            state.renew_at = now;
            None
        }
        Ok(None) => {
            drop(state);
            return end(engine, lease, engine.loss_by_others(lease));
        }
        Err(error) => {
            state.unanswered = asked.extends;
            let most = (lease.granted_last(&state) / 12).max(Duration::from_millis(10));
            state.renew_at = now.after(jitter(most / 4, most));
            Some(LockEventKind::RenewFailed { error, lease_left: was_left })
        }
    };
    arm(engine, lease, &mut state, now);
    drop(state);
    if let (Some(holders), Some(event)) = (holders, event) {
        holders.for_each(|holder| holder.emit_renewal(event.clone()));
    }
}

/// Sets the next alarm of a lease.
fn arm(engine: &Engine, lease: &Arc<Lease>, state: &mut LeaseState, now: Timestamp) {
    let before = state.alarm.take();
    let ends_at = lease.deadline().min(state.ends_by);
    // While a renewal is in flight, only the deadline needs an alarm. The lease must end there even without an answer.
    state.alarm = Some(if state.renewing || state.renew_at >= ends_at {
        engine.timer.set(ends_at, Alarm::Item(Arc::clone(lease)))
    } else {
        let early = state.may_be_early(now);
        let (alarm, planned) = engine.timer.set_renewal(state.renew_at, early, Arc::clone(lease));
        state.renew_at = planned;
        alarm
    });
    // The old alarm is cancelled last, so that a shutdown finds the lease at any time. It may have rung already.
    engine.timer.cancel(before);
}

/// Declares a lease lost. If its time is over already, that is the reason.
pub(crate) fn end(engine: &Engine, lease: &Lease, reason: LossReason) {
    let reason = {
        let state = lease.state();
        state.loss_at(engine.clock.now(), state.ends_by, lease.deadline()).unwrap_or(reason)
    };
    if let Ok(ended) = lease.end(Ending::Lost(reason)) {
        engine.timer.cancel(ended.alarm);
        ended.holders.for_each(|holder| holder.lose(reason));
    }
}

/// Extends a lease to `by` from now. Ends it if the store says that another claim has the key. If the lease is to outlive
/// this process, the store must give all of it now. Otherwise the watchdog asks for the rest in time.
pub(crate) async fn extend(engine: &Arc<Engine>, lease: &Arc<Lease>, by: Duration, outlives: bool) -> Result<()> {
    let key = &lease.claim.key;
    let mut claim = lease.claim_to_renew();
    claim.ttl = by;
    let sent_at = engine.clock.now();
    let renew = Arc::clone(&engine.backend).renew(vec![claim]);
    let command = engine.route(Caller::Async, Box::pin(async move { Ok(renew.await) }));
    let mut answers = renewed(engine, lease, sent_at, command).await?;
    let answer = answers.pop().unwrap_or_else(|| Err(LockError::unavailable("the store gave no answer")));
    let Some(given) = answer.map_err(|error| error.with_key(key))?.lease(by) else {
        end(engine, lease, engine.loss_by_others(lease));
        return Ok(());
    };
    if given < by && outlives {
        let why = format!("the store keeps a lock for {given:?} without its process, not {by:?}; use another store");
        return Err(LockError::misconfigured(why).with_key(key));
    }
    let (mut state, now) = (lease.state(), engine.clock.now());
    if lease.raise(&state, now, sent_at, given) && given < by {
        lease.plan(&mut state, sent_at, [by, given]);
        arm(engine, lease, &mut state, now);
    }
    Ok(())
}

/// Turns an exclusive lease into a shared one, with the last token that was given under it. Retries until an answer
/// arrives or the lease has ended: in between, it is unknown which mode the store has.
pub(crate) async fn downgrade(engine: &Arc<Engine>, lease: &Arc<Lease>, mode: Mode) -> Result<()> {
    let key = &lease.claim.key;
    engine.shares.store(true, Ordering::Relaxed);
    let token = lease.begin_downgrade(mode, engine.clock.now());
    loop {
        let sent_at = engine.clock.now();
        let ask = Arc::clone(&engine.backend).downgrade(lease.claim(), token);
        let command = engine.route(Caller::Async, ask);
        match engine.bounded("downgrade", key, sent_at.after(lease.command_timeout()), command).await {
            Ok(Renewal::Lost) => {
                end(engine, lease, LossReason::Stolen);
                return Ok(());
            }
            Ok(answer) => {
                let mut state = lease.state();
                state.wanted = answer == Renewal::Wanted;
                lease.raise(&state, engine.clock.now(), sent_at, lease.claim.ttl);
                return Ok(());
            }
            Err(error) => {
                let again_at = engine.clock.now().after(jitter(Duration::from_millis(5), Duration::from_millis(100)));
                if error.kind() != LockErrorKind::Unavailable || again_at >= lease.deadline() {
                    return Err(error.with_key(key));
                }
                engine.timer.sleep_until(again_at).await;
            }
        }
    }
}
