//! The table of verdicts, as people read it.

use std::collections::BTreeMap;

use crate::check::Verdict;
use crate::kept::Ran;
use crate::record::{Expect, Record};

/// How often each kind of fault happened.
pub(crate) fn faults(history: &str) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for line in history.lines().filter(|line| line.starts_with("{\"type\":\"fault\"")) {
        if let Ok(Record::Fault { name, .. }) = serde_json::from_str(line) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let all = counts.values().sum::<usize>();
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("{all}: {}", each.join(", "))
}

/// A verdict in one or two words.
pub(crate) fn word(verdict: &Verdict) -> &'static str {
    match (verdict.expect, verdict.is_as_expected()) {
        (Expect::Anything, _) if verdict.wrong() == 0 => "holds",
        (Expect::Anything, _) => "fails",
        (Expect::Nothing, true) => "holds",
        (_, true) => "shows it",
        (_, false) => "FAILED",
    }
}

/// The keys that were left, and as a note the counters that fencing keeps.
fn left(verdict: &Verdict) -> String {
    match verdict.counters {
        0 => verdict.left.to_string(),
        counters => format!("{}, and {counters} token counters", verdict.left),
    }
}

/// A Markdown table with one row for each subject and assumption.
pub(crate) fn table(verdicts: &[Verdict], ran: &[Ran]) -> String {
    // The column appears only if a row has a set.
    let sets = verdicts.iter().any(|verdict| verdict.added > 0);
    let (head, line) = if sets { (" elements lost |", "---:|") } else { ("", "") };
    let mut lines = vec![
        format!(
            "| subject, assumption | | sections | overlaps | stale writes arrived | passed |{head} older tokens | keys left | all served after |"
        ),
        format!("|---|---|---:|---:|---:|---:|{line}---:|---:|---:|"),
    ];
    for verdict in verdicts {
        let excused = |all: usize, excused: usize| match excused {
            0 => all.to_string(),
            _ => format!("{} (+{excused} after data loss)", all - excused),
        };
        let served = ran.iter().find(|ran| ran.row == verdict.row).and_then(|ran| ran.served_ms);
        let lost = match (sets, verdict.added) {
            (false, _) => String::new(),
            (true, 0) => " - |".to_owned(),
            (true, added) => format!(" {} of {added} |", verdict.lost),
        };
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} |{lost} {} | {} | {} |",
            verdict.row,
            word(verdict),
            verdict.sections,
            excused(verdict.overlaps, verdict.overlaps_excused),
            verdict.stale_arrived,
            verdict.stale_passed,
            excused(verdict.inversions, verdict.inversions_excused),
            left(verdict),
            served.map_or("**never**".to_owned(), |ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)),
        ));
    }
    lines.join("\n")
}
