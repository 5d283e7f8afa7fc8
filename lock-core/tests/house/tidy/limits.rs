//! No test can hang: each has a limit.

use std::fs;
use std::path::{Path, PathBuf};

use lock_testing::limit;

use super::{MEMBERS, files};

/// Code that can wait for something that never comes.
const WAITS: [&str; 7] = [".await", ".join()", ".recv", "Command::new", "TcpStream", "block_on", "_blocking("];

/// Returns the part of a file that is made of tests, if any of it can wait. Tests of whole programs and
/// crates are expected to.
fn tests_that_may_wait<'a>(file: &Path, text: &'a str) -> &'a str {
    let has = |part: &str| file.iter().any(|name| name == part);
    if has("tests") && !has("src") {
        return text;
    }
    let unit_tests = if file.ends_with("tests.rs") || has("tests") { Some(0) } else { text.find("#[cfg(test)]") };
    let tests = unit_tests.map_or("", |start| &text[start..]);
    if WAITS.iter().any(|wait| tests.contains(wait)) { tests } else { "" }
}

#[test]
#[limit]
fn every_test_that_may_wait_has_a_limit() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources: Vec<PathBuf> = Vec::new();
    for member in MEMBERS {
        for folder in ["src", "tests"] {
            files(&workspace.join(member).join(folder), "rs", &mut sources);
        }
    }
    let mut limited = 0;
    // The attribute itself cannot limit its own tests.
    for file in sources.iter().filter(|file| !file.starts_with(workspace.join("lock-macros/src"))) {
        let text = fs::read_to_string(file).unwrap();
        let mut lines = tests_that_may_wait(file, &text).lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line == "#[test]" || line.starts_with("#[tokio::test") {
                let mut attributes = lines.by_ref().take_while(|line| line.starts_with("#["));
                let found = attributes.any(|line| line == "#[limit]" || line.starts_with("#[limit("));
                assert!(found, "{}: a test has no #[limit] below its #[test]", file.display());
                limited += 1;
            }
        }
    }
    assert!(limited > 300, "only {limited} tests were found");
}

/// `scripts/run-tests.sh` names the test programs that run side by side.
#[test]
#[limit]
fn the_script_of_the_tests_names_every_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = fs::read_to_string(root.join("scripts/run-tests.sh")).unwrap();
    let named: Vec<&str> =
        script.split("--test ").skip(1).filter_map(|rest| rest.split(['"', ' ', '\n']).next()).collect();
    for member in MEMBERS {
        let Ok(entries) = fs::read_dir(root.join(member).join("tests")) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let is_program = path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").exists();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(
                !is_program || named.contains(&name),
                "scripts/run-tests.sh does not run --test {name} of {member}"
            );
        }
    }
}
