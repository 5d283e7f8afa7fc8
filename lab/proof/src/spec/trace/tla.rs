//! Writes steps as TLA+.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::spec::trace::steps::{Claim, Kind, LONGEST_WINDOW, Step};

/// The module `Steps`: the logs of all keys.
pub(super) fn module(logs: &[&[Step]]) -> String {
    let mut text = "---- MODULE Steps ----\n".to_owned();
    for (number, log) in logs.iter().enumerate() {
        let steps: Vec<String> = log.iter().map(step).collect();
        let _ = writeln!(text, "Log{number} == <<\n  {}\n>>", steps.join(",\n  "));
    }
    let names: Vec<String> = (0..logs.len()).map(|number| format!("Log{number}")).collect();
    let _ = writeln!(text, "Logs == <<{}>>\n====", names.join(", "));
    text
}

fn step(step: &Step) -> String {
    let kind = match step.kind {
        Kind::Store => "store",
        Kind::Expire => "expire",
        Kind::Enter => "enter",
        Kind::Leave => "leave",
    };
    let acts: Vec<String> = step.acts.iter().map(|act| format!("\"{act}\"")).collect();
    let list = |claims: &mut dyn Iterator<Item = &Claim>| claims.map(claim).collect::<Vec<_>>().join(", ");
    format!(
        "[kind |-> \"{kind}\", now |-> {}, claims |-> {{{}}}, acts |-> {{{}}}, held |-> {{{}}}, token |-> {}, ends |-> {}, queue |-> <<{}>>]",
        step.now,
        list(&mut step.claims.iter()),
        acts.join(", "),
        list(&mut step.held.iter()),
        step.draw,
        step.ends,
        list(&mut step.queue.iter()),
    )
}

fn claim((process, number): &Claim) -> String {
    format!("<<\"p{process}\", {number}>>")
}

/// The configuration: the processes in the logs, and the length of leases.
pub(super) fn config(logs: &[&[Step]], ttl: i64, slack: i64, longest: i64, margin: i64, more: &str) -> String {
    let window = LONGEST_WINDOW + slack;
    let claims = logs.iter().flat_map(|log| log.iter()).flat_map(|step| &step.claims);
    let processes: BTreeSet<String> = claims.map(|(process, _)| format!("\"p{process}\"")).collect();
    let processes = processes.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "SPECIFICATION TraceSpec\nINVARIANTS NoTwoHolders TokensGrow {more}\nCHECK_DEADLOCK FALSE\nCONSTANTS\n  Processes = {{{processes}}}\n  \
         Sharers = {{}}\n  Limit = 1\n  Claims = 100000\n  Numbers = 1\n  Ttl = {ttl}\n  GrantTtl = {ttl}\n  Margin = {margin}\n  Drift = 0\n  \
         Budget = 1000000\n  Draws = 8192\n  Horizon = 1000000\n  Kills = TRUE\n  Natives = TRUE\n  Window = {window}\n  Deaf = {{{processes}}}\n  Loses = FALSE\n  Renews = TRUE\n  Writes = FALSE\n  \
         Faults = {{\"withdraw\", \"break\"}}\n  Times = 1000000\n  Ends = FALSE\n  Off = {{}}\n  Slack = {slack}\n  Longest = {longest}\n  Gone <- GoneAsLogged\n",
    )
}
