//! Counter-examples of the specification in TLA+: what goes wrong there without a rule goes wrong here, by the same steps.
//!
//! `proof/spec/exchange/back` has a file for each rule, as TLC finds it. A test of `proof` compares it with what TLC finds; one here
//! goes through it, step by step, and must see the same at its end, and nothing with the rule.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use lock_core::testing::limit;

use crate::complete::scenario;
use crate::exchange::{folder, lines, stored};
use crate::explore::digest;
use crate::scenario::{Faults, GRANT_TTL, Rule, Scenario, TTL, Wrong};
use crate::state::{Command, Owner, Reply, State};
use crate::steps::Step;

/// Each rule, and what goes wrong without it.
const CASES: [(Rule, Wrong); 12] = [
    (Rule::ClockNeverFalls, Wrong::TokenOrder),
    (Rule::CountedFromConfirmation, Wrong::Exclusion),
    // A holder that does not look at its clock is here a caller that takes its turn late.
    (Rule::DeadlineReadAtTake, Wrong::LateEntry),
    (Rule::GrantsEchoStamps, Wrong::Exclusion),
    (Rule::GrantsOwnTheirNumbers, Wrong::TokenOrder),
    (Rule::KilledBeforeUndo, Wrong::OrphanKey),
    (Rule::ReleaseAfterLoss, Wrong::OrphanKey),
    (Rule::ReleasesAreRepeated, Wrong::OrphanKey),
    (Rule::RepeatRaises, Wrong::Exclusion),
    (Rule::SendsHaveDeadlines, Wrong::OrphanKey),
    (Rule::TokensFollowTime, Wrong::TokenOrder),
    (Rule::UndoneAfterDeadline, Wrong::OrphanKey),
];

/// A counter-example: what the constants are, and the steps, each with who holds and who waits after it.
struct Told {
    constants: BTreeMap<String, String>,
    steps: Vec<(String, String)>,
}

fn read(rule: Rule, wrong: Wrong) -> Told {
    let file = folder().join(format!("back/{rule:?}.txt"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(text.lines().next(), Some(&*format!("without {rule:?}: {wrong:?}")));
    let pair = |line: &str, between: &str| {
        line.split_once(between).map(|(one, other)| (one.trim().to_owned(), other.trim().to_owned()))
    };
    Told {
        constants: text.lines().filter_map(|line| pair(line, " = ")).collect(),
        steps: text.lines().filter_map(|line| pair(line, " | ")).collect(),
    }
}

/// The scenario that has these constants. Where a caller may take its turn late, it is not polled at once.
fn of(told: &Told, wrong: Wrong, removed: Option<Rule>) -> Scenario {
    let value = |name: &str| told.constants[name].as_str();
    let number = |name: &str| value(name).parse::<u16>().unwrap();
    assert_eq!((number("Ttl"), number("GrantTtl"), value("Processes")), (TTL, GRANT_TTL, "{p0, p1}"));
    let strikes = |fault: &str| u16::from(value("Faults").contains(&format!("\"{fault}\"")));
    let faults = Faults {
        connection: strikes("break"),
        cancel: strikes("withdraw"),
        failover: strikes("promote"),
        sleep: u16::from(wrong == Wrong::LateEntry),
        ..Faults::default()
    };
    Scenario {
        removed,
        native: false,
        kills: value("Kills") == "TRUE",
        claims: number("Claims"),
        // A caller calls once here.
        callers: usize::from(number("Numbers").max(number("Claims"))),
        horizon: number("Horizon"),
        attempts: 9,
        faults,
        ..scenario()
    }
}

/// The effect of the next request of a process on the server.
fn did(before: &State, after: &State, process: usize) -> &'static str {
    let replies = |state: &State| state.processes[process].replies.len();
    let answer = after.processes[process].replies.last().filter(|_| replies(after) > replies(before));
    let told = |state: &State| state.processes.iter().map(|process| process.inbox.len()).sum::<usize>();
    match answer {
        Some(Reply::Granted { claim, .. }) if before.is_held_by(claim.at.key, Owner::Claim(*claim)) => "Repeat",
        Some(Reply::Granted { .. }) => "Grant",
        Some(Reply::Queued { .. }) => "Queue",
        Some(Reply::Stale { .. }) => "Stale",
        Some(Reply::Released { .. }) if told(after) > told(before) => "HandOff",
        Some(Reply::Released { .. }) => "Free",
        Some(Reply::Renewed { .. }) => "Renew",
        Some(Reply::Lost { .. }) => "Lost",
        _ => "Kill",
    }
}

/// The possible meanings of a step there. Each is a list of steps that happen one after the other.
fn may_be(before: &State, after: &State, step: Step) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = match step {
        Step::Execute(process) => vec![vec![format!("{} p{process}", did(before, after, process))]],
        step => lines(before, after, step).into_iter().collect(),
    };
    let untold = match step {
        Step::TakeTurn(..) => true,
        // Here a connection is closed as soon as it is given up; there right before what ends the claim.
        Step::Execute(process) => before.processes[process].requests.first() == Some(&Command::Kill),
        _ => false,
    };
    all.extend(untold.then(Vec::new));
    all
}

/// How far the model can go along the steps, and what goes wrong at the end of them.
fn follow(told: &Told, scenario: &Scenario) -> (usize, Option<Wrong>) {
    let mut seen = HashSet::new();
    let mut open = vec![(State::start(scenario), 0)];
    let mut furthest = 0;
    while let Some((state, at)) = open.pop() {
        furthest = furthest.max(at);
        let rest = &told.steps[at..];
        // A connection that was closed before cannot be closed again.
        if rest.first().is_some_and(|(name, now)| name.starts_with("Kill ") && *now == stored(&state)) {
            open.push((state.clone(), at + 1));
        }
        for step in state.steps(scenario) {
            let after = state.after(scenario, step);
            for names in may_be(&state, &after, step) {
                let now = stored(&after);
                let is = |(told, names): (&(String, String), &String)| {
                    let ((name, process), (names, other)) =
                        (told.0.split_once(' ').unwrap(), names.split_once(' ').unwrap());
                    names.split(',').any(|one| one == name) && process == other && told.1 == now.trim()
                };
                if names.len() > rest.len() || !rest.iter().zip(&names).all(is) {
                    continue;
                }
                let next = at + names.len();
                if after.wrong.is_some() {
                    if next == told.steps.len() {
                        return (next, after.wrong);
                    }
                } else if seen.insert((digest(&after), next)) {
                    open.push((after.clone(), next));
                }
            }
        }
    }
    (furthest, None)
}

#[test]
#[limit(120)]
fn the_counter_examples_of_the_specification_go_wrong_here_without_the_same_rule_and_not_with_it() {
    let files =
        std::fs::read_dir(folder().join("back")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.collect();
    assert_eq!(files, CASES.iter().map(|(rule, _)| format!("{rule:?}.txt")).collect());
    let mut escaped = Vec::new();
    for (rule, wrong) in CASES {
        let told = read(rule, wrong);
        let (furthest, found) = follow(&told, &of(&told, wrong, Some(rule)));
        if found != Some(wrong) {
            let next = told.steps.get(furthest);
            escaped.push(format!("without {rule:?}: {found:?} after {furthest} steps; next is {next:?}"));
        }
        let (_, found) = follow(&told, &of(&told, wrong, None));
        if found.is_some() {
            escaped.push(format!("with {rule:?}: {found:?}"));
        }
    }
    println!("figure: counter-examples of the specification that are the model's too: {}", CASES.len() - escaped.len());
    assert!(escaped.is_empty(), "{}", escaped.join("\n"));
}
