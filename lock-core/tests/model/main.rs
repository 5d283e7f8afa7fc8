//! An explorer of the protocol: every order of events of small scenarios, on an exact clock.
//!
//! The model holds one key of one server, its queue, and a few processes with some local callers
//! each. Commands of a process are ordered on its connection, grants travel beside them, and time
//! passes when it likes. Faults strike at any step: a connection breaks and what it carried is executed
//! late or never, an inbox goes deaf, a process dies, a caller gives up, the server is flushed or falls
//! back by one write, a stranger of the classic protocol takes the lock.
//!
//! All rules together must hold in every state that is reached within the bound. With any one rule
//! removed the explorer must find what goes wrong: a model that finds nothing proves nothing. Rules that
//! others cover for are not here but in `it/grants.rs`.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test, in small numbers")]

mod explore;
mod process;
mod server;
mod state;
mod steps;

use explore::explore;
use lock_core::testing::limit;
use state::{Faults, Rule, Scenario, Wrong};

/// A scenario that every other differs from.
fn scenario() -> Scenario {
    Scenario {
        removed: None,
        processes: 2,
        callers: 1,
        horizon: 4,
        attempts: 2,
        claims: 2,
        faults: Faults::default(),
        renews: false,
        renews_shorter: false,
        never_passes: false,
        finds_stalls: false,
        states: 60_000,
    }
}

#[test]
#[limit]
fn with_all_rules_nothing_goes_wrong() {
    let none = Faults::default();
    let scenarios = [
        ("three processes", Scenario { processes: 3, finds_stalls: true, ..scenario() }),
        ("two callers each", Scenario { callers: 2, claims: 3, finds_stalls: true, ..scenario() }),
        (
            "requeues over a bad connection",
            Scenario {
                callers: 2,
                claims: 3,
                never_passes: true,
                faults: Faults { connection: 1, ..none },
                ..scenario()
            },
        ),
        (
            "a bad connection",
            Scenario { processes: 3, claims: 1, faults: Faults { connection: 1, ..none }, ..scenario() },
        ),
        ("a deaf inbox", Scenario { processes: 3, claims: 1, faults: Faults { inbox: 1, ..none }, ..scenario() }),
        ("a death", Scenario { processes: 3, claims: 1, faults: Faults { death: 1, ..none }, ..scenario() }),
        ("a stranger", Scenario { processes: 3, claims: 1, faults: Faults { stranger: 1, ..none }, ..scenario() }),
        (
            "much at once",
            Scenario { faults: Faults { connection: 1, inbox: 1, cancel: 1, death: 1, ..none }, ..scenario() },
        ),
        ("a flush", Scenario { callers: 2, faults: Faults { flush: 1, ..none }, ..scenario() }),
        ("a failover", Scenario { callers: 2, faults: Faults { failover: 1, ..none }, ..scenario() }),
        (
            "renewals of two lengths",
            Scenario {
                horizon: 5,
                attempts: 1,
                claims: 1,
                renews: true,
                renews_shorter: true,
                faults: Faults { connection: 1, ..none },
                ..scenario()
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

#[test]
#[limit]
fn without_any_one_rule_something_goes_wrong() {
    let none = Faults::default();
    let bad_connection = Faults { connection: 1, ..none };
    let most = Scenario { states: 400_000, ..scenario() };
    let cases = [
        (Rule::GrantsEchoStamps, Scenario { horizon: 5, ..most }, Wrong::TokenOrder),
        (Rule::CountedFromConfirmation, Scenario { horizon: 5, ..most }, Wrong::TokenOrder),
        (Rule::RepeatRaises, Scenario { horizon: 6, faults: bad_connection, ..most }, Wrong::Exclusion),
        (
            Rule::FreshOwners,
            Scenario { callers: 2, claims: 3, faults: Faults { cancel: 1, ..bad_connection }, ..most },
            Wrong::Exclusion,
        ),
        (Rule::WithdrawFrees, Scenario { faults: Faults { cancel: 1, inbox: 1, ..none }, ..most }, Wrong::OrphanKey),
        (
            Rule::EntersBeforeWalk,
            Scenario { callers: 2, horizon: 3, never_passes: true, finds_stalls: true, ..most },
            Wrong::Stall,
        ),
        (
            Rule::NeverShortens,
            Scenario {
                horizon: 5,
                attempts: 1,
                claims: 1,
                renews: true,
                renews_shorter: true,
                faults: bad_connection,
                ..most
            },
            Wrong::Exclusion,
        ),
        (Rule::HeldGrantIgnored, most, Wrong::Exclusion),
        (
            Rule::PassedOverKeepPlace,
            Scenario { finds_stalls: true, faults: Faults { inbox: 1, ..none }, ..most },
            Wrong::Stall,
        ),
        (
            Rule::AmbiguousReleasedTwice,
            Scenario { faults: Faults { cancel: 1, ..bad_connection }, ..most },
            Wrong::OrphanKey,
        ),
        (Rule::SendsHaveDeadlines, Scenario { faults: bad_connection, ..most }, Wrong::OrphanKey),
        (Rule::EntriesNameTheirLease, Scenario { processes: 3, claims: 1, ..most }, Wrong::Exclusion),
        (
            Rule::TokensFollowTime,
            Scenario { horizon: 5, faults: Faults { failover: 1, ..none }, ..most },
            Wrong::TokenOrder,
        ),
        (
            Rule::ReleaseAlwaysMovesOn,
            Scenario { processes: 3, horizon: 3, attempts: 1, finds_stalls: true, ..most },
            Wrong::Stall,
        ),
        (Rule::ReleaseAfterLoss, most, Wrong::OrphanKey),
        (
            Rule::AskingMovesOn,
            Scenario { processes: 3, claims: 1, finds_stalls: true, faults: Faults { death: 1, ..none }, ..most },
            Wrong::Starvation,
        ),
        (Rule::BlocksAreReserved, Scenario { callers: 2, horizon: 3, ..most }, Wrong::TokenOrder),
        (Rule::ReleasesAreRepeated, Scenario { faults: bad_connection, ..most }, Wrong::OrphanKey),
        (Rule::Backstop, Scenario { faults: Faults { inbox: 1, ..none }, ..most }, Wrong::Starvation),
    ];
    let mut escaped = Vec::new();
    for (rule, scenario, expected) in cases {
        let found = explore(&Scenario { removed: Some(rule), ..scenario });
        println!(
            "figure: without {rule:?}: {:?} after {} steps, {} states",
            found.wrong,
            found.trace.len(),
            found.states
        );
        if found.wrong != Some(expected) {
            escaped.push((rule, found.wrong));
        }
    }
    assert_eq!(escaped, []);
}
