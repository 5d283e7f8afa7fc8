//! Several keys at once: in one order, under one budget, all or nothing.

use std::sync::Arc;

use crate::acquire::{Acquire, Attempted, LockSpec, acquire_jointly};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::keeper::Engine;
use crate::key::LockKey;

/// Brings keys into the one order in which everybody locks them, each once. Two callers that lock
/// the same keys in different orders would wait for each other.
pub(crate) fn in_order(keys: impl IntoIterator<Item = Result<LockKey>>) -> Result<Vec<LockKey>> {
    let mut keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Acquires every wish: at once if the store can take these keys in one step and all are free. Else
/// those who may wait take one after the other, in order. What is held already is kept and renewed while
/// the next is waited for, and released if one of them is refused.
pub(crate) async fn acquire_all(engine: Arc<Engine>, specs: Vec<LockSpec>) -> Result<LockGuard> {
    // One budget: it begins now for all of them.
    let acquires = specs.into_iter().map(Acquire::starting_now).collect();
    let holds = match acquire_jointly(engine, acquires).await? {
        Attempted::Granted(holds) => holds,
        Attempted::Apart(acquires) => {
            let mut holds = Vec::with_capacity(acquires.len());
            for acquire in acquires {
                holds.push(acquire.continue_alone().await?);
            }
            holds
        }
    };
    let guard = LockGuard::of_all(holds)?;
    // The first may have been lost while the last was waited for.
    guard.ensure_held()?;
    Ok(guard)
}
