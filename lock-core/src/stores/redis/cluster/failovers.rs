//! Which masters have replaced others.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::types::system::sync::{Mutex, MutexGuard};

/// The masters that took over from others, which may not have told them everything.
#[derive(Debug, Default)]
pub(crate) struct Failovers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The masters that the last look found, by their lanes.
    masters: BTreeSet<u16>,
    /// Which failover made a lane a master, counted over the whole cluster.
    by_lane: BTreeMap<u16, u64>,
    count: u64,
    /// The failovers that were not published yet.
    untold: Vec<u16>,
}

impl Failovers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Notes the masters that a refresh found. If another server stopped being a master, a new master has taken over;
    /// otherwise it was added. Returns the masters that have taken over.
    pub(crate) fn found(&self, masters: BTreeSet<u16>) -> Vec<u16> {
        let mut state = self.lock();
        let before = mem::replace(&mut state.masters, masters);
        if before.is_subset(&state.masters) {
            return Vec::new();
        }
        let taken_over: Vec<u16> = state.masters.difference(&before).copied().collect();
        for lane in &taken_over {
            state.count += 1;
            let number = state.count;
            state.by_lane.insert(*lane, number);
            state.untold.push(*lane);
        }
        taken_over
    }

    /// Returns which failover made a lane a master, 0 if none did.
    pub(crate) fn of(&self, lane: u16) -> u64 {
        self.lock().by_lane.get(&lane).copied().unwrap_or(0)
    }

    /// Takes those of which observers have not been told.
    pub(crate) fn take(&self) -> Vec<u16> {
        mem::take(&mut self.lock().untold)
    }
}

#[cfg(test)]
mod tests {
    use super::Failovers;

    #[test]
    fn whoever_takes_over_is_no_master_that_was_added() {
        let failovers = Failovers::default();
        for (masters, of_three, told) in [
            (&[0, 1][..], 0, &[][..]),
            // Added; drained; one replaced by another.
            (&[0, 1, 2], 0, &[]),
            (&[0, 1], 0, &[]),
            (&[0, 3], 1, &[3]),
            (&[0, 3], 1, &[]),
            // And back.
            (&[0, 1], 1, &[1]),
            (&[0, 3], 3, &[3]),
        ] {
            failovers.found(masters.iter().copied().collect());
            assert_eq!((failovers.of(3), &*failovers.take()), (of_three, told), "{masters:?}");
        }
        assert_eq!((failovers.of(0), failovers.of(1)), (0, 2));
    }
}
