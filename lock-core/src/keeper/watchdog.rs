//! The watchdog: renews tenures in batches, and declares them lost by the clock.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Claim, Renewal};
use crate::clock::{Timestamp, jitter};
use crate::error::{LockError, LossReason, Result};
use crate::event::LockEventKind;
use crate::keeper::Engine;
use crate::keeper::schedule::Alarm;
use crate::tenure::{Asked, Ending, Tenure, TenureState};

/// The most renewals that one command carries: more would block the server for too long.
const BATCH: usize = 100;

/// Sets the alarm of a tenure that has just begun, or whose holder has changed.
pub(super) fn watch(engine: &Engine, tenure: &Arc<Tenure>) {
    let mut state = tenure.state();
    if state.over.is_none() {
        arm(engine, tenure, &mut state);
    }
}

/// Serves tenures whose alarm rang: ends those whose time is over and returns the batches to renew.
pub(super) fn inspect(engine: &Engine, tenures: Vec<Arc<Tenure>>) -> Vec<Vec<Arc<Tenure>>> {
    let mut due: Vec<(u16, Arc<Tenure>)> = Vec::new();
    for tenure in tenures {
        let now = engine.clock.now();
        let mut state = tenure.state();
        if state.over.is_some() {
            continue;
        }
        let ends_by = state.holder.upgrade().map_or(Timestamp::NEVER, |holder| holder.ends_by);
        let ended = if now >= ends_by {
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
        arm(engine, &tenure, &mut state);
        drop(state);
        if renew {
            due.push((engine.backend.lane_dyn(&tenure.claim.key), tenure));
        }
    }
    into_batches(due)
}

/// Groups tenures by lane, in batches. Batches are independent: one that fails delays no other.
fn into_batches(mut due: Vec<(u16, Arc<Tenure>)>) -> Vec<Vec<Arc<Tenure>>> {
    due.sort_by_key(|(lane, tenure)| (*lane, tenure.command_timeout));
    let mut batches: Vec<(u16, Vec<Arc<Tenure>>)> = Vec::new();
    for (lane, tenure) in due {
        match batches.last_mut() {
            // A batch waits only as long as its most impatient member; keep the patient apart.
            Some((same, batch))
                if *same == lane
                    && batch.len() < BATCH
                    && tenure.command_timeout <= batch[0].command_timeout.saturating_mul(2) =>
            {
                batch.push(tenure);
            }
            _ => batches.push((lane, vec![tenure])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Renews one batch and applies the answers.
pub(super) async fn renew(engine: Arc<Engine>, batch: Vec<Arc<Tenure>>) {
    let Some(first) = batch.first() else { return };
    let sent_at = engine.clock.now();
    let lateness: Vec<Duration> = batch.iter().map(|tenure| sent_at.since(tenure.state().renew_at)).collect();
    let asked: Vec<Asked> = batch.iter().map(|tenure| tenure.asks_for()).collect();
    let claim_for = |(tenure, asked): (&Arc<Tenure>, &Asked)| Claim { ttl: asked.ttl(), ..tenure.claim.clone() };
    let claims: Vec<Claim> = batch.iter().zip(&asked).map(claim_for).collect();
    let command = Arc::clone(&engine.backend).renew_dyn(claims);
    let answers = engine
        .bounded("renew", &first.claim.key, sent_at.after(first.command_timeout), async { Ok(command.await) })
        .await;
    match answers {
        Ok(answers) => {
            let missing = || Err(LockError::unavailable("the store answered for fewer leases than it was asked"));
            let answers = answers.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
            for (((tenure, asked), lateness), answer) in batch.iter().zip(asked).zip(lateness).zip(answers) {
                apply(&engine, tenure, asked, sent_at, lateness, answer.unwrap_or_else(missing));
            }
        }
        Err(error) => {
            for ((tenure, asked), lateness) in batch.iter().zip(asked).zip(lateness) {
                apply(&engine, tenure, asked, sent_at, lateness, Err(error.clone()));
            }
        }
    }
}

/// Applies one answer to its tenure.
fn apply(
    engine: &Engine,
    tenure: &Arc<Tenure>,
    asked: Asked,
    sent_at: Timestamp,
    lateness: Duration,
    answer: Result<Renewal>,
) {
    let now = engine.clock.now();
    let was_left = tenure.deadline().since(now);
    let holder = {
        let mut state = tenure.state();
        state.renewing = false;
        // A fixed lease is not renewed: nobody is told that it was looked at.
        state.holder.upgrade().filter(|_| matches!(asked, Asked::Renewal(_)))
    };
    match answer {
        Ok(Renewal::Renewed) => {
            if tenure.raise(sent_at, asked.ttl()) {
                if let Some(holder) = holder {
                    holder.tell_renewal(LockEventKind::Renewed {
                        lease_was_left: was_left,
                        lease_left: tenure.deadline().since(now),
                        lateness,
                    });
                }
                tenure.confirmed(sent_at);
            }
        }
        Ok(Renewal::Lost) => {
            // Gone because its time was over, or taken away while it had time left?
            let reason = if now >= tenure.deadline() { LossReason::Expired } else { LossReason::Stolen };
            end(engine, tenure, reason);
            return;
        }
        Err(error) => {
            {
                let mut state = tenure.state();
                if state.over.is_some() {
                    return;
                }
                state.unanswered = matches!(asked, Asked::Renewal(_));
                let most = (tenure.claim.ttl / 12).max(Duration::from_millis(10));
                state.renew_at = now.after(jitter(most / 4, most));
            }
            if let Some(holder) = holder {
                holder.tell_renewal(LockEventKind::RenewFailed { error: &error, lease_left: was_left });
            }
        }
    }
    watch(engine, tenure);
}

/// Sets the next alarm of a tenure.
fn arm(engine: &Engine, tenure: &Arc<Tenure>, state: &mut TenureState) {
    // While a renewal is on its way only the deadline matters: it depends on no reply.
    let renew_at = if state.renewing { Timestamp::NEVER } else { state.renew_at };
    let ends_by = state.holder.upgrade().map_or(Timestamp::NEVER, |holder| holder.ends_by);
    let at = renew_at.min(tenure.deadline()).min(ends_by);
    // The alarm may have rung already, or the tenure be looked at for another reason.
    if let Some(alarm) = state.alarm.take() {
        engine.schedule.cancel(alarm);
    }
    state.alarm = Some(engine.schedule.set(at, Alarm::Tenure(Arc::clone(tenure))));
}

/// Declares a tenure lost.
pub(super) fn end(engine: &Engine, tenure: &Tenure, reason: LossReason) {
    if let Ok(ended) = tenure.end(Ending::Lost(reason)) {
        if let Some(alarm) = ended.alarm {
            engine.schedule.cancel(alarm);
        }
        if let Some(holder) = ended.holder {
            holder.lose(reason);
        }
    }
}
