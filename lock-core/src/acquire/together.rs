//! The first attempt at several keys: all of them in one step of the store.

use std::sync::Arc;

use crate::acquire::{Granted, Journey, Taken, Wish};
use crate::claim::together::{Together, Verdict};
use crate::claim::{Cargo, Known};
use crate::clock::Timestamp;
use crate::context;
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::GrantPath;
use crate::gate::Turn;
use crate::keeper::{Engine, Hold, PendingEntry, conclude};
use crate::options::Wait;
use crate::owner::Holder;
use crate::tenure::{Tenure, deadline_of};

/// What an attempt at several keys came to.
pub(crate) enum Attempted {
    Granted(Vec<Hold>),
    /// They are to be taken one after the other.
    Apart(Vec<Journey>),
}

/// Takes all keys at once if that is possible. Nobody waits here: who may wait does so afterwards, for
/// one key after the other.
///
/// Nothing is told of keys that were not tried, or that stood behind the one that was refused.
///
/// # Cancel safety
///
/// As [`acquire`](super::acquire).
pub(crate) async fn acquire_together(engine: Arc<Engine>, journeys: Vec<Journey>) -> Result<Attempted> {
    let mut party = Party { engine, journeys, claiming: None };
    let outcome = party.run().await;
    party.end(outcome)
}

/// The acquires of several keys while they travel together.
struct Party {
    engine: Arc<Engine>,
    journeys: Vec<Journey>,
    /// So that a shutdown waits for what it may take.
    claiming: Option<PendingEntry>,
}

enum Outcome {
    Granted(Vec<Granted>),
    /// The key of this number stands in the way, held by somebody or for another reason.
    Refused(usize, Option<Holder>, LockError),
    Apart,
}

impl Party {
    async fn run(&mut self) -> Outcome {
        let engine = Arc::clone(&self.engine);
        let wishes: Vec<&Wish> = self.journeys.iter().map(|journey| &journey.wish).collect();
        let (first, limit) = (wishes[0], self.journeys[0].until);
        let shared = wishes.iter().any(|wish| context::holds(engine.identity(), &wish.story.key).is_some());
        // What is refused for another reason than a key that is taken, is refused one by one.
        if shared || engine.is_closed() || first.options.validate().is_err() {
            return Outcome::Apart;
        }
        let waits = first.options.wait != Wait::None;
        let turns = match turns(&engine, &wishes) {
            Ok(turns) => turns,
            Err(_) if waits => return Outcome::Apart,
            Err((index, known)) => {
                let holder = known.and_then(|known| known.describe(engine.clock.now()));
                return Outcome::Refused(index, holder.clone(), LockError::busy(holder));
            }
        };
        self.claiming = Some(engine.enter());
        let mut together = Together::new(&engine, &wishes, turns);
        let answer = together.ask(&wishes, limit).await;
        if engine.is_closed() {
            return Outcome::Refused(0, None, LockError::shut_down());
        }
        let granted = match answer {
            Ok(Verdict::Granted(granted)) => granted,
            Ok(Verdict::Apart) => return Outcome::Apart,
            Ok(Verdict::Held(..)) if waits => return Outcome::Apart,
            Ok(Verdict::Held(index, holder)) => {
                return Outcome::Refused(index, Some(holder.clone()), LockError::busy(Some(holder)));
            }
            Err(error) if waits && error.kind() == LockErrorKind::Unavailable => return Outcome::Apart,
            Err(error) => {
                let named = wishes.iter().position(|wish| Some(&wish.story.key) == error.key());
                return Outcome::Refused(named.unwrap_or(0), None, error);
            }
        };
        let now = engine.clock.now();
        let ended = granted.iter().any(|success| deadline_of(success.sent_at, success.granted_for) <= now);
        let grants = if ended { None } else { begin(&engine, together.granted(&wishes, granted, now), now) };
        match grants {
            Some(grants) => Outcome::Granted(grants),
            None if waits => Outcome::Apart,
            None => Outcome::Refused(
                0,
                None,
                LockError::unavailable("the lease ended before it could be taken up; use a longer ttl"),
            ),
        }
    }

    fn end(mut self, outcome: Outcome) -> Result<Attempted> {
        let mut journeys = std::mem::take(&mut self.journeys);
        let claiming = self.claiming.take();
        match outcome {
            Outcome::Granted(grants) => {
                let _until_they_are_held = claiming;
                let holds = journeys.into_iter().zip(grants).map(|(mut journey, grant)| {
                    journey.begin();
                    journey.end(Ok(Taken::New(grant)))
                });
                holds.collect::<Result<_>>().map(Attempted::Granted)
            }
            Outcome::Refused(index, holder, error) => {
                drop(claiming);
                let mut journey = journeys.swap_remove(index);
                journey.holder = holder;
                journey.begin();
                journey.end(Err(error)).map(|hold| Attempted::Granted(vec![hold]))
            }
            Outcome::Apart => Ok(Attempted::Apart(journeys)),
        }
    }
}

/// Takes the turn of every key if all are free in this process. Otherwise tells which is not.
fn turns(engine: &Arc<Engine>, wishes: &[&Wish]) -> Result<Vec<Turn<Cargo>>, (usize, Option<Known>)> {
    let turn =
        |(index, wish): (usize, &&Wish)| engine.gate.try_enter(&wish.story.key).map_err(|holder| (index, holder));
    wishes.iter().enumerate().map(turn).collect()
}

/// Gives each tenure its first holder, or ends them all if one is over already.
fn begin(engine: &Arc<Engine>, tenures: Vec<(Arc<Tenure>, Turn<Cargo>)>, at: Timestamp) -> Option<Vec<Granted>> {
    let tokens: Option<Vec<_>> = tenures.iter().map(|(tenure, _)| tenure.next_token(at)).collect();
    let Some(tokens) = tokens else {
        for (tenure, turn) in tenures {
            conclude(engine, &tenure, turn);
        }
        return None;
    };
    let path = GrantPath::Uncontended;
    let grants =
        tenures.into_iter().zip(tokens).map(|((tenure, turn), token)| Granted { token, tenure, turn, path, at });
    Some(grants.collect())
}

impl Drop for Party {
    fn drop(&mut self) {
        // Before the anchors, which may wait for everything that is pending.
        self.claiming = None;
        // Cancelled: each of them was on its way, and is told of so.
        for journey in &mut self.journeys {
            journey.begin();
        }
    }
}
