//! Several keys at once: in one order, under one budget, all or nothing.

use std::sync::Arc;

use crate::acquire::{Wish, acquire};
use crate::error::Result;
use crate::guard::LockGuard;
use crate::keeper::Engine;
use crate::key::LockKey;
use crate::options::Wait;

/// Brings keys into the one order in which everybody locks them, each once. Two callers that lock
/// the same keys in different orders would wait for each other.
pub(crate) fn in_order(keys: impl IntoIterator<Item = Result<LockKey>>) -> Result<Vec<LockKey>> {
    let mut keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Acquires every wish, in order. What is held already is kept and renewed while the next is waited
/// for, and released if one of them is refused.
pub(crate) async fn acquire_all(engine: Arc<Engine>, wishes: Vec<Wish>) -> Result<LockGuard> {
    let started = engine.clock.now();
    let mut guard: Option<LockGuard> = None;
    for mut wish in wishes {
        if let Wait::AtMost(limit) = wish.options.wait {
            let spent = engine.clock.now().since(started);
            wish.options.wait = Wait::AtMost(limit.saturating_sub(spent));
        }
        let hold = acquire(Arc::clone(&engine), wish).await?;
        match &mut guard {
            Some(guard) => guard.join(hold),
            None => guard = Some(LockGuard::new(hold)),
        }
    }
    let guard = guard.ok_or_else(crate::error::LockError::no_keys)?;
    // The first may have been lost while the last was waited for.
    guard.ensure_held()?;
    Ok(guard)
}
