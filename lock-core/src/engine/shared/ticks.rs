//! The times at which sleeping claims of one manager ask again. Claims that are due within one tick ask together.

use std::time::Duration;

use lock_store::types::system::clock::{Timestamp, jitter};

/// The time between two ticks, in nanoseconds.
const TICK: u64 = 100_000_000;

/// Each manager has ticks of its own. Managers of one machine have the same clock, and would otherwise ask all at once.
#[derive(Debug)]
pub(crate) struct Ticks {
    /// How long after a multiple of [`TICK`] each tick is, in nanoseconds.
    shift: u64,
}

impl Default for Ticks {
    fn default() -> Self {
        let shift = jitter(Duration::ZERO, Duration::from_nanos(TICK)).subsec_nanos();
        Self { shift: shift.into() }
    }
}

impl Ticks {
    /// Returns the last tick that is not later than `moment`.
    pub(crate) fn until(&self, moment: Timestamp) -> Timestamp {
        let past = moment.as_nanos().saturating_sub(self.shift) % TICK;
        moment.before(Duration::from_nanos(past))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{TICK, Ticks};
    use lock_store::types::system::clock::Timestamp;

    #[test]
    fn what_is_due_within_a_tick_is_due_at_once_and_never_later() {
        let ticks = Ticks::default();
        let moments = (0..3000_u64).map(|at| Timestamp::from_nanos(0).after(Duration::from_millis(60_000 + at)));
        let mut due: Vec<Timestamp> = moments
            .map(|moment| {
                let due = ticks.until(moment);
                assert!(due <= moment && moment.since(due) < Duration::from_nanos(TICK), "{moment:?}: {due:?}");
                due
            })
            .collect();
        due.dedup();
        assert!((30..=31).contains(&due.len()), "{due:?}");
    }

    #[test]
    fn managers_have_ticks_of_their_own() {
        let moment = Timestamp::from_nanos(0).after(Duration::from_secs(60));
        let mut due: Vec<u64> = (0..50).map(|_| Ticks::default().until(moment).as_nanos()).collect();
        due.sort_unstable();
        due.dedup();
        assert!(due.len() > 40, "{due:?}");
    }
}
