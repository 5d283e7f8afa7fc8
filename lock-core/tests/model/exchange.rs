//! Counter-examples for the specification in TLA+: what goes wrong here without a rule goes wrong there, by the same steps.
//!
//! `proof/spec/exchange` has a file for each rule that both know. A test here writes what the model finds and compares it with
//! the file; one of `proof` has TLC look whether the file is a behaviour of the specification without that rule.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lock_core::testing::limit;

use crate::complete::scenario;
use crate::explore::explore;
use crate::scenario::{BUDGET, Faults, GRANT_TTL, Mode, NUMBERS_PER_DRAW, Rule, Scenario, TTL, Wrong};
use crate::state::{At, Claim, Command, Owner, Stage, State};
use crate::steps::Step;

/// Each rule that the specification knows too, and where it is missed by steps that the specification has: one caller in each
/// process, and no native attempt.
fn cases() -> Vec<(Rule, Scenario, Wrong)> {
    let none = Faults::default();
    let bad_connection = Faults { connection: 1, ..none };
    let one = Scenario { native: false, states: 60_000, claims: 1, ..scenario() };
    let long = Scenario { states: 400_000, ..one };
    vec![
        (Rule::GrantsEchoStamps, Scenario { horizon: 5, ..long }, Wrong::Exclusion),
        (Rule::CountedFromConfirmation, Scenario { horizon: 5, ..long }, Wrong::Exclusion),
        (Rule::RepeatRaises, Scenario { horizon: 6, faults: bad_connection, ..long }, Wrong::Exclusion),
        (Rule::ReleaseAfterLoss, one, Wrong::OrphanKey),
        (Rule::ReleasesAreRepeated, Scenario { faults: bad_connection, ..one }, Wrong::OrphanKey),
        (Rule::KilledBeforeUndo, Scenario { faults: Faults { cancel: 1, ..bad_connection }, ..one }, Wrong::OrphanKey),
        (Rule::SendsHaveDeadlines, Scenario { kills: false, faults: bad_connection, ..one }, Wrong::OrphanKey),
        (
            Rule::UndoneAfterDeadline,
            Scenario { kills: false, faults: Faults { cancel: 1, ..bad_connection }, ..one },
            Wrong::OrphanKey,
        ),
        (Rule::TokensFollowTime, Scenario { faults: Faults { failover: 1, ..none }, ..one }, Wrong::TokenOrder),
        (Rule::ClockNeverFalls, one, Wrong::TokenOrder),
        (Rule::GrantsOwnTheirNumbers, Scenario { callers: 2, ..one }, Wrong::TokenOrder),
    ]
}

/// The actions of the specification that a step may be, one line for each that must happen. `None` if it has no such step.
pub(crate) fn lines(before: &State, after: &State, step: Step) -> Option<Vec<String>> {
    let acts = |names: &str, process: usize| format!("{names} p{process}");
    let begins = |at: At| {
        let gates = [before, after].map(|state| state.processes[at.process].gates[at.key].claims);
        if gates[0] == gates[1] { vec![] } else { vec![acts("Acquire", at.process)] }
    };
    // The commands that a process sends after a message.
    let answers = |process: usize| {
        let sent = after.processes[process].requests.iter();
        let sent = sent.filter(|command| !before.processes[process].requests.contains(command));
        let line = |command: &Command| match command {
            Command::Acquire(_) => Some(acts("Ask", process)),
            Command::Release { next: None, .. } => Some(acts("Release", process)),
            _ => None,
        };
        sent.map(line).collect::<Option<Vec<_>>>()
    };
    let hears = |name: &str, process: usize| Some([vec![acts(name, process)], answers(process)?].concat());
    Some(match step {
        Step::Tick => vec![acts("Tick,Expire", 0)],
        Step::Start(at, _) | Step::Poll(at, _) => begins(at),
        Step::Cancel(at, _) | Step::TimeOut(at) => {
            let gates = [before, after].map(|state| state.processes[at.process].gates[at.key].stage);
            if gates == [Stage::Waiting, Stage::Idle] { vec![acts("Withdraw", at.process)] } else { vec![] }
        }
        Step::Finish(at) => {
            let gates = [before, after].map(|state| state.processes[at.process].gates[at.key].claim);
            match gates[1] {
                None => vec![acts("Release", at.process)],
                same if same == gates[0] => vec![acts("LocalHandOff", at.process)],
                Some(_) => return None,
            }
        }
        Step::Expire(at) => [vec![acts("Lose", at.process)], begins(at)].concat(),
        Step::Backstop(at) => vec![acts("Ask", at.process)],
        Step::Renew(at, TTL) => vec![acts("AskRenewal", at.process)],
        Step::Execute(process) => vec![acts("Grant,Repeat,Queue,Stale,Renew,Lost,Free,HandOff,Kill", process)],
        Step::ExecuteStray(process) => vec![acts("Late", process)],
        Step::Receive(process) => return hears("Receive", process),
        Step::Hear(process) => return hears("Hear", process),
        Step::BreakConnection(process) => vec![acts("Break", process)],
        // A lost message here is a late one there. The end of a claim is resent there too, without a step for it.
        Step::LoseStray(_) | Step::UndoAgain(_) => vec![],
        Step::Die(process) => vec![acts("Crash", process)],
        Step::Flush => vec![acts("Flush", 0)],
        Step::FailOver => vec![acts("Promote", 0)],
        _ => return None,
    })
}

/// The holders and the waiters.
pub(crate) fn stored(state: &State) -> String {
    let name = |claim: &Claim| format!("p{}.{}", claim.at.process, claim.number);
    let lock = &state.store.locks[0];
    let held: Vec<Claim> = match lock.owner.filter(|_| !state.is_free(0)) {
        Some(Owner::Claim(claim)) => vec![claim],
        Some(Owner::Phase { .. }) => {
            let sharers = lock.sharers.iter().filter(|sharer| sharer.expires > state.server_now());
            sharers.map(|sharer| sharer.claim).collect()
        }
        _ => Vec::new(),
    };
    let queue: Vec<String> = lock.queue.iter().map(|entry| name(&entry.claim)).collect();
    format!("{} | {}", held.iter().map(name).collect::<Vec<_>>().join(" "), queue.join(" "))
}

/// The name of a scenario in the specification.
fn constants(scenario: &Scenario) -> String {
    let processes = |which: &dyn Fn(&Mode) -> bool| {
        let modes = scenario.modes[..scenario.processes].iter().enumerate().filter(|(_, mode)| which(mode));
        modes.map(|(process, _)| format!("\"p{process}\"")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "Processes = {{{}}}\nSharers = {{{}}}\nClaims = {}\nNumbers = {NUMBERS_PER_DRAW}\nTtl = {TTL}\nGrantTtl = {GRANT_TTL}\nHorizon = {}\nKills = {}\nBudget = {}\n",
        processes(&|_| true),
        processes(&|mode| *mode != Mode::Exclusive),
        scenario.claims + 1,
        scenario.horizon + 2,
        if scenario.kills { "TRUE" } else { "FALSE" },
        // Where connections can be killed no send has a deadline here.
        if scenario.kills { 99 } else { BUDGET },
    )
}

fn told(rule: Rule, scenario: &Scenario, wrong: Wrong) -> Result<String, String> {
    let scenario = Scenario { removed: Some(rule), ..*scenario };
    let found = explore(&scenario);
    if found.wrong != Some(wrong) {
        return Err(format!("without {rule:?} there is {:?}, not {wrong:?}", found.wrong));
    }
    let mut text = format!("without {rule:?}: {wrong:?}\n{}", constants(&scenario));
    let mut state = State::start(&scenario);
    for (step, after) in found.way {
        let lines = lines(&state, &after, step)
            .ok_or_else(|| format!("without {rule:?}: {step:?} is no step of the specification"))?;
        let stored = stored(&after);
        lines.iter().for_each(|line| _ = writeln!(text, "{line} | {stored}"));
        state = after;
    }
    Ok(text)
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proof/spec/exchange")
}

/// `LOCK_TEST_WRITE=1` writes the files.
#[test]
#[limit(300)]
fn the_counter_examples_that_the_specification_is_given_are_those_of_the_model() {
    let folder = folder();
    let mut wrong = Vec::new();
    for (rule, scenario, expected) in cases() {
        let file = folder.join(format!("{rule:?}.txt"));
        match told(rule, &scenario, expected) {
            Err(why) => wrong.push(why),
            Ok(text) if std::env::var_os("LOCK_TEST_WRITE").is_some() => std::fs::write(file, text).unwrap(),
            Ok(text) => {
                if std::fs::read_to_string(&file).ok().as_ref() != Some(&text) {
                    wrong.push(format!("{} differs; LOCK_TEST_WRITE=1 writes\n{text}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
