//! The benchmark measures every row and reports it as JSON, and our line keeps exclusion meanwhile.
//!
//! No figure is tested: machines are noisy, and timed tests fail at random.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use lock_testing::limit;
use std::process::Command;

use serde_json::Value;

#[test]
#[limit(300)]
fn every_row_is_measured() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}.json", std::process::id()));
    let run = Command::new(env!("CARGO_BIN_EXE_lock-bench")).arg("--smoke").arg("--json").arg(&path).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{complained}");
    let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();

    let list = Command::new(env!("CARGO_BIN_EXE_lock-bench")).arg("--list").output().unwrap();
    let names = String::from_utf8(list.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), names.lines().count());
    let ours: u64 = rows.iter().map(check).sum();
    // A window of a few milliseconds may fall into a stall of the machine, but not every window
    // does.
    assert!(ours > 0, "we never got in");
    assert!(said.contains("targets met"), "{said}");
}

#[test]
#[limit(300)]
fn others_are_measured_by_their_adapters() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("others-{}.json", std::process::id()));
    let words = ["--smoke", "--row", "lonely", "--json"];
    let run = Command::new(env!("CARGO_BIN_EXE_lock-bench")).args(words).arg(&path).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{complained}");
    assert!(!said.contains("redis-py Lock: run"), "redis-py is not installed; run sh scripts/need-foreign-clients.sh");
    let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let row = &report["rows"][0];
    let lanes = row["tables"][0]["lanes"].as_array().unwrap();
    let peer = lanes.iter().find(|lane| lane["name"] == "redis-py Lock").unwrap_or_else(|| panic!("{said}"));
    // The history is complete for any window: no two holders met, and no call failed.
    let sample = &peer["rounds"][0];
    assert_eq!((&sample["violations"], &sample["errors"]), (&0.into(), &0.into()), "{said}");
    assert!(said.contains("commands a pair, redis-py Lock"), "{said}");
}

/// Checks a row, and returns how many times we acquired in it.
fn check(row: &Value) -> u64 {
    let mut acquired = 0;
    let name = row["name"].as_str().expect("text");
    let targets = row["targets"].as_array().expect("a list");
    assert!(!targets.is_empty(), "{name} has no target");
    for target in targets {
        assert!(target["met"].is_boolean() && target["reach"].is_number(), "{name}: {target}");
    }
    // Ratios may be wrong in such a short run, or lack a peer that acquired anything; these may not.
    for (what, count) in row["faults"].as_object().expect("a map") {
        assert_eq!(count, 0, "{name}: {what}");
    }
    let tables = row["tables"].as_array().expect("a list");
    let lanes: Vec<&Value> = tables.iter().flat_map(|table| table["lanes"].as_array().expect("a list")).collect();
    // Kubernetes is built with Go, which a machine may lack.
    let is_missing = name == "kubernetes" && targets.iter().all(|target| target["value"].is_null());
    let has_figures = !lanes.is_empty() || !row["figures"].as_array().expect("a list").is_empty();
    assert!(has_figures || is_missing, "{name} has no figures");
    for lane in lanes {
        for sample in lane["rounds"].as_array().expect("a list") {
            for field in ["rate", "wait_p50_us", "wait_p99_us", "wait_max_us", "changes_per_second", "task_share"] {
                assert!(sample[field].is_number(), "{name}: {field} of {}", lane["name"]);
            }
            for field in ["open_waits", "starved", "violations", "inversions", "errors"] {
                assert!(sample[field].is_u64(), "{name}: {field} of {}", lane["name"]);
            }
            if lane["name"].as_str().expect("text").starts_with("us") {
                acquired += sample["acquisitions"].as_u64().expect("a count");
            }
            assert!(sample["client_us"].is_number() || sample["acquisitions"] == 0, "{name}: no processor time");
        }
    }
    for figure in row["figures"].as_array().expect("a list") {
        assert!(figure["median"].is_number(), "{name}: {figure}");
    }
    acquired
}

#[test]
#[limit]
fn what_is_wrong_is_said() {
    let run = |arguments: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_lock-bench")).args(arguments).output().unwrap();
        assert!(!run.status.success(), "{arguments:?}");
        String::from_utf8(run.stderr).unwrap()
    };
    assert!(run(&["--redis-server", "no-such-server"]).contains("--redis-server"));
    assert!(run(&["--smoke", "--instructions", "--redis-server", "no-such-server"]).contains("target/callgrind"));
    assert!(run(&["--row", "no-such-row"]).contains("the rows are idle"));
}
