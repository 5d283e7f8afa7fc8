//! What a store logged of a run is a behaviour of the specification, and what no store may do is found in it.

use std::path::PathBuf;
use std::process::Command;

use lock_core::testing::limit;

use crate::{Scratch, complained, crate_file, proof, said};

/// Fetches TLC if it can be run here. Otherwise says why not.
fn has_tlc() -> bool {
    let fetched = Command::new("sh").arg(crate_file("../scripts/need-tlc.sh")).output().unwrap();
    if !fetched.status.success() {
        println!("not checked against the specification: {}", complained(&fetched).trim());
    }
    fetched.status.success()
}

/// The folder that a run has named.
fn folder(words: &str) -> PathBuf {
    let line = words.lines().find(|line| line.contains(" keys, into ")).unwrap_or_else(|| panic!("{words}"));
    line.rsplit("into ").next().unwrap().into()
}

#[test]
#[limit(300)]
fn what_the_store_logged_of_fifty_keys_is_a_behaviour_of_the_specification() {
    if !has_tlc() {
        return;
    }
    let output = proof().args(["spec", "trace"]).output().unwrap();
    let (said, told) = (said(&output), complained(&output));
    assert!(said.contains("logs of keys that are behaviours of the specification: 50 of 50\n"), "{said}\n{told}");
    assert!(said.contains("planted steps that were found by their numbers: 6 of 6\n"), "{said}\n{told}");
    assert!(output.status.success(), "{said}\n{told}");
    let folder = folder(&told);

    // A step of the log that is gone is missed: the first release of a lock for which nobody waits.
    let log = std::fs::read(folder.join("store.aof")).unwrap();
    let text = String::from_utf8_lossy(&log);
    let release = "*2\r\n$3\r\nDEL\r\n";
    let place = text.find(release).unwrap();
    let end = place + release.len() + text[place + release.len()..].match_indices("\r\n").nth(1).unwrap().0 + 2;
    let scratch = Scratch::new();
    for file in ["history.jsonl", "trace.json"] {
        std::fs::copy(folder.join(file), scratch.path(file)).unwrap();
    }
    scratch.write("store.aof", &format!("{}{}", &text[..place], &text[end..]));
    let output = proof().args(["spec", "trace"]).arg(scratch.path("")).output().unwrap();
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.contains("specification: 49 of 50\n") && found.contains(" is not allowed\n"), "{found}");
    assert_eq!(output.status.code(), Some(1));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[limit]
fn a_folder_without_a_log_is_refused_in_one_sentence() {
    if !has_tlc() {
        return;
    }
    let output = proof().args(["spec", "trace", "/nowhere"]).output().unwrap();
    assert!(
        complained(&output).starts_with("lock-proof: cannot read /nowhere/trace.json: "),
        "{}",
        complained(&output)
    );
    assert_eq!((output.status.code(), complained(&output).lines().count()), (Some(2), 1));
}
