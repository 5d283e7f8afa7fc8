//! The log of a store is a behaviour of the specification, and a planted forbidden step is found in it.

use std::process::Command;

use lock_testing::limit;

use crate::{Scratch, complained, crate_file, proof, said};

/// Fetches TLC if it can be run here. Otherwise says why not.
fn has_tlc() -> bool {
    let fetched = Command::new("sh").arg(crate_file("../../scripts/need-tlc.sh")).output().unwrap();
    if !fetched.status.success() {
        println!("not checked against the specification: {}", complained(&fetched).trim());
    }
    fetched.status.success()
}

/// For how many of the keys the log of a store is a behaviour of the specification.
fn allowed(said: &str) -> Option<(usize, usize)> {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("figure: logs of keys that are behaviours of the specification: "))?;
    let (allowed, all) = line.split_once(" of ")?;
    Some((allowed.parse().ok()?, all.parse().ok()?))
}

/// A run that is kept, so that every machine checks the same steps, and finds every step that is none.
#[test]
#[limit(300)]
fn what_a_store_logged_of_fifty_keys_is_a_behaviour_of_the_specification() {
    if !has_tlc() {
        return;
    }
    let scratch = Scratch::new();
    let packed = crate_file("spec/recorded/trace.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(scratch.path("")).status().unwrap();
    assert!(unpacked.success());
    let output = proof().args(["spec", "trace"]).arg(scratch.path("")).output().unwrap();
    let (said, told) = (said(&output), complained(&output));
    assert_eq!(allowed(&said), Some((50, 50)), "{said}\n{told}");
    assert!(said.contains("planted steps that were found by their numbers: 6 of 6\n"), "{said}\n{told}");
    assert!(output.status.success(), "{said}\n{told}");

    // A step of the log that is gone is missed: the first release of a lock for which nobody waits.
    let log = std::fs::read(scratch.path("store.aof")).unwrap();
    let text = String::from_utf8_lossy(&log);
    let release = "*2\r\n$3\r\nDEL\r\n";
    let place = text.find(release).unwrap();
    let end = place + release.len() + text[place + release.len()..].match_indices("\r\n").nth(1).unwrap().0 + 2;
    scratch.write("store.aof", &format!("{}{}", &text[..place], &text[end..]));
    let output = proof().args(["spec", "trace"]).arg(scratch.path("")).output().unwrap();
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(allowed(&found) == Some((49, 50)) && found.contains(" is not allowed\n"), "{found}");
    assert_eq!(output.status.code(), Some(1));
}

/// A busy machine logged this of one key: the second of two waiters has not confirmed its place for a whole lease, and the first is
/// granted. A grant ends the look at the queue. So the second keeps its place, and the same step must not take it out.
#[test]
#[limit(300)]
fn whoever_waits_behind_a_grant_keeps_its_place_however_long_it_was_silent() {
    if !has_tlc() {
        return;
    }
    let scratch = Scratch::new();
    let packed = crate_file("spec/recorded/behind.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(scratch.path("")).status().unwrap();
    assert!(unpacked.success());
    let output = proof().args(["spec", "trace"]).arg(scratch.path("")).output().unwrap();
    let (said, told) = (said(&output), complained(&output));
    assert_eq!(allowed(&said), Some((1, 1)), "{said}\n{told}");
    assert!(output.status.success(), "{said}\n{told}");

    // The grant takes two claims out of the queue: who had the lock, and who has it now. Here it takes out the third.
    let log = std::fs::read(scratch.path("store.aof")).unwrap();
    let text = String::from_utf8(log).unwrap();
    let leaves = "*4\r\n$4\r\nZREM\r\n";
    let place = text.find(leaves).unwrap();
    let end = place + leaves.len() + text[place + leaves.len()..].match_indices("\r\n").nth(5).unwrap().0 + 2;
    let words = &text[place + "*4".len()..end];
    let third = "$32\r\n9c5b0026dfd8de2190d031612b4aa51d\r\n";
    scratch.write("store.aof", &format!("{}*5{words}{third}{}", &text[..place], &text[end..]));
    let output = proof().args(["spec", "trace"]).arg(scratch.path("")).output().unwrap();
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.contains("trace:28: step 16 of 43 is not allowed\n"), "{found}");
    assert_eq!(output.status.code(), Some(1));
}

/// A run of its own. Where a busy machine left few steps, not each step that is none has a place in it.
#[test]
#[limit(300)]
fn what_the_store_logs_now_is_a_behaviour_of_the_specification() {
    if !has_tlc() {
        return;
    }
    let output = proof().args(["spec", "trace"]).output().unwrap();
    let (said, told) = (said(&output), complained(&output));
    assert_eq!(allowed(&said), Some((50, 50)), "{said}\n{told}");
    let planted = said.lines().filter(|line| line.starts_with("planted as step ")).count();
    let found = format!("planted steps that were found by their numbers: {planted} of {planted}\n");
    assert!(planted >= 3 && said.contains(&found) && output.status.success(), "{said}\n{told}");
    let line = told.lines().find(|line| line.contains(" keys, into ")).unwrap_or_else(|| panic!("{told}"));
    std::fs::remove_dir_all(line.rsplit("into ").next().unwrap()).unwrap();
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
