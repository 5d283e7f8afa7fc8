//! Claims that sleep: they ask only when they watch the lock, are woken, or could not hear for a while.
//!
//! One claim watches a lock here, the first that can be reached; two do on servers. A claim that does not watch it never asks here;
//! on servers it asks after a while. If the first claim dies behind a stranger, who does not pass the lock on, no claim is left
//! that looks. That is not a scenario here, and on servers the second claim looks.

use lock_testing::limit;

use crate::complete::scenario;
use crate::explore::explore;
use crate::modes::permits;
use crate::removed::assert_each_is_missed;
use crate::scenario::{Faults, Mode, READ, Rule, Scenario, Wrong};
use crate::state::{At, Claim, Owner, Reach, State};

/// Later than everything that happens.
const NEVER: u16 = u16::MAX;

impl State {
    /// Notes that a claim in the queue sleeps. Returns until when, by the clients' clock; `None` if it may not.
    pub(crate) fn fall_asleep(&mut self, scenario: &Scenario, claim: Claim) -> Option<u16> {
        let key = claim.at.key;
        if self.is_free(key) {
            return None;
        }
        let lock = &self.store.locks[key];
        let first_end = match lock.owner {
            Some(Owner::Phase { .. }) => lock.sharers.iter().map(|sharer| sharer.expires).min(),
            _ => Some(lock.expires),
        };
        let ends = first_end?.saturating_sub(self.ahead);
        let mut reached = lock.queue.iter().filter(|entry| entry.reach != Reach::PassedOver);
        let watches = reached.next().is_none_or(|first| first.claim == claim);
        // A claim that watches the lock of a stranger polls.
        let polls = watches && lock.owner == Some(Owner::Stranger);
        let entry = self.store.locks[key].queue.iter_mut().find(|entry| entry.claim == claim)?;
        if polls || entry.reach != Reach::Unknown {
            return None;
        }
        entry.asleep = true;
        Some(if watches && scenario.keeps(Rule::WatchersAskAtTheEnd) { ends } else { NEVER })
    }

    /// Has the first that can be reached ask again.
    pub(crate) fn wake_watcher(&mut self, scenario: &Scenario, key: usize) {
        let reached = self.store.locks[key].queue.iter().find(|entry| entry.reach != Reach::PassedOver);
        let Some(claim) = reached.map(|entry| entry.claim) else { return };
        if self.processes[claim.at.process].hears && scenario.keeps(Rule::WatchersAreWoken) {
            self.wake(claim.at);
        }
    }

    pub(crate) fn wake(&mut self, at: At) {
        let gate = self.gate(at);
        gate.woken = gate.asking;
        gate.asleep_until = None;
    }

    /// A process hears again.
    pub(crate) fn mend_inbox(&mut self, scenario: &Scenario, process: usize) {
        self.processes[process].hears = true;
        for key in 0..scenario.keys {
            if scenario.keeps(Rule::DeafAreWoken) {
                self.wake(At { process, key });
            }
        }
    }
}

/// Two or three processes, of which those who wait sleep.
fn sleepers() -> Scenario {
    Scenario { native: false, sleeps: true, claims: 1, attempts: 3, horizon: 5, ..scenario() }
}

#[test]
#[limit(300)]
fn with_all_rules_nothing_goes_wrong_while_claims_sleep() {
    let none = Faults::default();
    let two = sleepers();
    let three = Scenario { processes: 3, ..two };
    let modes = |modes| Scenario { modes, ..three };
    let scenarios = [
        ("two that come again", Scenario { claims: 2, ..two }),
        ("a queue of two sleepers", three),
        ("a queue of two sleepers, and a death", Scenario { faults: Faults { death: 1, ..none }, ..three }),
        ("two callers each", Scenario { callers: 2, claims: 2, never_passes: true, ..two }),
        ("a deaf inbox", Scenario { faults: Faults { inbox: 1, ..none }, ..three }),
        ("a bad connection", Scenario { faults: Faults { connection: 1, ..none }, ..three }),
        ("a caller that goes", Scenario { faults: Faults { cancel: 1, ..none }, ..three }),
        ("a death and a caller that goes", Scenario { faults: Faults { cancel: 1, death: 1, ..none }, ..three }),
        ("much at once", Scenario { faults: Faults { connection: 1, inbox: 1, cancel: 1, ..none }, ..two }),
        ("a stranger", Scenario { faults: Faults { stranger: 1, ..none }, ..three }),
        (
            "connections that cannot be killed",
            Scenario { kills: false, faults: Faults { connection: 1, cancel: 1, ..none }, ..two },
        ),
        ("renewals", Scenario { renews: true, faults: Faults { connection: 1, ..none }, ..two }),
        (
            "a writer and two readers",
            Scenario { faults: Faults { death: 1, ..none }, ..modes([Mode::Exclusive, READ, READ]) },
        ),
        (
            "permits, and a death",
            Scenario { faults: Faults { death: 1, ..none }, ..modes([permits(1, 2), permits(2, 2), permits(1, 2)]) },
        ),
        (
            "permits, and a caller that goes",
            Scenario { faults: Faults { cancel: 1, ..none }, ..modes([permits(1, 2), permits(2, 2), permits(1, 2)]) },
        ),
    ];
    let mut states = 0;
    for (name, scenario) in scenarios {
        let found = explore(&scenario);
        assert!(found.wrong.is_none(), "{name}: {:?}\n{}", found.wrong, found.trace.join("\n"));
        println!("{name}: {}", found.states);
        states += found.states;
    }
    println!("figure: states of the protocol with claims that sleep, with all rules: {states}");
}

/// Each rule, where it is missed, and what goes wrong there.
pub(crate) fn cases() -> Vec<(Rule, Scenario, Wrong)> {
    let none = Faults::default();
    // Few states have somebody who is never served: each is followed.
    let two = Scenario { states: 400_000, followed: 1, ..sleepers() };
    vec![
        (
            Rule::SleepersConfirm,
            Scenario { horizon: 2, attempts: 2, faults: Faults { stranger: 1, ..none }, ..two },
            Wrong::Exclusion,
        ),
        (Rule::SleepersKeepPlaces, Scenario { horizon: 4, attempts: 2, ..two }, Wrong::LeftOut),
        (
            Rule::WatchersAreWoken,
            Scenario { horizon: 0, attempts: 2, faults: Faults { cancel: 1, stranger: 1, ..none }, ..two },
            Wrong::Starvation,
        ),
        (
            Rule::WatchersAskAtTheEnd,
            Scenario { horizon: 3, faults: Faults { death: 1, ..none }, ..two },
            Wrong::Starvation,
        ),
        (
            Rule::DeafAreWoken,
            Scenario { horizon: 0, attempts: 2, faults: Faults { inbox: 1, stranger: 1, ..none }, ..two },
            Wrong::Starvation,
        ),
    ]
}

#[test]
#[limit(300)]
fn without_any_one_rule_of_sleep_something_goes_wrong() {
    let cases = cases();
    for (rule, scenario, _) in &cases {
        let found = explore(&Scenario { states: 50_000, ..*scenario });
        assert!(found.wrong.is_none(), "with {rule:?}: {:?}\n{}", found.wrong, found.trace.join("\n"));
    }
    assert_each_is_missed("protocols with claims that sleep", cases);
}
