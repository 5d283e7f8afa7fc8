//! The watchdog: renews tenures in batches, and declares them lost by the clock.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Claim, Renewal};
use crate::clock::{Timestamp, jitter};
use crate::error::{LockError, LossReason, Result};
use crate::event::LockEventKind;
use crate::keeper::Engine;
use crate::keeper::schedule::Alarm;
use crate::keeper::wheel::BATCH;
use crate::tenure::{Asked, Ending, Tenure, TenureState};

/// Sets the alarm of a tenure that has just begun, or whose holder has changed.
pub(super) fn watch(engine: &Engine, tenure: &Arc<Tenure>, now: Timestamp) {
    let mut state = tenure.state();
    if state.over.is_none() {
        arm(engine, tenure, &mut state, now);
    }
}

/// Serves tenures whose alarm rang: ends those whose time is over and returns the batches to renew.
pub(super) fn inspect(engine: &Engine, tenures: Vec<Arc<Tenure>>) -> Vec<Vec<Arc<Tenure>>> {
    let mut due: Vec<(Kind, Arc<Tenure>)> = Vec::new();
    let now = engine.clock.now();
    for tenure in tenures {
        let mut state = tenure.state();
        if state.over.is_some() {
            continue;
        }
        let ended = if now >= state.ends_by {
            Some(LossReason::MaxHold)
        } else if now >= tenure.deadline() {
            Some(state.loss_by_time())
        } else {
            None
        };
        if let Some(reason) = ended {
            drop(state);
            end(engine, &tenure, reason);
            continue;
        }
        let renew = now >= state.renew_at && !state.renewing;
        if renew {
            (state.renewing, state.suspect) = (true, false);
        }
        arm(engine, &tenure, &mut state, now);
        drop(state);
        if renew {
            due.push(((engine.backend.lane_dyn(&tenure.claim.key), tenure.command_timeout()), tenure));
        }
    }
    into_batches(due)
}

/// What decides who may share a batch: the lane, and how long an answer is waited for.
type Kind = (u16, Duration);

/// Groups tenures by lane, in batches. Batches are independent: one that fails delays no other.
fn into_batches(mut due: Vec<(Kind, Arc<Tenure>)>) -> Vec<Vec<Arc<Tenure>>> {
    due.sort_by_key(|(kind, _)| *kind);
    let mut batches: Vec<(Kind, Vec<Arc<Tenure>>)> = Vec::new();
    for ((lane, timeout), tenure) in due {
        match batches.last_mut() {
            // A batch waits only as long as its most impatient member; keep the patient apart.
            Some(((same, shortest), batch))
                if *same == lane && batch.len() < BATCH && timeout <= shortest.saturating_mul(2) =>
            {
                batch.push(tenure);
            }
            _ => batches.push(((lane, timeout), vec![tenure])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Renews one batch and applies the answers.
pub(super) async fn renew(engine: Arc<Engine>, batch: Vec<Arc<Tenure>>) {
    let Some(first) = batch.first() else { return };
    let sent_at = engine.clock.now();
    let ask = |tenure: &Arc<Tenure>| {
        let asked = Question::about(tenure, sent_at);
        (asked, Claim { ttl: asked.lease.ttl(), ..tenure.claim.clone() })
    };
    let (asked, claims): (Vec<Question>, Vec<Claim>) = batch.iter().map(ask).unzip();
    let command = Arc::clone(&engine.backend).renew_dyn(claims);
    let answers = engine
        .bounded("renew", &first.claim.key, sent_at.after(first.command_timeout()), async { Ok(command.await) })
        .await;
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); batch.len()],
    };
    let missing = || Err(LockError::unavailable("the store answered for fewer leases than it was asked"));
    let answers = answers.into_iter().chain(std::iter::repeat_with(missing));
    for ((tenure, asked), answer) in batch.iter().zip(asked).zip(answers) {
        apply(&engine, tenure, asked, &answer);
    }
}

/// What a renewal asked of one tenure.
#[derive(Clone, Copy)]
struct Question {
    lease: Asked,
    sent_at: Timestamp,
    /// How much later than planned it was sent.
    lateness: Duration,
}

impl Question {
    fn about(tenure: &Tenure, sent_at: Timestamp) -> Self {
        let state = tenure.state();
        Self { lease: tenure.asks_for(&state, sent_at), sent_at, lateness: sent_at.since(state.renew_at) }
    }
}

/// Applies one answer to its tenure.
fn apply(engine: &Engine, tenure: &Arc<Tenure>, asked: Question, answer: &Result<Renewal>) {
    // Each looks for itself: observers of the one before may have taken their time.
    let now = engine.clock.now();
    let mut state = tenure.state();
    state.renewing = false;
    if state.over.is_some() {
        return;
    }
    let was_left = tenure.deadline().since(now);
    // A fixed lease is not renewed: nobody is told that it was looked at.
    let renewed = matches!(asked.lease, Asked::Renewal(_));
    let holder = state.holder.upgrade().filter(|_| renewed);
    let told = match answer {
        Ok(Renewal::Renewed) if tenure.raise(&state, now, asked.sent_at, asked.lease.ttl()) => {
            tenure.confirmed(&mut state, asked.sent_at);
            let (lease_left, lateness) = (tenure.deadline().since(now), asked.lateness);
            Some(LockEventKind::Renewed { lease_was_left: was_left, lease_left, lateness })
        }
        // Too late: what is over is never revived, and its alarm rings now.
        Ok(Renewal::Renewed) => None,
        Ok(Renewal::Lost) => {
            drop(state);
            // Gone because its time was over, or taken away while it had time left?
            let reason = if was_left.is_zero() { LossReason::Expired } else { LossReason::Stolen };
            end(engine, tenure, reason);
            return;
        }
        Err(error) => {
            state.unanswered = renewed;
            let most = (tenure.claim.ttl / 12).max(Duration::from_millis(10));
            state.renew_at = now.after(jitter(most / 4, most));
            Some(LockEventKind::RenewFailed { error, lease_left: was_left })
        }
    };
    arm(engine, tenure, &mut state, now);
    drop(state);
    if let (Some(holder), Some(told)) = (holder, told) {
        holder.tell_renewal(told);
    }
}

/// Sets the next alarm of a tenure.
fn arm(engine: &Engine, tenure: &Arc<Tenure>, state: &mut TenureState, now: Timestamp) {
    let before = state.alarm.take();
    let ends_at = tenure.deadline().min(state.ends_by);
    // While a renewal is on its way only the end matters: it depends on no reply.
    state.alarm = Some(if state.renewing || state.renew_at >= ends_at {
        engine.schedule.set(ends_at, Alarm::Tenure(Arc::clone(tenure)))
    } else {
        let early = state.may_be_early(now);
        let (alarm, planned) = engine.schedule.set_renewal(state.renew_at, early, Arc::clone(tenure));
        state.renew_at = planned;
        alarm
    });
    // Last, so that a shutdown finds it at every moment. It may have rung already.
    engine.schedule.cancel(before);
}

/// Declares a tenure lost.
pub(super) fn end(engine: &Engine, tenure: &Tenure, reason: LossReason) {
    if let Ok(ended) = tenure.end(Ending::Lost(reason)) {
        engine.schedule.cancel(ended.alarm);
        if let Some(holder) = ended.holder {
            holder.lose(reason);
        }
    }
}
