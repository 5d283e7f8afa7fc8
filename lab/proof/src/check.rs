//! Judges a history. `check.py` does the same and was written from `schema.md` alone.

mod jobs;
mod locks;
mod sets;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::record::{Expect, Grant, Record};

/// The verdict on one row of a history. Both checkers print these fields in this order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) row: String,
    pub(crate) expect: Expect,
    /// How many grants there were.
    pub(crate) sections: usize,
    /// Grants that met a hold which excludes them, and how many of these fell in a time when servers forgot on purpose.
    pub(crate) overlaps: usize,
    pub(crate) overlaps_excused: usize,
    /// Tokens that did not grow, and how many of these a fault explains.
    pub(crate) inversions: usize,
    pub(crate) inversions_excused: usize,
    pub(crate) writes: usize,
    /// Writes that arrived after a write of a later holder, and how many of these the resource admitted.
    pub(crate) stale_arrived: usize,
    pub(crate) stale_passed: usize,
    /// Elements that were added to a set, and how many of these the set lacks.
    #[serde(default)]
    pub(crate) added: usize,
    #[serde(default)]
    pub(crate) lost: usize,
    /// Runs of jobs, runs that were one too many, and how many of these a fault explains.
    pub(crate) runs: usize,
    pub(crate) again: usize,
    pub(crate) again_excused: usize,
    /// Acquires that never ended or ended twice, holds without an end, and lines that are not records.
    pub(crate) endings: usize,
    pub(crate) unended: usize,
    pub(crate) unreadable: usize,
    /// Keys that should have gone, and how often a process was not served in time after the faults had ended.
    pub(crate) left: usize,
    pub(crate) unserved: usize,
    /// Keys that stay because fencing needs them. They are not a violation.
    #[serde(default)]
    pub(crate) counters: usize,
}

impl Verdict {
    #[expect(clippy::expect_used, reason = "a verdict is numbers and a name")]
    pub(crate) fn as_json(&self) -> String {
        serde_json::to_string(self).expect("a verdict is JSON")
    }

    /// How many violations no fault explains.
    pub(crate) fn wrong(&self) -> usize {
        let explained = self.overlaps_excused + self.inversions_excused + self.again_excused;
        let seen = self.overlaps + self.inversions + self.stale_passed + self.lost + self.again + self.endings;
        seen + self.unended + self.unreadable + self.left + self.unserved - explained
    }

    pub(crate) fn is_as_expected(&self) -> bool {
        match self.expect {
            Expect::Nothing => self.wrong() == 0,
            Expect::Overlaps => self.overlaps > 0 && self.stale_passed == 0 && self.unserved == 0,
            Expect::Stale => self.stale_passed > 0 && self.unserved == 0,
            Expect::Lost => self.lost > 0 && self.unserved == 0,
            Expect::Anything => true,
        }
    }
}

/// One hold of a lock, from its grant until its holder last believed in it.
#[derive(Clone, Debug)]
struct Hold {
    grant: Grant,
    until: u64,
    downgraded: bool,
}

/// The records of one row.
#[derive(Default)]
struct Row {
    holds: Vec<Hold>,
    /// When servers forgot on purpose, and when a server had a new replication ID but had forgotten nothing.
    forgot: Vec<(u64, u64)>,
    renamed: Vec<(u64, u64)>,
    records: Vec<Record>,
}

fn within(windows: &[(u64, u64)], at: u64) -> bool {
    windows.iter().any(|(from, until)| (*from..=*until).contains(&at))
}

impl Row {
    fn forgot_at(&self, at: u64) -> bool {
        within(&self.forgot, at)
    }

    fn forgot_between(&self, from: u64, until: u64) -> bool {
        self.forgot.iter().any(|window| window.0 <= until && from <= window.1)
    }

    /// The holds of each key.
    fn by_key(&self) -> BTreeMap<&str, Vec<&Hold>> {
        let mut keys = BTreeMap::<&str, Vec<&Hold>>::new();
        for hold in &self.holds {
            keys.entry(&hold.grant.key).or_default().push(hold);
        }
        keys
    }
}

/// Checks every row of a history.
///
/// # Errors
///
/// If the text is not a history, or ends in the middle of a row.
pub(crate) fn check(text: &str) -> Result<Vec<Verdict>, String> {
    let (mut verdicts, mut open) = (Vec::new(), None::<(String, Expect, Row, usize)>);
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        match (serde_json::from_str::<Record>(line), open.as_mut()) {
            (Ok(Record::Run { row, expect, .. }), None) => open = Some((row, expect, Row::default(), 0)),
            (Ok(Record::Run { row: next, .. }), Some((row, ..))) => {
                return Err(format!(
                    "the row {row:?} is cut: {next:?} begins at line {} and it has not ended",
                    number + 1
                ));
            }
            (Ok(Record::Done { .. }), Some(_)) => {
                let closed = open.take();
                verdicts.extend(closed.map(|(name, expect, row, unreadable)| judge(name, expect, row, unreadable)));
            }
            (Ok(record), Some((_, _, row, _))) => row.records.push(record),
            (Err(_), Some((_, _, _, unreadable))) => *unreadable += 1,
            (_, None) => return Err(format!("line {} stands outside of a row: this is no history", number + 1)),
        }
    }
    match open {
        Some((row, ..)) => Err(format!("the history is cut in the middle of the row {row:?}")),
        None if verdicts.is_empty() => Err("the history is empty".to_owned()),
        None => Ok(verdicts),
    }
}

/// Whether the last row of a history, which is still running, already shows what it must.
pub(crate) fn shows(history: &Path, expect: Expect) -> Result<bool, String> {
    let text = std::fs::read_to_string(history).map_err(|error| format!("cannot read the history: {error}"))?;
    let start = text.rfind("{\"type\":\"run\"").unwrap_or_default();
    let mut records: Vec<Record> =
        text[start..].lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect();
    sets::leave_out_the_unread(&mut records);
    Ok(judge(String::new(), expect, Row { records, ..Row::default() }, 0).is_as_expected())
}

fn judge(name: String, expect: Expect, mut row: Row, unreadable: usize) -> Verdict {
    let (mut killed, mut ends) = (HashMap::new(), HashMap::new());
    let (mut left, mut unserved, mut counters) = (0, 0, 0);
    for record in &row.records {
        match record {
            Record::Killed { process, at } => _ = killed.insert(*process, *at),
            Record::End { process, hold, at, downgraded } => _ = ends.insert((*process, *hold), (*at, *downgraded)),
            Record::Forgot { from, until } => row.forgot.push((*from, *until)),
            Record::Renamed { from, until } => row.renamed.push((*from, *until)),
            Record::Left { counter: Some(true), .. } => counters += 1,
            Record::Left { .. } => left += 1,
            Record::Served { took, bound } => unserved += usize::from(took.is_none_or(|took| took > *bound)),
            _ => {}
        }
    }
    let mut unended = 0;
    for record in &row.records {
        let Record::Grant(grant) = record else { continue };
        let (until, downgraded) = match (ends.get(&(grant.process, grant.hold)), killed.get(&grant.process)) {
            (Some((at, downgraded)), _) => (*at, *downgraded),
            // The process was killed. Its hold ended with the process or at the deadline, whichever came first.
            (None, Some(killed)) => (grant.deadline.unwrap_or(u64::MAX).min(*killed), false),
            (None, None) => {
                unended += 1;
                (grant.at, false)
            }
        };
        row.holds.push(Hold { grant: grant.clone(), until: until.max(grant.at), downgraded });
    }
    let (overlaps, inversions) = (locks::overlaps(&row), locks::inversions(&row));
    let (writes, stale_arrived, stale_passed) = writes::count(&row);
    let (added, lost) = sets::count(&row);
    let (runs, again, again_excused) = jobs::count(&row);
    Verdict {
        row: name,
        expect,
        sections: row.holds.len(),
        overlaps: overlaps.0,
        overlaps_excused: overlaps.1,
        inversions: inversions.0,
        inversions_excused: inversions.1,
        writes,
        stale_arrived,
        stale_passed,
        added,
        lost,
        runs,
        again,
        again_excused,
        endings: endings(&row.records, &killed.keys().copied().collect()),
        unended,
        // A process that is killed while it writes leaves half a line.
        unreadable: unreadable.saturating_sub(killed.len()),
        left,
        unserved,
        counters,
    }
}

/// How many acquires did not end exactly once. An acquire of a killed process need not end.
fn endings(records: &[Record], killed: &BTreeSet<u32>) -> usize {
    let mut counts = HashMap::<(u32, u64), usize>::new();
    for record in records {
        match record {
            Record::Start { process, attempt, .. } => _ = counts.entry((*process, *attempt)).or_default(),
            Record::Over { process, attempt, .. } => *counts.entry((*process, *attempt)).or_default() += 1,
            _ => {}
        }
    }
    let wrong =
        |((process, _), count): &(&(u32, u64), &usize)| !(**count == 1 || **count == 0 && killed.contains(process));
    counts.iter().filter(wrong).count()
}
