//! A pause after a run of grants to this process, so that others, which poll, get their turn.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Timestamp, jitter};
use crate::key::LockKey;

/// For how long a key stays in this process before it pauses.
const SLICE: Duration = Duration::from_millis(10);

/// The bounds of the pause. A key that comes back later than this begins a new run.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(20));

/// How many keys are remembered before those that were not used lately are forgotten.
const REMEMBERED: usize = 1024;

/// The runs of grants that this process had.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Runs>);

type Runs = HashMap<LockKey, Run>;

#[derive(Clone, Copy, Debug)]
struct Run {
    began: Timestamp,
    /// When the lock was last released, unless it is held.
    released: Option<Timestamp>,
}

impl Turns {
    /// Returns until when this process leaves the key to others, if it has had it for long enough.
    pub(super) fn pauses_until(&self, key: &LockKey) -> Option<Timestamp> {
        let mut runs = self.runs();
        let Run { began, released } = *runs.get(key)?;
        let released = released?;
        if released.since(began) < SLICE {
            return None;
        }
        runs.remove(key);
        Some(released.after(jitter(PAUSE.0, PAUSE.1)))
    }

    pub(super) fn granted(&self, key: &LockKey, now: Timestamp) {
        let over = |run: &Run| run.released.is_some_and(|released| now.since(released) > PAUSE.1);
        let mut runs = self.runs();
        if runs.len() >= REMEMBERED {
            runs.retain(|_, run| !over(run));
        }
        let run = runs.entry(key.clone()).or_insert(Run { began: now, released: None });
        if over(run) {
            run.began = now;
        }
        run.released = None;
    }

    pub(super) fn released(&self, key: &LockKey, now: Timestamp) {
        if let Some(run) = self.runs().get_mut(key) {
            run.released = Some(now);
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::testing::limit;

    use super::Turns;
    use crate::clock::Timestamp;
    use crate::key::LockKey;

    #[test]
    #[limit]
    fn a_process_pauses_after_its_slice() {
        let (turns, key) = (Turns::default(), LockKey::new("k").unwrap());
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let hold = |from, to| {
            turns.granted(&key, at(from));
            turns.released(&key, at(to));
        };
        assert_eq!(turns.pauses_until(&key), None);
        hold(0, 4);
        assert_eq!(turns.pauses_until(&key), None);
        hold(5, 11);
        let until = turns.pauses_until(&key).unwrap();
        assert!(at(21) <= until && until <= at(31), "{until:?}");
        // The pause was made.
        assert_eq!(turns.pauses_until(&key), None);
        hold(30, 34);
        // Others had their turn meanwhile.
        hold(60, 64);
        assert_eq!(turns.pauses_until(&key), None);
    }
}
