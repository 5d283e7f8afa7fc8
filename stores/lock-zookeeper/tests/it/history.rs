//! Two checkers that share nothing read each history: the one of `lock-testing`, and `lab/proof/check.py`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use lock_testing::{History, Record, Verdict, limit};
use serde_json::{Value, json};

use crate::support::Scratch;

/// How many lines of a wrong history are printed.
const SHOWN: usize = 200;

/// Checks a history. Prints its end, and fails, if it is wrong or if the checkers disagree.
pub(crate) fn judged(path: &Path) -> Verdict {
    let text = fs::read_to_string(path).unwrap();
    let verdict = History::check_text(&text);
    let records: Vec<Record> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (theirs, is_right) = second_opinion(path, &records);
    if !verdict.violations.is_empty() || !is_right {
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        println!("{}", lines[lines.len().saturating_sub(SHOWN)..].join("\n"));
    }
    let first = verdict.violations.first();
    assert!(first.is_none(), "{} faults, the first: {first:?}; check.py says {theirs}", verdict.violations.len());
    assert!(is_right, "only check.py finds a fault: {theirs}");
    assert_eq!(theirs["sections"], verdict.grants, "{theirs}");
    verdict
}

/// Returns what `check.py` says, and whether it finds nothing wrong.
fn second_opinion(path: &Path, records: &[Record]) -> (Value, bool) {
    let file = path.with_extension("jsonl");
    let lines: String = translated(records).iter().map(|record| format!("{record}\n")).collect();
    fs::write(&file, lines).unwrap();
    let checker = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/proof/check.py");
    let output = Command::new("python3").arg("-B").arg(checker).arg(&file).output();
    let output = output.expect("python3 is installed: sh scripts/need-foreign-clients.sh");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let theirs = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("check.py: {error}: {said}{}", String::from_utf8_lossy(&output.stderr));
    });
    (theirs, output.status.success())
}

/// The same history as `lab/proof/schema.md` defines it, as one row.
fn translated(records: &[Record]) -> Vec<Value> {
    let (mut asked, mut deadlines, mut ends) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut released, mut killed) = (HashMap::new(), HashSet::new());
    for record in records {
        match record {
            Record::Start { process, attempt, at } => {
                asked.insert((*process, *attempt), *at);
            }
            Record::Grant { process, attempt, deadline, .. } | Record::Renew { process, attempt, deadline } => {
                let latest = deadlines.entry((*process, *attempt)).or_insert(*deadline);
                *latest = (*latest).max(*deadline);
            }
            Record::Lost { process, attempt, at } => {
                ends.insert((*process, *attempt), *at);
            }
            Record::Release { process, at, key, token } => {
                released.insert((*process, key, *token), *at);
            }
            Record::Killed { process, .. } => {
                killed.insert(*process);
            }
            _ => {}
        }
    }
    let mut row = vec![
        json!({"type": "run", "row": "one", "subject": "lock-zookeeper", "assumption": "none", "expect": "nothing", "seed": 0}),
    ];
    let mut latest = 0;
    for record in records {
        match record {
            Record::Start { process, attempt, at } => {
                row.push(json!({"type": "start", "process": process, "attempt": attempt, "at": at}));
            }
            Record::End { process, attempt, at, .. } => {
                latest = latest.max(*at);
                row.push(json!({"type": "over", "process": process, "attempt": attempt, "at": at}));
            }
            Record::Grant { process, attempt, at, key, token, .. } => {
                let (id, asked) = ((*process, *attempt), asked.get(&(*process, *attempt)).unwrap_or(at));
                let deadline = deadlines[&id];
                row.push(json!({"type": "grant", "process": process, "hold": attempt, "key": key, "mode": "write", "units": 1,
                    "limit": 1, "token": token, "asked": asked, "at": at, "deadline": deadline, "site": "test"}));
                let told = [released.get(&(*process, key, *token)), ends.get(&id)];
                let told = told.into_iter().flatten().min().copied();
                if told.is_some() || !killed.contains(process) {
                    let at = told.unwrap_or(u64::MAX).min(deadline);
                    row.push(
                        json!({"type": "end", "process": process, "hold": attempt, "at": at, "downgraded": false}),
                    );
                }
            }
            Record::Killed { process, at } => row.push(json!({"type": "killed", "process": process, "at": at})),
            _ => {}
        }
    }
    row.push(json!({"type": "done", "at": latest}));
    row
}

/// Both checkers find a planted fault.
#[test]
#[limit]
fn a_history_with_two_holders_is_refused() {
    let scratch = Scratch::new();
    let hold = |process: u32, attempt: u64, token: u64, at: u64, until: u64| {
        [
            Record::Start { process, attempt, at: at - 1 },
            Record::Grant { process, attempt, at, key: "k".to_owned(), token, deadline: until + 100 },
            Record::Release { process, at: until, key: "k".to_owned(), token },
            Record::End { process, attempt, at: until + 1, how: "released".to_owned() },
        ]
    };
    let write = |records: &[Record]| {
        let text: String = records.iter().map(|record| format!("{record}\n")).collect();
        fs::write(scratch.history(), text).unwrap();
    };
    let right = [hold(1, 1, 10, 10, 20), hold(2, 2, 11, 30, 40)].concat();
    write(&right);
    assert_eq!(scratch.verdict().grants, 2);
    let wrong = [right, hold(3, 3, 12, 35, 36).to_vec()].concat();
    assert_eq!(History::new(wrong.clone()).check().violations.len(), 1);
    let (theirs, is_right) = second_opinion(&scratch.history(), &wrong);
    assert_eq!((is_right, &theirs["overlaps"]), (false, &json!(1)), "{theirs}");
}
