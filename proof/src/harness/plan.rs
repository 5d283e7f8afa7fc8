//! What strikes when: all of it drawn from the seed, and nothing from the clock or from what happens, so that the same
//! seed gives the same faults in the same order.

use std::time::Duration;

use fastrand::Rng;

use crate::harness::fault::{Fault, Menu};
use crate::harness::servers::Topology;
use crate::harness::{LONGEST_LEASE, TTL};

pub(super) struct Plan {
    pub(super) menu: Menu,
    random: Rng,
    processes: usize,
    /// How long ago servers were changed, as the plan counts.
    changed: Option<Duration>,
    number: usize,
}

/// One or more faults that begin together, last and end.
pub(super) struct Step {
    pub(super) calm: Duration,
    pub(super) faults: Vec<Fault>,
    pub(super) lasts: Duration,
    /// For how long connections stay open to a master that was replaced, if they do not for good.
    pub(super) stays_open: Option<Duration>,
    /// Whether everybody must be served before the next fault: it strikes who recovers from the last as often as not.
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
                // Between two that make servers forget, there is time for exclusion to be seen.
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
