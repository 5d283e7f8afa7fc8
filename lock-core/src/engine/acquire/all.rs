//! Acquires several keys in one order, within one budget, and in one step of the store if possible.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::{Acquire, Granted, Obtained};
use crate::engine::claim::all::{JointAnswer, JointClaim};
use crate::engine::claim::spec::LockSpec;
use crate::engine::claim::{Handoff, HolderHint, LocalPlace, retire};
use crate::engine::context;
use crate::engine::gate::Turn;
use crate::engine::handle::EngineHandle;
use crate::engine::hold::owned::OwnedHold;
use crate::engine::lease::{Lease, deadline_of};
use crate::engine::shared::{Engine, PendingEntry};
use lock_store::contract::event::GrantPath;
use lock_store::types::error::{LockError, LockErrorKind, LossReason, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Wait;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::Timestamp;

/// Sorts keys into the one order in which every process locks them, and removes duplicates. Two callers that lock the
/// same keys in different orders would wait for each other.
pub(crate) fn in_order(keys: impl IntoIterator<Item = Result<LockKey>>) -> Result<Vec<LockKey>> {
    let mut keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Acquires every key. If all keys are free and the store can take them in one step, it takes them at once. Otherwise a
/// request that may wait takes one key after the other, in order. The locks it already has are kept and renewed while
/// it waits for the next, and released if one key is refused.
pub(crate) async fn acquire_all(handle: Arc<EngineHandle>, specs: Vec<LockSpec>) -> Result<Vec<OwnedHold>> {
    // One budget, which begins now, covers all keys.
    let (engine, started) = (Arc::clone(&handle.engine), handle.engine.clock.now());
    let acquires = specs.into_iter().map(|spec| Acquire::starting_now(Arc::clone(&handle), spec)).collect();
    let holds = match acquire_jointly(handle, acquires).await? {
        Attempted::Granted(holds) => holds,
        Attempted::Apart(acquires) => {
            let mut holds = Vec::with_capacity(acquires.len());
            for acquire in acquires {
                let taken = acquire.continue_alone().await;
                holds.push(taken.map_err(|error| of_all(error, engine.clock.now().since(started)))?);
            }
            holds
        }
    };
    // The first lock may have been lost while the last one was waited for. The caller never held it.
    match holds.iter().find_map(|owned| owned.hold.ensure_held().err()) {
        Some(lost) => Err(lost_while_waiting(&lost)),
        None => Ok(holds),
    }
}

fn lost_while_waiting(lost: &LockError) -> LockError {
    let why = lost.loss_reason().map_or("unknown", LossReason::as_str);
    let error = LockError::unavailable(format!(
        "it was lost ({why}) during the wait for the other keys, so none is held; acquire them again"
    ));
    lost.key().map_or(error.clone(), |key| error.with_key(key))
}

/// Turns the error of one key into the error of all keys: the caller has waited for all of them.
fn of_all(error: LockError, waited: Duration) -> LockError {
    match (error.kind(), error.key()) {
        (LockErrorKind::Timeout, Some(key)) => LockError::timeout(waited, error.holder().cloned()).with_key(key),
        _ => error,
    }
}

/// The outcome of an attempt at all keys.
enum Attempted {
    Granted(Vec<OwnedHold>),
    /// The keys must be taken one after the other.
    Apart(Vec<Acquire>),
}

/// Takes all keys at once if that is possible. This attempt does not wait. A request that may wait does so afterwards,
/// one key after the other.
///
/// Keys that were not tried, and keys behind a refused one, have no events.
///
/// # Cancel safety
///
/// Like [`acquire`](super::acquire).
async fn acquire_jointly(handle: Arc<EngineHandle>, acquires: Vec<Acquire>) -> Result<Attempted> {
    let mut joint = JointAcquire { handle, acquires, claiming: None };
    let outcome = joint.run().await;
    joint.end(outcome)
}

/// The acquires of several keys during their joint attempt.
struct JointAcquire {
    handle: Arc<EngineHandle>,
    acquires: Vec<Acquire>,
    /// Makes a shutdown wait for locks that this attempt may take.
    claiming: Option<PendingEntry>,
}

enum JointOutcome {
    Granted(Vec<Granted>),
    /// The key with this index was refused, because a claim holds it or for another reason.
    Refused(usize, Option<Holder>, LockError),
    Apart,
}

impl JointAcquire {
    async fn run(&mut self) -> JointOutcome {
        let engine = Arc::clone(&self.handle.engine);
        let specs: Vec<&LockSpec> = self.acquires.iter().map(|acquire| &acquire.spec).collect();
        let (first, limit) = (specs[0], self.acquires[0].until);
        let shared = specs.iter().any(|spec| context::holds(engine.identity(), &spec.events.key).is_some());
        // If the reason is not a taken key, each key reports the refusal for itself.
        if shared || engine.refuses(first.accepted) || engine.check(&first.options).is_err() {
            return JointOutcome::Apart;
        }
        let waits = first.options.wait != Wait::None;
        let turns = match turns(&self.handle, &specs) {
            Ok(turns) => turns,
            Err(_) if waits => return JointOutcome::Apart,
            Err((index, known)) => {
                let holder = known.and_then(|known| known.describe(engine.clock.now()));
                return JointOutcome::Refused(index, holder.clone(), LockError::busy(holder));
            }
        };
        // A request that does not wait for locks does not wait for room either. Others wait for room key by key.
        if !engine.has_room()
            && let Err(error) = Box::pin(engine.room(engine.clock.now(), first.accepted)).await
        {
            return if waits { JointOutcome::Apart } else { JointOutcome::Refused(0, None, error) };
        }
        self.claiming = Some(engine.enter());
        let mut joint = JointClaim::new(&engine, &specs, turns);
        let answer = joint.ask(&specs, limit).await;
        if engine.refuses(first.accepted) {
            return JointOutcome::Refused(0, None, engine.refusal());
        }
        let granted = match answer {
            Ok(JointAnswer::Granted(granted)) => granted,
            Ok(JointAnswer::Apart) => return JointOutcome::Apart,
            Ok(JointAnswer::Held(..)) if waits => return JointOutcome::Apart,
            Ok(JointAnswer::Held(index, holder)) => {
                return JointOutcome::Refused(index, Some(holder.clone()), LockError::busy(Some(holder)));
            }
            Err(error) if waits && error.kind() == LockErrorKind::Unavailable => {
                // If each key then waits in vain for the cleanup of this attempt, this error is the reason to report.
                for acquire in &mut self.acquires {
                    acquire.out_of_reach = Some(error.clone());
                }
                return JointOutcome::Apart;
            }
            Err(error) => {
                let named = specs.iter().position(|spec| Some(&spec.events.key) == error.key());
                return JointOutcome::Refused(named.unwrap_or(0), None, error);
            }
        };
        let now = engine.clock.now();
        let ended = granted.iter().any(|success| deadline_of(success.sent_at, success.granted_for) <= now);
        let grants = if ended { None } else { begin(&engine, joint.granted(&specs, granted, now), now) };
        match grants {
            Some(grants) => JointOutcome::Granted(grants),
            None if waits => JointOutcome::Apart,
            None => JointOutcome::Refused(
                0,
                None,
                LockError::unavailable("the lease ended before it could be taken up; use a longer ttl"),
            ),
        }
    }

    fn end(mut self, outcome: JointOutcome) -> Result<Attempted> {
        let mut acquires = std::mem::take(&mut self.acquires);
        let claiming = self.claiming.take();
        match outcome {
            JointOutcome::Granted(grants) => {
                let _until_they_are_held = claiming;
                let holds = acquires.into_iter().zip(grants).map(|(mut acquire, grant)| {
                    acquire.begin();
                    acquire.end(Ok(Obtained::New(grant)))
                });
                holds.collect::<Result<_>>().map(Attempted::Granted)
            }
            JointOutcome::Refused(index, holder, error) => {
                drop(claiming);
                let mut acquire = acquires.swap_remove(index);
                acquire.holder = holder;
                acquire.begin();
                acquire.end(Err(error)).map(|hold| Attempted::Granted(vec![hold]))
            }
            JointOutcome::Apart => Ok(Attempted::Apart(acquires)),
        }
    }
}

/// Takes the turn of every key if all are free in this process. Otherwise returns the first key that is not.
fn turns(handle: &EngineHandle, specs: &[&LockSpec]) -> Result<Vec<Turn<Handoff>>, (usize, Option<HolderHint>)> {
    let turn =
        |(index, spec): (usize, &&LockSpec)| handle.gate.try_enter(&spec.events.key).map_err(|holder| (index, holder));
    specs.iter().enumerate().map(turn).collect()
}

/// Gives each lease its first holder. If one lease has already ended, ends them all.
fn begin(engine: &Arc<Engine>, leases: Vec<(Arc<Lease>, Turn<Handoff>)>, at: Timestamp) -> Option<Vec<Granted>> {
    let tokens: Option<Vec<_>> = leases.iter().map(|(lease, _)| lease.next_token(at)).collect();
    let Some(tokens) = tokens else {
        for (lease, turn) in leases {
            retire(engine, &lease, turn);
        }
        return None;
    };
    let path = GrantPath::Uncontended;
    let grants = leases.into_iter().zip(tokens).map(|((lease, turn), token)| {
        let place = LocalPlace::Turn(turn);
        Granted { token, lease, place, path, at }
    });
    Some(grants.collect())
}

impl Drop for JointAcquire {
    fn drop(&mut self) {
        // Dropped before the handles, which may wait for everything that is pending.
        self.claiming = None;
        // Cancelled: each acquire was under way, and emits its event.
        for acquire in &mut self.acquires {
            acquire.begin();
        }
    }
}
