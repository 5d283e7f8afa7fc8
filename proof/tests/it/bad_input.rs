//! What cannot be done is said in one sentence.

use lock_core::testing::limit;

use crate::{Scratch, complained, proof};

fn refused(words: &[&str], why: &str) {
    let output = proof().args(words).output().unwrap();
    assert_eq!((complained(&output), output.status.code()), (format!("lock-proof: {why}\n"), Some(2)), "{words:?}");
}

#[test]
#[limit]
fn what_is_no_number_no_store_and_no_row_is_refused_in_one_sentence() {
    refused(&["--seed", "seven"], "the seed \"seven\" is no number");
    refused(&["--minutes", "soon"], "--minutes \"soon\" is no time");
    refused(&["--minutes", "0"], "--minutes \"0\" is no time");
    let stores = "the store \"oracle\" is unknown; there are one, sentinel, cluster, quorum";
    refused(&["--store", "oracle"], stores);
    refused(&["--only", "nonsense"], "no row has a name that contains \"nonsense\"");
    refused(&["--peer", "mine"], "--peer \"mine\" is not NAME=COMMAND");
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
    let output = proof().args(["replay", &folder]).output().unwrap();
    assert_eq!((complained(&output).lines().count(), output.status.code()), (1, Some(2)));
}

#[test]
#[limit]
fn without_a_server_to_start_it_says_how_to_get_one() {
    let output = proof().env("PATH", "/nowhere").output().unwrap();
    let why = "no server can be started here: redis-server is not installed; run sh scripts/need-redis.sh";
    assert_eq!((complained(&output), output.status.code()), (format!("lock-proof: {why}\n"), Some(2)));
}
