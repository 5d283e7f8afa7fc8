//! Patches go stale as the code goes on.

use std::fs;
use std::process::Command;

use lock_testing::limit;

use crate::{complained, crate_file};

#[test]
#[limit]
fn every_bug_can_still_be_planted() {
    let mut patches = 0;
    for entry in fs::read_dir(crate_file("mutants")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let check =
                Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(crate_file("../..")).output();
            let check = check.unwrap();
            assert!(check.status.success(), "{}: {}", path.display(), complained(&check));
            patches += 1;
        }
    }
    assert!(patches > 30, "{patches} patches");
}
