//! The log of a store is a behaviour of the specification, and a planted forbidden step is found in it.

use std::collections::BTreeSet;
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

#[test]
#[limit(300)]
fn each_counter_example_of_the_model_is_one_of_the_specification_without_the_same_rule_and_none_with_it() {
    if !has_tlc() {
        return;
    }
    let output = proof().args(["spec", "exchange"]).output().unwrap();
    let of = exchanged().len();
    let all = format!("counter-examples of the model that are the specification's too: {of} of {of}\n");
    assert!(output.status.success() && said(&output).contains(&all), "{}\n{}", said(&output), complained(&output));
}

/// The other way round: what the model goes through is what TLC finds, in the fewest steps.
#[test]
#[limit(300)]
fn each_counter_example_that_the_model_is_given_is_the_shortest_of_the_specification() {
    if !has_tlc() {
        return;
    }
    let output = proof().args(["spec", "back"]).output().unwrap();
    let of = rules_in("spec/exchange/back").len();
    let all = format!("counter-examples of the specification that are as the model is given them: {of} of {of}\n");
    assert!(output.status.success() && said(&output).contains(&all), "{}\n{}", said(&output), complained(&output));
}

/// The rules of which the model gave a counter-example.
fn exchanged() -> BTreeSet<String> {
    rules_in("spec/exchange")
}

/// The rules of which a folder has a counter-example.
fn rules_in(folder: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(crate_file(folder)).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "txt"));
    files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The rules in the rows of a table that begin so.
fn told(page: &str, side: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_prefix(side)?.strip_prefix(" | "));
    let rules = rows.map(|row| row.split_once(" | ").unwrap_or_else(|| panic!("no reason in {row}")));
    let rules = rules.inspect(|(rules, why)| assert!(why.len() > 20, "{rules}: {why}"));
    rules.flat_map(|(rules, _)| rules.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A rule that the model or the specification gets, or loses, is one of these tables.
#[test]
#[limit]
fn each_rule_of_the_model_and_of_the_specification_is_exchanged_or_the_page_says_why_not() {
    let read = |name: &str| std::fs::read_to_string(crate_file(name)).unwrap();
    let page = read("spec/EXCHANGE.md");
    let scenario = read("../lock-core/tests/model/scenario.rs");
    let (_, rules) = scenario.split_once("enum Rule {\n").unwrap();
    let rules = rules.split_once("\n}").unwrap().0.lines().filter_map(|line| line.trim().strip_suffix(','));
    let model: BTreeSet<String> =
        rules.filter(|rule| rule.chars().all(char::is_alphanumeric)).map(str::to_owned).collect();
    let keeps = |module: &str| -> BTreeSet<String> {
        let text = read(module);
        let rules = text.split("Keeps(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        rules.filter(|rule| rule != "Rule").collect()
    };
    let lock = keeps("spec/Lock.tla");
    let spec: BTreeSet<String> = lock.union(&keeps("spec/Quorum.tla")).cloned().collect();
    let both = &told(&page, "both") | &exchanged();
    assert_eq!(told(&page, "exchanged"), exchanged());
    assert_eq!(both, &model & &lock);
    assert_eq!(told(&page, "model"), &model - &lock);
    assert_eq!(told(&page, "specification"), &spec - &both);
    assert!(told(&page, "both").is_disjoint(&exchanged()));
    let back = rules_in("spec/exchange/back");
    assert_eq!(told(&page, "back"), back);
    assert!(told(&page, "no way back").is_disjoint(&back));
    assert_eq!(&told(&page, "no way back") | &back, both);
}
