//! With all rules nothing goes wrong.

use crate::explore::explore;
use crate::scenario::{Faults, Mode, Scenario};
use lock_testing::limit;

/// A scenario that every other differs from.
pub(crate) fn scenario() -> Scenario {
    Scenario {
        removed: None,
        processes: 2,
        modes: [Mode::Exclusive; 3],
        downgrades: false,
        keys: 1,
        callers: 1,
        horizon: 4,
        attempts: 2,
        claims: 2,
        faults: Faults::default(),
        native: true,
        kills: true,
        renews: false,
        renews_shorter: false,
        keeps_remnant: false,
        never_passes: false,
        shares: false,
        sleeps: false,
        finds_stalls: false,
        followed: 61,
        states: 40_000,
    }
}

#[test]
#[limit(300)]
fn with_all_rules_nothing_goes_wrong() {
    let none = Faults::default();
    let one = scenario();
    let three = Scenario { processes: 3, claims: 1, ..one };
    let crowd = Scenario { callers: 2, claims: 3, ..one };
    let scenarios = [
        ("three processes", Scenario { claims: 2, finds_stalls: true, ..three }),
        ("two callers each", Scenario { finds_stalls: true, ..crowd }),
        ("two keys at once", Scenario { keys: 2, claims: 1, faults: Faults { connection: 1, ..none }, ..one }),
        ("a bad connection", Scenario { faults: Faults { connection: 1, ..none }, ..three }),
        (
            "a bad connection and a caller that goes",
            Scenario { faults: Faults { connection: 1, cancel: 1, ..none }, ..crowd },
        ),
        (
            "requeues over a bad connection",
            Scenario { never_passes: true, faults: Faults { connection: 1, ..none }, ..crowd },
        ),
        (
            "a bad connection that cannot be killed",
            Scenario { native: false, kills: false, faults: Faults { connection: 1, cancel: 1, ..none }, ..one },
        ),
        ("a deaf inbox", Scenario { faults: Faults { inbox: 1, ..none }, ..three }),
        ("a death", Scenario { faults: Faults { death: 1, ..none }, ..three }),
        ("a stranger", Scenario { faults: Faults { stranger: 1, ..none }, ..three }),
        (
            "strangers that poll",
            Scenario {
                shares: true,
                never_passes: true,
                faults: Faults { stranger: 2, step_back: 1, ..none },
                ..crowd
            },
        ),
        ("much at once", Scenario { faults: Faults { connection: 1, inbox: 1, cancel: 1, death: 1, ..none }, ..one }),
        ("refused draws", Scenario { faults: Faults { refusal: 2, force: 1, cancel: 1, ..none }, ..one }),
        ("a clock that steps back", Scenario { faults: Faults { step_back: 1, force: 1, ..none }, ..one }),
        ("a token of nobody", Scenario { faults: Faults { nonsense: 1, ..none }, ..one }),
        ("a flush", Scenario { faults: Faults { flush: 1, ..none }, ..crowd }),
        ("a failover", Scenario { faults: Faults { failover: 1, ..none }, ..crowd }),
        ("callers that nobody polls", Scenario { renews: true, faults: Faults { sleep: 2, ..none }, ..crowd }),
        (
            "renewals of two lengths",
            Scenario {
                horizon: 5,
                attempts: 1,
                claims: 1,
                renews: true,
                renews_shorter: true,
                faults: Faults { connection: 1, ..none },
                ..one
            },
        ),
        (
            "renewals beside the lock's end",
            Scenario {
                renews: true,
                keeps_remnant: true,
                claims: 1,
                faults: Faults { connection: 1, force: 1, ..none },
                ..one
            },
        ),
    ];
    let mut states = 0;
    for (name, scenario) in scenarios {
        let found = explore(&scenario);
        assert!(found.wrong.is_none(), "{name}: {:?}\n{}", found.wrong, found.trace.join("\n"));
        states += found.states;
    }
    println!("figure: states of the protocol with all rules: {states}");
}
