//! Runs of some seconds, or for as long as `LOCK_SOAK_MINUTES` says. `LOCK_TEST_SEED` repeats the faults of one.

use std::process::Output;

use lock_testing::limit;
use serde_json::Value;

use crate::{Scratch, complained, crate_file, proof, said};

/// Runs and prints what it said.
fn ran(scratch: &Scratch, words: &[&str]) -> Output {
    let mut program = proof();
    program.args(words).arg("--out").arg(scratch.path("runs"));
    if let Ok(seed) = std::env::var("LOCK_TEST_SEED")
        && words[0] != "replay"
    {
        program.args(["--seed", &seed]);
    }
    let output = program.output().unwrap();
    println!("{}{}", said(&output), complained(&output));
    output
}

fn soak(store: &str) {
    let scratch = Scratch::new();
    let minutes = std::env::var("LOCK_SOAK_MINUTES").unwrap_or_else(|_| "0.33".to_owned());
    let output = ran(&scratch, &["--store", store, "--minutes", &minutes]);
    for line in said(&output).lines().filter(|line| line.starts_with("| ours") || line.starts_with("faults")) {
        println!("figure: {line}");
    }
    assert!(output.status.success(), "{}", said(&output));
    let folder = std::fs::read_dir(scratch.path("runs")).unwrap().next().unwrap().unwrap().path();
    promotions_are_written_down(&std::fs::read_to_string(folder.join("history.jsonl")).unwrap());
}

/// A claim that shares a lock while a replica becomes a master may have an earlier token.
fn promotions_are_written_down(history: &str) {
    let records = history.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect::<Vec<_>>();
    let at = |record: &Value, field: &str| record[field].as_u64().unwrap();
    let promotes =
        |what: &str| ["FailOver", "Usurp", "Outlive", "Freeze", "MoveSlot"].iter().any(|name| what.contains(name));
    for fault in records.iter().filter(|record| record["type"] == "fault" && promotes(record["what"].as_str().unwrap()))
    {
        let begun = |record: &&Value| (at(fault, "from")..=at(fault, "until")).contains(&at(record, "from"));
        assert!(records.iter().filter(|record| record["type"] == "renamed").any(|record| begun(&record)), "{fault}");
    }
}

#[test]
#[limit(36_000)]
fn under_random_faults_locks_of_one_server_exclude_and_leave_nothing() {
    soak("one");
}

#[test]
#[limit(36_000)]
fn under_random_faults_locks_behind_sentinels_exclude_and_leave_nothing() {
    soak("sentinel");
}

#[test]
#[limit(36_000)]
fn under_random_faults_locks_of_a_cluster_exclude_and_leave_nothing() {
    soak("cluster");
}

#[test]
#[limit(36_000)]
fn under_random_faults_locks_of_a_quorum_exclude_and_leave_nothing() {
    soak("quorum");
}

/// A check that cannot fail proves nothing.
#[test]
#[limit(1_200)]
fn each_assumption_that_is_broken_on_purpose_shows() {
    let scratch = Scratch::new();
    let output = ran(&scratch, &["--only", "broken", "--minutes", "0.8"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("| shows it |").count(), 6);
}

#[test]
#[limit(1_200)]
fn others_run_under_the_same_faults_and_a_seed_gives_the_same_faults_again_from_the_folder_alone() {
    let scratch = Scratch::new();
    let ours = [
        "--only",
        "ours, one server, all",
        "--only",
        "ours, PostgreSQL, all",
        "--only",
        "ours, PostgreSQL, a set in the database, all",
    ];
    let rows =
        [&ours[..], &["--only", "rslock", "--only", "distkit", "--only", "SET NX, bare", "--minutes", "0.35"]].concat();
    let output = ran(&scratch, &rows);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("\n| ours, PostgreSQL, all assumptions held | holds |"), "{}", said(&output));
    assert!(said(&output).contains("\n| distkit, all assumptions held | "), "{}", said(&output));
    let folder = std::fs::read_dir(scratch.path("runs")).unwrap().next().unwrap().unwrap().path();
    for file in ["history.jsonl", "report.html", "table.md", "run.json", "verdicts.json"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    let verdicts: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("verdicts.json")).unwrap()).unwrap();
    assert_eq!(verdicts["agreed"], true);
    let again = ran(&scratch, &["replay", folder.to_str().unwrap()]);
    assert!(again.status.success() && said(&again).contains(" faults in the same order\n"), "{}", said(&again));
}

/// As if the machine had been switched off in the second row: what the first came to stays, and nothing of the second.
#[test]
#[limit(600)]
fn a_run_that_was_interrupted_goes_on_in_its_folder() {
    let scratch = Scratch::new();
    let words = ["--only", "ours, one server, all", "--only", "rslock", "--minutes", "0.1"];
    assert!(ran(&scratch, &words).status.success());
    let folder = std::fs::read_dir(scratch.path("runs")).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (whole, mut about) = (read("history.jsonl"), serde_json::from_str::<Value>(&read("run.json")).unwrap());
    let first = whole.find("{\"type\":\"done\"").unwrap();
    let end = first + whole[first..].find('\n').unwrap() + 1;
    about["rows"].as_array_mut().unwrap().pop();
    std::fs::write(folder.join("run.json"), about.to_string()).unwrap();
    std::fs::write(folder.join("history.jsonl"), &whole[..end + (whole.len() - end) / 2]).unwrap();
    let output = proof().arg("resume").arg(&folder).output().unwrap();
    println!("{}{}", said(&output), complained(&output));
    assert!(
        output.status.success() && said(&output).starts_with("1 of 2 rows are done\nrslock, all"),
        "{}",
        said(&output)
    );
    let history = read("history.jsonl");
    assert!(history.starts_with(&whole[..end]));
    assert_eq!((history.matches("{\"type\":\"run\"").count(), history.matches("{\"type\":\"done\"").count()), (2, 2));
    assert_eq!(read("table.md").lines().count(), 4);
    std::fs::write(folder.join("history.jsonl"), "").unwrap();
    let output = proof().arg("resume").arg(&folder).output().unwrap();
    assert!(complained(&output).ends_with("history.jsonl is no history of 2 rows\n"), "{}", complained(&output));
}

#[test]
#[limit]
fn the_page_of_the_documentation_is_made_of_the_files_of_a_run() {
    let output = proof().arg("page").arg(crate_file("published")).output().unwrap();
    let page = std::fs::read_to_string(crate_file("../../docs/proof.md")).unwrap();
    assert_eq!(said(&output), page, "run `lock-proof page lab/proof/published >docs/proof.md`");
}

/// The race between check and commit: a check loses a write, and a pin keeps it.
#[test]
#[limit(600)]
fn between_check_and_commit_a_look_loses_a_write_and_a_pin_keeps_it() {
    let output = proof().arg("race").output().unwrap();
    let said = said(&output);
    println!("{said}{}", complained(&output));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\n| ours, pin | is refused until the commit | 2 | 2 | holds |\n"), "{said}");
    assert!(said.contains("\n| ours, a look instead | is let in | 2 | 1 | a write is lost |\n"), "{said}");
    // pg_lease is there if it was installed, and else it is named.
    let theirs = said.contains("\n| pg_lease 0.1.3, verify_lease_held | is let in | 2 | 1 | a write is lost |\n");
    let missing = said.contains("not installed, so not run: pg_lease");
    assert!(theirs != missing, "{said}");
}
