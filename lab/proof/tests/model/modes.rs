//! Readers, writers and permits: nothing goes wrong with all rules, and something does without any one of them.

use crate::complete::scenario;
use crate::explore::explore;

use crate::removed::assert_each_is_missed;
use crate::scenario::{Faults, Mode, READ, Rule, Scenario, Wrong};
use lock_testing::limit;

const WRITE: Mode = Mode::Exclusive;

pub(crate) const fn permits(units: u16, limit: u16) -> Mode {
    Mode::Shared { units, limit }
}

/// A claim of each process, where the lock is known to be contended. No time passes.
fn three(modes: [Mode; 3]) -> Scenario {
    Scenario { processes: 3, modes, native: false, horizon: 0, attempts: 1, claims: 1, states: 100_000, ..scenario() }
}

#[test]
#[limit(300)]
fn with_all_rules_nothing_goes_wrong_in_any_mode() {
    let none = Faults::default();
    let modes = [
        ("a writer and two readers", [WRITE, READ, READ]),
        ("a reader and two writers", [READ, WRITE, WRITE]),
        ("permits of two weights", [permits(1, 2), permits(2, 2), permits(1, 2)]),
        ("limits that differ", [permits(1, 3), permits(1, 2), permits(1, 1)]),
        ("a permit, a reader and a writer", [permits(1, 2), READ, WRITE]),
    ];
    let mut states = 0;
    for (name, modes) in modes {
        let all = three(modes);
        let scenarios = [
            ("repeats", Scenario { attempts: 2, downgrades: true, ..all }),
            ("leases that shorten", Scenario { horizon: 1, ..all }),
            ("leases that end", Scenario { processes: 2, horizon: 4, ..all }),
            ("a waiter that goes", Scenario { faults: Faults { cancel: 1, ..none }, ..all }),
            ("a bad connection", Scenario { faults: Faults { connection: 1, ..none }, ..all }),
            ("a deaf inbox", Scenario { faults: Faults { inbox: 1, ..none }, ..all }),
            ("a death", Scenario { faults: Faults { death: 1, ..none }, ..all }),
            ("a lock freed by force", Scenario { faults: Faults { force: 1, ..none }, ..all }),
            ("a stranger", Scenario { native: true, faults: Faults { stranger: 1, ..none }, ..all }),
            (
                "claims that follow each other",
                Scenario { callers: 2, never_passes: true, claims: 2, processes: 2, ..all },
            ),
        ];
        for (fault, scenario) in scenarios {
            let found = explore(&scenario);
            assert!(found.wrong.is_none(), "{name}, {fault}: {:?}\n{}", found.wrong, found.trace.join("\n"));
            assert!(found.states < scenario.states, "{name}, {fault}: not every state was looked at");
            println!("{name}, {fault}: {}", found.states);
            states += found.states;
        }
    }
    println!("figure: states of shared locks with all rules: {states}");
}

/// Each rule, where it is missed, and what goes wrong there.
pub(crate) fn cases() -> Vec<(Rule, Scenario, Wrong)> {
    let none = Faults::default();
    let mixed = three([WRITE, READ, READ]);
    let downgrading = Scenario { downgrades: true, ..mixed };
    let semaphore = three([permits(1, 2); 3]);
    let mutex = three([permits(1, 1); 3]);
    // As long as a lease.
    let ending = Scenario { horizon: 3, states: 400_000, ..semaphore };
    vec![
        (Rule::WritersAreAlone, mixed, Wrong::Exclusion),
        (Rule::UnitsAreCounted, three([permits(1, 2), permits(2, 2), WRITE]), Wrong::OverLimit),
        (Rule::LimitsBindNewcomers, three([permits(1, 2), permits(1, 2), permits(1, 1)]), Wrong::OverLimit),
        (Rule::NewcomersGoBehind, mixed, Wrong::Overtaken),
        (Rule::NobodyIsPassed, mixed, Wrong::Overtaken),
        (
            Rule::DeafMakeNobodyWait,
            Scenario { horizon: 1, faults: Faults { death: 1, ..none }, ..mixed },
            Wrong::LeftOut,
        ),
        (Rule::BatchesGoOn, mixed, Wrong::LeftOut),
        (
            Rule::AskersBringTheirBatch,
            Scenario { attempts: 2, faults: Faults { force: 1, ..none }, ..mixed },
            Wrong::LeftOut,
        ),
        (Rule::GrantsLeaveTheQueue, semaphore, Wrong::OrphanKey),
        (Rule::EndedLeasesAreTakenOut, ending, Wrong::LeftOut),
        (Rule::EndedLeasesGiveBack, ending, Wrong::LeftOut),
        (Rule::EndedLeasesMoveOn, Scenario { renews: true, ..ending }, Wrong::LeftOut),
        (Rule::LeaversMoveOn, semaphore, Wrong::LeftOut),
        (Rule::ReleaseAlwaysMovesOn, Scenario { faults: Faults { cancel: 1, ..none }, ..mixed }, Wrong::LeftOut),
        (Rule::LeaversGiveBackTheirOwn, Scenario { faults: Faults { cancel: 1, ..none }, ..mutex }, Wrong::OverLimit),
        (Rule::RepeatsTakeNothing, Scenario { attempts: 2, ..mixed }, Wrong::OrphanKey),
        (Rule::JoinsRaiseTheLock, Scenario { modes: [WRITE, READ, READ], ..ending }, Wrong::Exclusion),
        (
            Rule::RenewalsRaiseTheLock,
            Scenario { processes: 2, modes: [READ, WRITE, WRITE], renews: true, ..ending },
            Wrong::Exclusion,
        ),
        (Rule::LeaversKeepTheLock, Scenario { horizon: 1, ..mixed }, Wrong::Exclusion),
        (Rule::LeftoversDoNotCount, Scenario { horizon: 3, ..mutex }, Wrong::OverLimit),
        (Rule::FirstSharerDraws, mixed, Wrong::TokenOrder),
        (Rule::SharersHaveOneToken, mixed, Wrong::TokenOrder),
        (Rule::DowngradesInOneStep, Scenario { modes: [WRITE; 3], ..downgrading }, Wrong::Exclusion),
        (Rule::DowngradesMoveOn, downgrading, Wrong::LeftOut),
        (Rule::NoUpgrades, Scenario { horizon: 1, ..mixed }, Wrong::Starvation),
    ]
}

#[test]
#[limit(300)]
fn without_any_one_rule_something_goes_wrong_in_some_mode() {
    assert_each_is_missed("shared locks", cases());
}
