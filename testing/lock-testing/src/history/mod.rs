//! Records of how several processes used locks, and a check of whether it was right.
//!
//! Every process appends lines to a file. All processes run on one machine, so their readings of its clock can be
//! compared. One checker reads the lines of all processes.
//!
//! An acquire without an answer never entered its critical section. Checking exclusion therefore needs no search for an
//! order of operations. It is enough that no two intervals *[granted, end]* of a key overlap. The end is the earliest
//! of: release sent, loss signalled, deadline passed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How each line begins.
const HEAD: &str = "{\"type\":\"";

/// One thing that happened. Times are nanoseconds of [`Clock::system`](lock_store::Clock::system).
///
/// A grant is identified by its process and attempt, a release by process, key and token.
///
/// See the example of [`History`].
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "type", rename_all = "lowercase")]
#[expect(missing_docs, reason = "the fields say what they are, and repeat from variant to variant")]
pub enum Record {
    /// An acquire began.
    Start { process: u32, attempt: u64, at: u64 },
    /// An acquire got its lock, which may be used until `deadline`.
    Grant { process: u32, attempt: u64, at: u64, key: String, token: u64, deadline: u64 },
    /// The deadline of a held lock was raised.
    Renew { process: u32, attempt: u64, deadline: u64 },
    /// The holder stopped using the lock and is about to release it.
    Release { process: u32, at: u64, key: String, token: u64 },
    /// The holder was told that it lost the lock.
    Lost { process: u32, attempt: u64, at: u64 },
    /// An acquire ended, with the name of its terminal event.
    End { process: u32, attempt: u64, at: u64, how: String },
    /// A resource admitted or refused a write that carried a token.
    Write { resource: String, at: u64, token: u64, accepted: bool },
    /// A process was killed, so its acquires need not end.
    Killed { process: u32, at: u64 },
    /// The store lost data on purpose. A caller that is granted a lock in this time may meet another holder.
    Excuse { from: u64, until: u64 },
}

/// One line of JSON.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The records of every process.
///
/// ```
/// use lock_testing::History;
///
/// // As each process writes it with a `Recorder`.
/// let text = r#"
/// {"type":"start","process":1,"attempt":1,"at":0}
/// {"type":"grant","process":1,"attempt":1,"at":5,"key":"report","token":7,"deadline":100}
/// {"type":"release","process":1,"at":50,"key":"report","token":7}
/// {"type":"end","process":1,"attempt":1,"at":60,"how":"released"}
/// "#;
/// let verdict = History::check_text(text);
/// assert!(verdict.violations.is_empty() && verdict.grants == 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    records: Vec<Record>,
}

/// The result of checking a [`History`].
///
/// See the example of [`History`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// How many grants were checked.
    pub grants: usize,
    /// How many keys they were for.
    pub keys: usize,
    /// How many writes were checked.
    pub writes: usize,
    /// All violations.
    pub violations: Vec<Violation>,
    /// Overlaps and older tokens of grants that a [`Record::Excuse`] covers.
    pub excused: usize,
}

/// A fault that must never happen.
///
/// See the example of [`History`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Violation {
    /// Two holders at once: the second was granted `by_ns` before the first ended.
    Overlap { key: String, first_token: u64, second_token: u64, by_ns: u64 },
    /// A later grant got a token that is not greater.
    TokenOrder { key: String, earlier: u64, later: u64 },
    /// A resource admitted a write with an older token than one it had admitted.
    StaleWrite { resource: String, newest: u64, token: u64 },
    /// An acquire that had begun did not end, or ended more than once.
    Endings { process: u32, attempt: u64, count: usize },
    /// A line that is not a record.
    Unreadable { line: String },
}

/// One lock held once.
struct Hold<'a> {
    key: &'a str,
    token: u64,
    from: u64,
    deadline: u64,
    /// The earliest of release and loss.
    ended: Option<u64>,
}

impl Hold<'_> {
    fn until(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX).min(self.deadline)
    }
}

impl History {
    /// Takes records as they are.
    #[must_use]
    pub fn new(records: Vec<Record>) -> Self {
        Self { records }
    }

    /// Reads the file that recorders wrote, and checks it.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be read.
    #[must_use]
    pub fn check_file(path: &Path) -> Verdict {
        Self::check_text(&std::fs::read_to_string(path).expect("the history can be read"))
    }

    /// Reads lines, and checks them.
    #[must_use]
    pub fn check_text(text: &str) -> Verdict {
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(record) => records.push(record),
                Err(_) => unreadable.push(line),
            }
        }
        let history = Self { records };
        let mut verdict = history.check();
        let unreadable = unreadable.into_iter().filter(|line| !history.was_cut(line));
        verdict.violations.extend(unreadable.map(|line| Violation::Unreadable { line: line.to_owned() }));
        verdict
    }

    /// Checks the records.
    #[must_use]
    pub fn check(&self) -> Verdict {
        let mut by_key: BTreeMap<&str, Vec<Hold<'_>>> = BTreeMap::new();
        for hold in self.holds() {
            by_key.entry(hold.key).or_default().push(hold);
        }
        let (keys, grants) = (by_key.len(), by_key.values().map(Vec::len).sum());
        let (mut violations, mut excused) = (Vec::new(), 0);
        for holds in by_key.values_mut() {
            excused += check_key(holds, &self.excuses(), &mut violations);
        }
        let writes = self.check_writes(&mut violations);
        self.check_endings(&mut violations);
        Verdict { grants, keys, writes, violations, excused }
    }

    /// Returns whether a line was cut off because its writer was killed.
    fn was_cut(&self, line: &str) -> bool {
        let rest = line.split_once("\"process\":").map_or("", |(_, rest)| rest);
        let number = rest.split(',').next().unwrap_or_default();
        let is_record = line.starts_with(HEAD) || HEAD.starts_with(line);
        is_record
            && self.records.iter().any(|record| match record {
                // The number itself may be cut off.
                Record::Killed { process, .. } if number == rest => process.to_string().starts_with(number),
                Record::Killed { process, .. } => process.to_string() == number,
                _ => false,
            })
    }

    fn holds(&self) -> impl Iterator<Item = Hold<'_>> {
        let mut holds: HashMap<(u32, u64), Hold<'_>> = HashMap::new();
        let mut by_token = HashMap::new();
        for record in &self.records {
            if let Record::Grant { process, attempt, at, key, token, deadline } = record {
                holds.insert(
                    (*process, *attempt),
                    Hold { key, token: *token, from: *at, deadline: *deadline, ended: None },
                );
                by_token.insert((*process, key.as_str(), *token), (*process, *attempt));
            }
        }
        for record in &self.records {
            match record {
                Record::Renew { process, attempt, deadline } => {
                    if let Some(hold) = holds.get_mut(&(*process, *attempt)) {
                        hold.deadline = hold.deadline.max(*deadline);
                    }
                }
                Record::Release { process, at, key, token } => {
                    let hold = by_token.get(&(*process, key.as_str(), *token)).and_then(|id| holds.get_mut(id));
                    end(hold, *at);
                }
                Record::Lost { process, attempt, at } => end(holds.get_mut(&(*process, *attempt)), *at),
                _ => {}
            }
        }
        holds.into_values()
    }

    fn excuses(&self) -> Vec<RangeInclusive<u64>> {
        let excuse = |record: &Record| match record {
            Record::Excuse { from, until } => Some(*from..=*until),
            _ => None,
        };
        self.records.iter().filter_map(excuse).collect()
    }

    fn check_writes(&self, violations: &mut Vec<Violation>) -> usize {
        let mut writes: Vec<_> = self
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Write { resource, at, token, accepted } => Some((*at, resource, *token, *accepted)),
                _ => None,
            })
            .collect();
        writes.sort_by_key(|(at, ..)| *at);
        let mut newest: HashMap<&str, u64> = HashMap::new();
        for (_, resource, token, accepted) in &writes {
            let newest = newest.entry(resource).or_default();
            if *accepted && *token < *newest {
                let (resource, newest, token) = ((*resource).clone(), *newest, *token);
                violations.push(Violation::StaleWrite { resource, newest, token });
            }
            if *accepted {
                *newest = (*newest).max(*token);
            }
        }
        writes.len()
    }

    fn check_endings(&self, violations: &mut Vec<Violation>) {
        let mut counts: BTreeMap<(u32, u64), usize> = BTreeMap::new();
        let mut killed = HashSet::new();
        for record in &self.records {
            match record {
                Record::Start { process, attempt, .. } | Record::Grant { process, attempt, .. } => {
                    counts.entry((*process, *attempt)).or_default();
                }
                Record::End { process, attempt, .. } => *counts.entry((*process, *attempt)).or_default() += 1,
                Record::Killed { process, .. } => {
                    killed.insert(*process);
                }
                _ => {}
            }
        }
        for ((process, attempt), count) in counts {
            let excused = count == 0 && killed.contains(&process);
            if count != 1 && !excused {
                violations.push(Violation::Endings { process, attempt, count });
            }
        }
    }
}

fn end(hold: Option<&mut Hold<'_>>, at: u64) {
    if let Some(hold) = hold {
        hold.ended = Some(hold.ended.map_or(at, |ended| ended.min(at)));
    }
}

/// Sweeps over the holds of one key in the order of their grants. Returns how many faults were excused.
fn check_key(holds: &mut [Hold<'_>], excuses: &[RangeInclusive<u64>], violations: &mut Vec<Violation>) -> usize {
    holds.sort_by_key(|hold| (hold.from, hold.token));
    let mut last: Option<&Hold<'_>> = None;
    let (mut newest, mut excused) = (0, 0);
    for hold in &*holds {
        let key = || hold.key.to_owned();
        let mut wrong = Vec::new();
        if hold.token <= newest {
            wrong.push(Violation::TokenOrder { key: key(), earlier: newest, later: hold.token });
        }
        newest = newest.max(hold.token);
        if let Some(last) = last.filter(|last| last.until() > hold.from) {
            let by_ns = last.until() - hold.from;
            wrong.push(Violation::Overlap { key: key(), first_token: last.token, second_token: hold.token, by_ns });
        }
        if excuses.iter().any(|excuse| excuse.contains(&hold.from)) {
            excused += wrong.len();
        } else {
            violations.extend(wrong);
        }
        // A hold may outlast its successors, so the one that ends last counts.
        if last.is_none_or(|last| last.until() < hold.until()) {
            last = Some(hold);
        }
    }
    excused
}

#[cfg(test)]
mod tests;
