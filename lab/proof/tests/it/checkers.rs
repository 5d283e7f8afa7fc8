//! Two checkers that know nothing of each other read one history, and each finds what was planted in it.

use std::process::Command;

use lock_testing::limit;
use serde_json::{Value, json};

use crate::{Scratch, complained, crate_file, proof, said};

/// A hold: process, mode, units, token, when it was asked for, granted and over.
fn hold(process: u32, mode: &str, units: u64, token: u64, asked: u64, at: u64, until: u64) -> Vec<Value> {
    let limit = 3;
    vec![
        json!({"type": "start", "process": process, "attempt": asked, "at": asked}),
        json!({"type": "grant", "process": process, "hold": asked, "key": "k", "mode": mode, "units": units, "limit": limit,
            "token": token, "asked": asked, "at": at, "deadline": null, "site": "here"}),
        json!({"type": "end", "process": process, "hold": asked, "at": until, "downgraded": false}),
        json!({"type": "over", "process": process, "attempt": asked, "at": until}),
    ]
}

fn write(process: u32, hold: u64, token: Option<u64>, at: u64) -> Value {
    json!({"type": "write", "process": process, "hold": hold, "key": "k", "token": token, "at": at, "accepted": true})
}

fn job(what: &str, within: Option<u64>, asked: u64, at: u64) -> Value {
    json!({"type": "job", "what": what, "name": "nightly", "within": within, "asked": asked, "at": at})
}

fn add(element: u64, at: u64) -> Value {
    json!({"type": "add", "process": 1, "hold": 10, "key": "k", "element": element, "at": at})
}

fn set(elements: &[u64], at: u64) -> Value {
    json!({"type": "set", "key": "k", "elements": elements, "at": at})
}

/// Everything that may be, and nothing that may not.
fn right() -> Vec<Value> {
    let run =
        json!({"type": "run", "row": "one", "subject": "s", "assumption": "held", "expect": "nothing", "seed": 1});
    let parts = [
        vec![run],
        hold(1, "write", 0, 10, 10, 20, 30),
        vec![write(1, 10, Some(10), 25)],
        hold(2, "read", 1, 20, 40, 50, 90),
        hold(3, "read", 1, 20, 45, 55, 80),
        hold(1, "permit", 2, 30, 100, 110, 150),
        hold(2, "permit", 1, 30, 105, 115, 140),
        hold(3, "write", 0, 40, 160, 170, 200),
        vec![write(3, 160, Some(40), 180), job("began", Some(50), 10, 20), job("began", Some(50), 60, 70)],
        // An element of an unanswered commit may be there, and an earlier read knows less.
        vec![add(7, 26), set(&[], 24), set(&[7, 8], 600)],
        vec![json!({"type": "killed", "process": 9, "at": 500}), json!({"type": "served", "took": 5, "bound": 9})],
        vec![json!({"type": "done", "at": 900})],
    ];
    parts.into_iter().flatten().collect()
}

fn text(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Runs both checkers on a history, and returns their verdicts, which must be equal, and the exit code.
fn both(text: &str) -> (Vec<Value>, Option<i32>) {
    let scratch = Scratch::new();
    let history = scratch.write("history.jsonl", text);
    let ours = proof().arg("check").arg(&history).output().unwrap();
    let theirs = Command::new("python3").arg("-B").arg(crate_file("check.py")).arg(&history).output().unwrap();
    assert_eq!(said(&ours), said(&theirs), "{}{}", complained(&ours), complained(&theirs));
    assert_eq!(ours.status.code(), theirs.status.code(), "{}", said(&ours));
    (said(&ours).lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ours.status.code())
}

/// Errors to plant: what they are called, what is added, and the count that must be one.
fn planted() -> Vec<(&'static str, Vec<Value>, &'static str)> {
    let start = |process, attempt| json!({"type": "start", "process": process, "attempt": attempt, "at": 300});
    let over = |process, attempt| json!({"type": "over", "process": process, "attempt": attempt, "at": 310});
    let unended = hold(4, "write", 0, 50, 300, 310, 320).into_iter().filter(|record| record["type"] != "end").collect();
    vec![
        ("two writers", hold(4, "write", 0, 41, 161, 175, 176), "overlaps"),
        ("a writer beside readers", hold(4, "write", 0, 25, 46, 60, 95), "overlaps"),
        ("a permit too many", hold(4, "permit", 1, 30, 106, 120, 130), "overlaps"),
        ("an older token", hold(4, "write", 0, 39, 300, 310, 320), "inversions"),
        ("the same token twice", hold(4, "write", 0, 40, 300, 310, 320), "inversions"),
        ("a late write", vec![write(1, 10, Some(10), 185)], "stale_passed"),
        ("a late write without a token", vec![write(3, 160, None, 186), write(1, 10, None, 187)], "stale_passed"),
        ("an element that its set lacks", vec![add(9, 27)], "lost"),
        ("an element that its set has lost since", vec![add(9, 27), set(&[7, 8, 9], 590)], "lost"),
        ("an element whose set was read before", vec![add(8, 600)], "lost"),
        ("a job again in its time", vec![job("began", Some(50), 80, 90)], "again"),
        ("a job again after its end was told", vec![job("told", None, 65, 65), job("began", None, 200, 210)], "again"),
        ("an acquire that never ended", vec![start(4, 1)], "endings"),
        ("an acquire that ended twice", vec![start(4, 1), over(4, 1), over(4, 1)], "endings"),
        ("a hold that nobody ended", unended, "unended"),
        ("half a line more than processes were killed", vec![json!("{\"type\":"), json!("{\"type\":")], "unreadable"),
        ("a key that stays", vec![json!({"type": "left", "key": "k"})], "left"),
        (
            "a key that stays and only looks like a counter",
            vec![json!({"type": "left", "key": "k", "counter": false})],
            "left",
        ),
        ("a waiter that is never served", vec![json!({"type": "served", "took": null, "bound": 9})], "unserved"),
        ("a waiter that is served late", vec![json!({"type": "served", "took": 10, "bound": 9})], "unserved"),
    ]
}

#[test]
#[limit]
fn both_checkers_find_nothing_wrong_in_a_history_that_is_right() {
    let (rows, end) = both(&text(&right()));
    assert_eq!(end, Some(0), "{rows:?}");
    assert_eq!((&rows[0]["sections"], &rows[0]["runs"], &rows[0]["writes"]), (&json!(6), &json!(2), &json!(2)));
}

#[test]
#[limit]
fn a_counter_that_fencing_needs_is_noted_and_is_not_a_fault() {
    let mut history = right();
    let done = history.pop();
    history.push(json!({"type": "left", "key": "redisson_lock_token:{k}", "counter": true}));
    history.extend(done);
    let (rows, end) = both(&text(&history));
    assert_eq!((&rows[0]["left"], &rows[0]["counters"], end), (&json!(0), &json!(1), Some(0)), "{}", rows[0]);
}

#[test]
#[limit]
fn both_checkers_find_each_planted_error() {
    for (what, records, count) in planted() {
        let mut history = right();
        let done = history.pop();
        history.extend(records);
        history.extend(done);
        let (rows, end) = both(&text(&history));
        assert_eq!((&rows[0][count], end), (&json!(1), Some(1)), "{what}: {}", rows[0]);
    }
}

#[test]
#[limit]
fn both_checkers_excuse_what_servers_forgot_and_who_was_killed() {
    let mut history = right();
    let done = history.pop();
    history.extend(hold(9, "write", 0, 39, 161, 175, 176).into_iter().filter(|record| record["type"] != "end"));
    history.extend([
        json!({"type": "forgot", "from": 172, "until": 178}),
        json!({"type": "start", "process": 9, "attempt": 1, "at": 1}),
    ]);
    history.extend(done);
    let (rows, end) = both(&text(&history));
    assert_eq!(
        (&rows[0]["overlaps"], &rows[0]["overlaps_excused"], end),
        (&json!(1), &json!(1), Some(0)),
        "{}",
        rows[0]
    );
}

/// Whatever is broken: once nothing fails any more, who waits is served.
#[test]
#[limit]
fn a_row_with_a_broken_assumption_fails_if_somebody_is_never_served() {
    for (expect, shown) in [
        ("overlaps", hold(4, "write", 0, 41, 161, 175, 176)),
        ("stale", vec![write(1, 10, Some(10), 185)]),
        ("lost", vec![add(9, 27)]),
    ] {
        for (took, end) in [(json!(5), Some(0)), (json!(null), Some(1))] {
            let mut history = right();
            history[0]["expect"] = json!(expect);
            let done = history.pop();
            history.extend(shown.clone());
            history.push(json!({"type": "served", "took": took, "bound": 9}));
            history.extend(done);
            assert_eq!(both(&text(&history)).1, end, "{expect}, served after {took}");
        }
    }
}

#[test]
#[limit]
fn a_history_that_is_cut_or_none_is_refused_in_one_sentence() {
    let scratch = Scratch::new();
    let whole = right();
    for (history, why) in [
        (text(&whole[..7]), "the history is cut in the middle of the row \"one\""),
        (
            text(&[&whole[..7], &whole[..1]].concat()),
            "the row \"one\" is cut: \"one\" begins at line 8 and it has not ended",
        ),
        ("hello\n".to_owned(), "line 1 stands outside of a row: this is no history"),
        (String::new(), "the history is empty"),
    ] {
        let path = scratch.write("history.jsonl", &history);
        let ours = proof().arg("check").arg(&path).output().unwrap();
        assert_eq!((complained(&ours), ours.status.code()), (format!("lock-proof: {why}\n"), Some(2)));
        let theirs = Command::new("python3").arg("-B").arg(crate_file("check.py")).arg(&path).output().unwrap();
        assert_eq!(
            (complained(&theirs).lines().count(), theirs.status.code()),
            (1, Some(2)),
            "{}",
            complained(&theirs)
        );
    }
    let absent = proof().args(["check", "/nowhere"]).output().unwrap();
    assert!(complained(&absent).starts_with("lock-proof: cannot read /nowhere: "), "{}", complained(&absent));
}

/// The run that docs/proof.md shows is one that anybody can judge.
#[test]
#[limit]
fn both_checkers_say_of_the_published_history_what_the_published_table_says() {
    let packed = crate_file("published/history.jsonl.xz");
    let checked = Command::new("python3").arg("-B").arg(crate_file("check.py")).arg(&packed).output().unwrap();
    let unpack = "import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())";
    let unpacked = Command::new("python3").args(["-c", unpack]).arg(&packed).output().unwrap();
    let (rows, end) = both(&said(&unpacked));
    assert_eq!(said(&checked).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>(), rows);
    assert_eq!(checked.status.code(), end, "{}", complained(&checked));

    let published = std::fs::read_to_string(crate_file("published/verdicts.json")).unwrap();
    let published: Value = serde_json::from_str(&published).unwrap();
    let table = published["verdicts"].as_array().unwrap();
    assert!(rows.len() > 9 && rows.iter().all(|row| table.contains(row)), "{rows:?}");
    let page = std::fs::read_to_string(crate_file("../../docs/proof.md")).unwrap();
    for verdict in table.iter().filter(|verdict| !rows.contains(verdict)) {
        let name = verdict["row"].as_str().unwrap().trim_end_matches(", all assumptions held");
        assert!(page.contains(&format!("`{name}`")), "the page does not say that {name} has no history");
    }
    let size = |name: &str| std::fs::metadata(crate_file(name)).unwrap().len();
    assert!(size("published/history.jsonl.xz") + size("published/report.html") <= 2 << 20);
}

#[test]
#[limit]
fn the_second_checker_is_short_and_needs_nothing() {
    let text = std::fs::read_to_string(crate_file("check.py")).unwrap();
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
    let imports: Vec<&str> =
        text.lines().filter(|line| line.starts_with("import ") || line.starts_with("from ")).collect();
    assert_eq!(imports, ["import collections", "import json", "import lzma", "import sys"]);
}
