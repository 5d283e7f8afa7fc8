//! Wrong input is refused in one sentence.

use lock_testing::limit;

use crate::{Scratch, complained, crate_file, proof};

fn refused(words: &[&str], why: &str) {
    let output = proof().args(words).output().unwrap();
    assert_eq!((complained(&output), output.status.code()), (format!("lock-proof: {why}\n"), Some(2)), "{words:?}");
}

#[test]
#[limit]
fn what_is_no_number_no_store_and_no_row_is_refused_in_one_sentence() {
    for seed in ["seven", "", "-1", "1.5", "18446744073709551616"] {
        refused(&["--seed", seed], &format!("the seed {seed:?} is no number from 0 to 18446744073709551615"));
    }
    for minutes in ["soon", "0", "-1", "NaN", "inf", "1e300"] {
        refused(&["--minutes", minutes], &format!("--minutes {minutes:?} is no time of up to 43200"));
    }
    let stores = "the store \"oracle\" is unknown; there are one, sentinel, cluster, quorum";
    refused(&["--store", "oracle"], stores);
    refused(&["--only", "nonsense"], "no row has a name that contains \"nonsense\"");
    refused(&["--peer", "mine"], "--peer \"mine\" is not NAME=COMMAND");
}

#[test]
#[limit]
fn a_bug_that_nobody_seeded_is_refused_by_a_sentence_that_lists_those_that_are() {
    let output = proof().args(["mutants", "nonsense"]).output().unwrap();
    let said = complained(&output);
    assert!(said.starts_with("lock-proof: there is no seeded bug \"nonsense\"; there are a-"), "{said}");
    assert!(said.contains(", tokens-stand-still-for-seconds, ") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
#[limit]
fn a_folder_that_is_no_run_is_refused_in_one_sentence() {
    let scratch = Scratch::new();
    let folder = scratch.path("").display().to_string();
    let output = proof().args(["replay", &folder]).output().unwrap();
    let said = complained(&output);
    assert!(said.starts_with(&format!("lock-proof: {folder} is no folder of a run: run.json: ")), "{said}");
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)));
    scratch.write("run.json", "{}");
    for words in [["replay", &folder], ["resume", &folder], ["page", &folder]] {
        let output = proof().args(words).output().unwrap();
        assert_eq!((complained(&output).lines().count(), output.status.code()), (1, Some(2)), "{words:?}");
    }
    // A run without its history.
    std::fs::copy(crate_file("published/run.json"), scratch.path("run.json")).unwrap();
    let output = proof().args(["replay", &folder]).output().unwrap();
    let said = complained(&output);
    assert!(said.starts_with(&format!("lock-proof: cannot read {folder}history.jsonl: ")), "{said}");
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(2)));
}

#[test]
#[limit]
fn without_a_server_to_start_it_says_how_to_get_one() {
    let output = proof().env("PATH", "/nowhere").output().unwrap();
    let why = "no server can be started here: redis-server is not installed; run sh scripts/need-redis.sh";
    assert_eq!((complained(&output), output.status.code()), (format!("lock-proof: {why}\n"), Some(2)));
}
