//! Without any one rule something goes wrong.

use crate::complete::scenario;
use crate::explore::explore;
use crate::scenario::{Faults, Rule, Scenario, Wrong};
use lock_testing::limit;

/// Each rule, where it is missed, and what goes wrong there.
pub(crate) fn cases() -> Vec<(Rule, Scenario, Wrong)> {
    let none = Faults::default();
    let bad_connection = Faults { connection: 1, ..none };
    let native = Scenario { states: 400_000, ..scenario() };
    // Where every key is known to be contended.
    let most = Scenario { native: false, ..native };
    let crowd = Scenario { callers: 2, claims: 3, ..most };
    let three = Scenario { processes: 3, claims: 1, ..most };
    let renewing = Scenario { horizon: 5, attempts: 1, claims: 1, renews: true, ..native };
    let unkillable = Scenario { kills: false, ..most };
    let sleepy = Scenario { callers: 2, renews: true, faults: Faults { sleep: 1, ..none }, ..native };
    vec![
        (Rule::GrantsEchoStamps, Scenario { horizon: 5, ..most }, Wrong::Exclusion),
        (Rule::CountedFromConfirmation, Scenario { horizon: 5, ..most }, Wrong::Exclusion),
        (Rule::RepeatRaises, Scenario { horizon: 6, claims: 1, faults: bad_connection, ..most }, Wrong::Exclusion),
        (Rule::FreshOwners, Scenario { faults: Faults { cancel: 1, ..bad_connection }, ..crowd }, Wrong::Exclusion),
        (Rule::WithdrawFrees, Scenario { faults: Faults { cancel: 1, inbox: 1, ..none }, ..most }, Wrong::OrphanKey),
        (
            Rule::EntersBeforeWalk,
            Scenario { horizon: 3, never_passes: true, finds_stalls: true, ..crowd },
            Wrong::Stall,
        ),
        (Rule::NeverShortens, Scenario { renews_shorter: true, faults: bad_connection, ..renewing }, Wrong::Exclusion),
        (Rule::HeldGrantIgnored, most, Wrong::Exclusion),
        (
            Rule::PassedOverKeepPlace,
            Scenario { finds_stalls: true, faults: Faults { inbox: 1, ..none }, ..most },
            Wrong::Stall,
        ),
        (Rule::PassedOverHearNothing, Scenario { faults: Faults { inbox: 1, ..none }, ..most }, Wrong::Exclusion),
        (Rule::EntriesNameTheirLease, Scenario { horizon: 2, attempts: 1, ..three }, Wrong::Exclusion),
        (
            Rule::ReleaseAlwaysMovesOn,
            Scenario { horizon: 3, attempts: 1, finds_stalls: true, claims: 2, ..three },
            Wrong::Stall,
        ),
        (Rule::ReleaseAfterLoss, most, Wrong::OrphanKey),
        (
            Rule::AskingMovesOn,
            Scenario { finds_stalls: true, faults: Faults { death: 1, ..none }, ..three },
            Wrong::Starvation,
        ),
        (Rule::ReleasesAreRepeated, Scenario { faults: bad_connection, ..most }, Wrong::OrphanKey),
        (Rule::Backstop, Scenario { faults: Faults { inbox: 1, ..none }, ..most }, Wrong::Starvation),
        (
            Rule::OnePass,
            Scenario {
                native: true,
                horizon: 0,
                attempts: 1,
                claims: 2,
                faults: Faults { stranger: 1, ..none },
                ..crowd
            },
            Wrong::Overtaken,
        ),
        (Rule::LeftFreeNowAndThen, Scenario { shares: true, never_passes: true, ..crowd }, Wrong::NeverFree),
        (Rule::KilledBeforeUndo, Scenario { faults: Faults { cancel: 1, ..bad_connection }, ..most }, Wrong::OrphanKey),
        (
            Rule::EndingsGoBehind,
            Scenario { never_passes: true, faults: Faults { cancel: 1, ..none }, ..crowd },
            Wrong::OrphanKey,
        ),
        (Rule::SendsHaveDeadlines, Scenario { faults: bad_connection, ..unkillable }, Wrong::OrphanKey),
        (
            Rule::UndoneAfterDeadline,
            Scenario { faults: Faults { cancel: 1, ..bad_connection }, ..unkillable },
            Wrong::OrphanKey,
        ),
        (
            Rule::OneDeadline,
            Scenario { processes: 1, faults: Faults { cancel: 1, stranger: 1, ..bad_connection }, ..unkillable },
            Wrong::OrphanKey,
        ),
        (Rule::ErrorsAreAmbiguous, Scenario { faults: Faults { refusal: 1, ..none }, ..native }, Wrong::OrphanKey),
        (Rule::TokensFollowTime, Scenario { faults: Faults { failover: 1, ..none }, ..most }, Wrong::TokenOrder),
        (Rule::ClockNeverFalls, native, Wrong::TokenOrder),
        (Rule::DrawnWithTheLock, Scenario { faults: Faults { force: 1, ..none }, ..native }, Wrong::TokenOrder),
        (
            Rule::DrawServesItsBatch,
            Scenario { keys: 2, claims: 1, attempts: 0, horizon: 0, ..native },
            Wrong::TokenOrder,
        ),
        (
            Rule::NeverDrawnBare,
            Scenario { faults: Faults { refusal: 1, force: 1, ..none }, ..native },
            Wrong::TokenOrder,
        ),
        (
            Rule::FloorsAreKept,
            Scenario { processes: 1, faults: Faults { flush: 1, step_back: 1, ..none }, ..crowd },
            Wrong::TokenOrder,
        ),
        (Rule::RaisingIsBounded, Scenario { faults: Faults { nonsense: 1, ..none }, ..most }, Wrong::ClockRuns),
        (Rule::GrantsOwnTheirNumbers, crowd, Wrong::TokenOrder),
        (Rule::TurnsAreTakenBack, sleepy, Wrong::Starvation),
        (Rule::TurnsHaveOneTaker, sleepy, Wrong::Exclusion),
        (Rule::PassedOverUntilPolled, sleepy, Wrong::Starvation),
        (Rule::DeadlineReadAtTake, sleepy, Wrong::LateEntry),
        (
            Rule::RenewalsLookFirst,
            Scenario { horizon: 2, attempts: 0, faults: Faults { force: 1, ..none }, ..renewing },
            Wrong::Stretched,
        ),
    ]
}

/// Looks for what goes wrong without each rule.
pub(crate) fn assert_each_is_missed(what: &str, cases: Vec<(Rule, Scenario, Wrong)>) {
    let (mut escaped, of) = (Vec::new(), cases.len());
    println!("{:<26} {:<12} {:>5} {:>8}", "without the rule", "goes wrong", "steps", "states");
    for (rule, scenario, expected) in cases {
        let found = explore(&Scenario { removed: Some(rule), ..scenario });
        let (name, wrong) = (format!("{rule:?}"), found.wrong.map_or("nothing".into(), |wrong| format!("{wrong:?}")));
        println!("{name:<26} {wrong:<12} {:>5} {:>8}", found.trace.len(), found.states);
        if found.wrong != Some(expected) {
            escaped.push((rule, found.wrong, expected));
        }
    }
    println!("figure: {what} without one rule that the model catches: {} of {of}", of - escaped.len());
    assert_eq!(escaped, []);
}

#[test]
#[limit(300)]
fn without_any_one_rule_something_goes_wrong() {
    assert_each_is_missed("protocols", cases());
}
