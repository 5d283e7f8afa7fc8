//! Claims for several keys that the store grants in one step, all or none.

use std::sync::Arc;

use crate::engine::claim::spec::LockSpec;
use crate::engine::claim::{ClaimAnswer, ClaimGuard, Handoff, Success};
use crate::engine::gate::Turn;
use crate::engine::lease::Lease;
use crate::engine::shared::Engine;
use lock_store::contract::backend::{Attempt, AttemptAll, BoxFuture};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Timestamp;

/// Fresh claims, one for each key, and the one command that asks for all of them. Dropping it undoes what the store
/// did.
pub(crate) struct JointClaim {
    engine: Arc<Engine>,
    guards: Vec<ClaimGuard>,
    in_flight: Option<SentJointly>,
}

/// The command in flight.
struct SentJointly {
    command: BoxFuture<'static, Result<AttemptAll>>,
    sent_at: Timestamp,
    /// When to stop waiting for the answer.
    until: Timestamp,
}

/// The store's answer.
pub(crate) enum JointAnswer {
    Granted(Vec<Success>),
    /// The key with this index is taken, so none was granted.
    Held(usize, Holder),
    /// The keys must be acquired one by one.
    Apart,
}

impl JointClaim {
    /// Makes a claim for each request. None of the turns may carry a claim.
    pub(crate) fn new(engine: &Arc<Engine>, specs: &[&LockSpec], turns: Vec<Turn<Handoff>>) -> Self {
        let guards = specs.iter().zip(turns).map(|(spec, turn)| ClaimGuard::new(engine, spec, turn, None)).collect();
        Self { engine: Arc::clone(engine), guards, in_flight: None }
    }

    /// Asks once. Awaits the answer until `limit` at the latest.
    pub(crate) async fn ask(&mut self, specs: &[&LockSpec], limit: Timestamp) -> Result<JointAnswer> {
        let engine = Arc::clone(&self.engine);
        let floors: Vec<FencingToken> = specs.iter().map(|spec| engine.newest_tokens.of(&spec.events.key)).collect();
        let (sent_at, first) = (engine.clock.now(), specs[0]);
        let ask = |(guard, spec): (&mut ClaimGuard, &&LockSpec)| guard.pending().request(spec, sent_at, limit);
        let requests: Vec<_> = self.guards.iter_mut().zip(specs).map(ask).collect();
        let execute_within = requests[0].execute_within;
        let command = Arc::clone(&engine.backend).try_acquire_all(requests);
        let sent = self.in_flight.insert(SentJointly {
            command: engine.route(first.caller, command),
            sent_at,
            until: sent_at.after(execute_within),
        });
        let until = sent.until.min(limit);
        let answer = engine.bounded("acquire", &first.events.key, until, &mut sent.command).await;
        if let Some(sent) = self.in_flight.take() {
            note(&mut self.guards, &sent, &answer, engine.clock.now());
        }
        let tokens = match answer? {
            AttemptAll::Granted { tokens } if tokens.len() == specs.len() => tokens,
            AttemptAll::Granted { tokens } => {
                return Err(LockError::unavailable(format!(
                    "the store gave {} tokens for {} keys; they are given back",
                    tokens.len(),
                    specs.len(),
                )));
            }
            AttemptAll::Held { index, holder } => return Ok(JointAnswer::Held(index.min(specs.len() - 1), holder)),
            AttemptAll::Apart => return Ok(JointAnswer::Apart),
        };
        let mut granted = Vec::with_capacity(tokens.len());
        for (index, token) in tokens.into_iter().enumerate() {
            let attempt = Attempt::Granted { token, lease: None };
            let pending = self.guards[index].pending();
            if let ClaimAnswer::Granted(success) =
                pending.answered(&engine, specs[index], attempt, sent_at, floors[index])
            {
                granted.push(success);
            }
        }
        Ok(JointAnswer::Granted(granted))
    }

    /// Hands the granted claims over as leases.
    pub(crate) fn granted(
        mut self,
        specs: &[&LockSpec],
        granted: Vec<Success>,
        now: Timestamp,
    ) -> Vec<(Arc<Lease>, Turn<Handoff>)> {
        let guards = std::mem::take(&mut self.guards).into_iter();
        guards.zip(specs).zip(granted).map(|((guard, spec), success)| guard.granted(spec, success, now)).collect()
    }
}

/// Notes in every claim what must be undone if the claim is dropped now.
fn note(guards: &mut [ClaimGuard], sent: &SentJointly, answer: &Result<AttemptAll>, now: Timestamp) {
    let unsettled = match answer {
        Ok(AttemptAll::Granted { .. }) => sent.sent_at,
        // As with a single claim, the command may have been sent just before it was given up.
        Err(error) if error.is_ambiguous() => now.after(sent.until.since(sent.sent_at)),
        Ok(AttemptAll::Held { .. } | AttemptAll::Apart) | Err(_) => return,
    };
    for guard in guards {
        let pending = guard.pending();
        pending.unsettled_until = pending.unsettled_until.max(Some(unsettled));
    }
}

impl Drop for JointClaim {
    fn drop(&mut self) {
        // Without a command in flight, each claim cleans up after itself.
        let Some(mut sent) = self.in_flight.take() else { return };
        let mut guards = std::mem::take(&mut self.guards);
        let engine = Arc::clone(&self.engine);
        self.engine.clean_up(async move {
            let key = guards[0].pending().claim.key.clone();
            let answer = engine.bounded("acquire", &key, sent.until, &mut sent.command).await;
            note(&mut guards, &sent, &answer, engine.clock.now());
        });
    }
}
