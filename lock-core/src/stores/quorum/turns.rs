//! A pause after a run of grants to this process, so that others, which poll, get their turn.

use std::collections::HashMap;
use std::time::Duration;

use crate::types::key::LockKey;
use crate::types::system::clock::{Timestamp, jitter};
use crate::types::system::sync::{Mutex, MutexGuard};

/// For how long a key stays in this process before it pauses.
const SLICE: Duration = Duration::from_millis(10);

/// The bounds of the pause. A key that comes back later than this begins a new run.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(20));

/// How many keys are remembered before those that were not used lately are forgotten, at least.
const REMEMBERED: usize = 1024;

/// The runs of grants that this process had.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    by_key: HashMap<LockKey, Run>,
    /// How many there were when the last were forgotten. Twice as many come before that is done again: what is held
    /// stays, and looking at all of it for every lock would cost more than the lock.
    kept: usize,
}

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
        let Run { began, released } = *runs.by_key.get(key)?;
        let released = released?;
        if released.since(began) < SLICE {
            return None;
        }
        runs.by_key.remove(key);
        Some(released.after(jitter(PAUSE.0, PAUSE.1)))
    }

    pub(super) fn granted(&self, key: &LockKey, now: Timestamp) {
        let over = |run: &Run| run.released.is_some_and(|released| now.since(released) > PAUSE.1);
        let mut runs = self.runs();
        if runs.by_key.len() >= REMEMBERED.max(2 * runs.kept) {
            runs.by_key.retain(|_, run| !over(run));
            runs.kept = runs.by_key.len();
        }
        let run = runs.by_key.entry(key.clone()).or_insert(Run { began: now, released: None });
        if over(run) {
            run.began = now;
        }
        run.released = None;
    }

    pub(super) fn released(&self, key: &LockKey, now: Timestamp) {
        if let Some(run) = self.runs().by_key.get_mut(key) {
            run.released = Some(now);
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use lock_core::testing::limit;

    use super::{REMEMBERED, Turns};
    use crate::types::key::LockKey;
    use crate::types::system::clock::Timestamp;

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

    #[test]
    #[limit]
    fn keys_that_are_held_are_not_looked_at_for_every_lock() {
        let turns = Turns::default();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let key = |number: usize| LockKey::new(format!("k{number}")).unwrap();
        let mut sweeps = 0;
        for number in 0..10 * REMEMBERED {
            let before = turns.runs().kept;
            turns.granted(&key(number), at(0));
            sweeps += usize::from(turns.runs().kept != before);
        }
        assert!(sweeps <= 4, "{sweeps}");
        // Released claims are forgotten.
        (0..10 * REMEMBERED).for_each(|number| turns.released(&key(number), at(1)));
        (0..10 * REMEMBERED).for_each(|_| turns.granted(&key(0), at(1000)));
        (0..10 * REMEMBERED).for_each(|number| turns.granted(&LockKey::new(format!("n{number}")).unwrap(), at(1000)));
        assert!(turns.runs().by_key.len() < 12 * REMEMBERED, "{}", turns.runs().by_key.len());
    }
}
