//! Claims for several keys that the store grants in one step or not at all.

use std::sync::Arc;

use crate::acquire::Wish;
use crate::backend::{Attempt, AttemptAll, BoxFuture};
use crate::claim::{Answer, Cargo, Pursuer, Success};
use crate::clock::Timestamp;
use crate::error::{LockError, Result};
use crate::gate::Turn;
use crate::keeper::Engine;
use crate::owner::Holder;
use crate::tenure::Tenure;

/// Fresh claims, one for each key, and the one command that asks for all of them. Dropped, it undoes
/// what the store did.
pub(crate) struct Together {
    engine: Arc<Engine>,
    pursuers: Vec<Pursuer>,
    in_flight: Option<InFlight>,
}

/// The command on its way to the store.
struct InFlight {
    command: BoxFuture<'static, Result<AttemptAll>>,
    sent_at: Timestamp,
    /// When its answer is waited for no longer.
    until: Timestamp,
}

/// What the store said.
pub(crate) enum Verdict {
    Granted(Vec<Success>),
    /// The key of this number is taken, so none was granted.
    Held(usize, Holder),
    /// They must be asked for one by one.
    Apart,
}

impl Together {
    /// Makes a claim for each wish, none of which has a claim on its way.
    pub(crate) fn new(engine: &Arc<Engine>, wishes: &[&Wish], turns: Vec<Turn<Cargo>>) -> Self {
        let pursuers = wishes.iter().zip(turns).map(|(wish, turn)| Pursuer::new(engine, wish, turn, None)).collect();
        Self { engine: Arc::clone(engine), pursuers, in_flight: None }
    }

    /// Asks once, and awaits the answer at most until `limit`.
    pub(crate) async fn ask(&mut self, wishes: &[&Wish], limit: Timestamp) -> Result<Verdict> {
        let engine = Arc::clone(&self.engine);
        let requests: Vec<_> =
            self.pursuers.iter_mut().zip(wishes).map(|(pursuer, wish)| pursuer.pursuit().request(wish, 0)).collect();
        let floors: Vec<_> = requests.iter().map(|request| request.floor).collect();
        let (sent_at, first) = (engine.clock.now(), wishes[0]);
        let command = Arc::clone(&engine.backend).try_acquire_all_dyn(requests);
        let sent = self.in_flight.insert(InFlight {
            command: engine.route(first.caller, command),
            sent_at,
            until: sent_at.after(first.options.command_timeout()),
        });
        let until = sent.until.min(limit);
        let answer = engine.bounded("acquire", &first.story.key, until, &mut sent.command).await;
        if let Some(sent) = self.in_flight.take() {
            note(&mut self.pursuers, &sent, &answer, engine.clock.now());
        }
        let tokens = match answer? {
            AttemptAll::Granted { tokens } if tokens.len() == wishes.len() => tokens,
            AttemptAll::Granted { tokens } => {
                return Err(LockError::unavailable(format!(
                    "the store gave {} tokens for {} keys; they are given back",
                    tokens.len(),
                    wishes.len(),
                )));
            }
            AttemptAll::Held { index, holder } => return Ok(Verdict::Held(index.min(wishes.len() - 1), holder)),
            AttemptAll::Apart => return Ok(Verdict::Apart),
        };
        let mut granted = Vec::with_capacity(tokens.len());
        for (index, (token, block)) in tokens.into_iter().enumerate() {
            let attempt = Attempt::Granted { token, block };
            let pursuit = self.pursuers[index].pursuit();
            if let Answer::Granted(success) = pursuit.answered(&engine, wishes[index], attempt, sent_at, floors[index])
            {
                granted.push(success);
            }
        }
        Ok(Verdict::Granted(granted))
    }

    /// Hands the granted claims over.
    pub(crate) fn granted(
        mut self,
        wishes: &[&Wish],
        granted: Vec<Success>,
        now: Timestamp,
    ) -> Vec<(Arc<Tenure>, Turn<Cargo>)> {
        let pursuers = std::mem::take(&mut self.pursuers).into_iter();
        pursuers
            .zip(wishes)
            .zip(granted)
            .map(|((pursuer, wish), success)| pursuer.granted(wish, success, now))
            .collect()
    }
}

/// Notes in every claim what must be undone if it is dropped now.
fn note(pursuers: &mut [Pursuer], sent: &InFlight, answer: &Result<AttemptAll>, now: Timestamp) {
    let unsettled = match answer {
        Ok(AttemptAll::Granted { .. }) => sent.sent_at,
        // As of one claim: it may have been sent only just before it was given up.
        Err(error) if error.is_ambiguous() => now.after(sent.until.since(sent.sent_at)),
        Ok(AttemptAll::Held { .. } | AttemptAll::Apart) | Err(_) => return,
    };
    for pursuer in pursuers {
        let pursuit = pursuer.pursuit();
        pursuit.unsettled_until = pursuit.unsettled_until.max(Some(unsettled));
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // Without a command on its way each claim looks after itself.
        let Some(mut sent) = self.in_flight.take() else { return };
        let mut pursuers = std::mem::take(&mut self.pursuers);
        let engine = Arc::clone(&self.engine);
        self.engine.clean_up(async move {
            let key = pursuers[0].pursuit().claim.key.clone();
            let answer = engine.bounded("acquire", &key, sent.until, &mut sent.command).await;
            note(&mut pursuers, &sent, &answer, engine.clock.now());
        });
    }
}
