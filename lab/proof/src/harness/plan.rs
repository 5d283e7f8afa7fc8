//! Which fault strikes when. The plan draws only from the seed, never from the clock or from events. The same seed
//! gives the same faults in the same order.

use std::time::Duration;

use fastrand::Rng;

use crate::harness::fault::{Fault, Menu};
use crate::harness::servers::Topology;
use crate::harness::{LONGEST_LEASE, TTL};

pub(super) struct Plan {
    pub(super) menu: Menu,
    random: Rng,
    processes: usize,
    /// How long ago the last change of servers was, in the time of the plan.
    changed: Option<Duration>,
    number: usize,
}

/// One or more faults that begin and end together.
pub(super) struct Step {
    pub(super) calm: Duration,
    pub(super) faults: Vec<Fault>,
    pub(super) lasts: Duration,
    /// How long connections to a replaced master stay open; `None` for good.
    pub(super) stays_open: Option<Duration>,
    /// Whether every process must be served before the next fault. A random half of the steps do not wait, and so
    /// strike processes that are still recovering.
    pub(super) recovers: bool,
}

impl Plan {
    pub(super) fn new(menu: Menu, random: Rng, processes: usize) -> Self {
        Self { menu, random, processes, changed: None, number: 0 }
    }

    pub(super) fn next(&mut self, servers: &dyn Topology) -> Step {
        let random = &mut self.random;
        let ms = |random: &mut Rng, range| Duration::from_millis(random.u64(range));
        let calm = ms(random, 20..900);
        self.number += 1;
        let mut lasts = None;
        let faults = match self.menu {
            Menu::Everything => {
                // Two changes that make servers forget are far enough apart for exclusion to be checked between them.
                let may_change = self.changed.is_none_or(|changed| changed > 2 * LONGEST_LEASE);
                let first = Fault::any(random, servers, self.processes, may_change);
                let second = random.bool().then(|| Fault::beside(first, random, servers, self.processes));
                [Some(first), second].into_iter().flatten().collect()
            }
            Menu::Outside => vec![Fault::from_outside(random, servers, self.processes)],
            Menu::Stops => {
                lasts = Some(TTL + ms(random, 200..1_200));
                let goes_on = self.number % self.processes;
                (0..self.processes).filter(|process| *process != goes_on).map(Fault::Stop).collect()
            }
            Menu::Only(change) => {
                lasts = Some(ms(random, 5..50));
                vec![Fault::Change(change)]
            }
        };
        let lasts = lasts.unwrap_or_else(|| faults[0].length(random));
        let stays_open = random.bool().then(|| ms(random, 0..3_000));
        let recovers = random.bool() && self.menu == Menu::Everything;
        self.changed = match faults[0] {
            Fault::Change(_) => Some(Duration::ZERO),
            _ => self.changed.map(|changed| changed + calm + lasts),
        };
        Step { calm, faults, lasts, stays_open, recovers }
    }
}
