//! A copy of the committed code in which bugs are planted, and the results of tests and runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::mutants::patch::Judge;
use crate::mutants::{Faults, logs};

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Silent,
    /// The violations that were found, or the tests that failed.
    Noticed(String),
    /// The code does not compile, or no test ran.
    Broken(String),
}

/// A git worktree, removed on drop.
pub(super) struct Tree {
    repository: PathBuf,
    place: PathBuf,
    build: PathBuf,
}

impl Tree {
    pub(super) fn of_head(repository: &Path) -> Result<Self, String> {
        // The builds need a folder of their own. Otherwise Cargo would take the build of a bug for newer than the sound code.
        let (place, build) = (logs().join("tree"), logs().join("build"));
        fs::create_dir_all(logs()).map_err(|error| format!("cannot write {}: {error}", logs().display()))?;
        let tree = Self { repository: repository.to_owned(), place, build };
        tree.remove();
        git(repository, &["worktree", "add", "--quiet", "--detach", &tree.place.display().to_string(), "HEAD"])?;
        Ok(tree)
    }

    /// Removes the tree of an earlier run that was killed.
    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.place);
        let _ = git(&self.repository, &["worktree", "prune"]);
    }

    pub(super) fn apply(&self, patch: &Path) -> Result<(), String> {
        git(&self.place, &["apply", &patch.display().to_string()])
    }

    pub(super) fn restore(&self) -> Result<(), String> {
        git(&self.place, &["checkout", "--quiet", "."])
    }

    pub(super) fn run(&self, judge: &Judge, faults: &Faults<'_>, name: &str) -> Result<Ended, String> {
        let cargo = |words: &str| {
            let mut command = Command::new("cargo");
            command.current_dir(&self.place).env("CARGO_TARGET_DIR", &self.build);
            command.args(words.split_whitespace());
            command
        };
        let (output, said) = match judge {
            Judge::Test(words) => ended(cargo(&format!("test --locked --no-fail-fast {words}")))?,
            Judge::Run(words) => {
                let (built, said) =
                    ended(cargo("build --locked --quiet --manifest-path lab/Cargo.toml -p lock-proof"))?;
                if !built.status.success() {
                    return Ok(Ended::Broken(compiles(&said)));
                }
                // Words in quotes may contain blanks, so a shell splits them.
                let program = self.build.join("debug/lock-proof");
                let line =
                    format!("exec '{}' {words} --minutes {} --seed {}", program.display(), faults.minutes, faults.seed);
                let mut shell = Command::new("sh");
                shell.args(["-c", &line]).current_dir(&self.place);
                ended(shell)?
            }
        };
        let log = logs().join(format!("{name}.log"));
        fs::write(&log, &said).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        Ok(match judge {
            Judge::Test(_) => of_tests(output.status.success(), &said),
            Judge::Run(_) => of_run(output.status.code(), &said),
        })
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.remove();
    }
}

fn git(within: &Path, words: &[&str]) -> Result<(), String> {
    let output = Command::new("git").arg("-C").arg(within).args(words).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    if output.status.success() { Ok(()) } else { Err(format!("git {}: {said}", words.join(" "))) }
}

fn ended(mut command: Command) -> Result<(Output, String), String> {
    let output = command.output().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
    Ok((output, said))
}

fn compiles(said: &str) -> String {
    let why = said.lines().find(|line| line.starts_with("error")).unwrap_or("it ended before");
    format!("does not compile: {why}")
}

/// The result of `cargo test`: the names of the tests that failed.
fn of_tests(passed: bool, said: &str) -> Ended {
    let failed = |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
    let mut failed: Vec<String> = said.lines().filter_map(failed).collect();
    failed.sort();
    let more = failed.len().saturating_sub(3);
    failed.truncate(3);
    if !failed.is_empty() {
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Ended::Noticed(failed.join(", ") + &more);
    }
    match (passed, said.lines().any(|line| line.starts_with("test ") && line.ends_with(" ... ok"))) {
        (true, true) => Ended::Silent,
        (true, false) => Ended::Broken("no test has such a name".to_owned()),
        (false, _) => Ended::Broken(compiles(said)),
    }
}

/// The result of this program. Code 1 is a verdict. Another code judges nothing, and neither does a row without any grant.
fn of_run(code: Option<i32>, said: &str) -> Ended {
    let verdict = |line: &str| serde_json::from_str::<Value>(line.strip_prefix("NOT AS EXPECTED: ")?).ok();
    let verdicts = said.lines().filter_map(verdict).filter(|verdict| verdict["sections"].as_u64() > Some(0));
    let tell = |verdict: Value| {
        let counts = verdict.as_object().into_iter().flatten();
        let counts = counts.filter(|(name, count)| *name != "sections" && count.as_u64() > Some(0));
        let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
        format!("{}: {}", verdict["row"].as_str().unwrap_or_default(), counts.join(", "))
    };
    let found: Vec<String> = verdicts.map(tell).collect();
    match code {
        Some(0) => Ended::Silent,
        Some(1) if !found.is_empty() => Ended::Noticed(found.join("; ")),
        code => Ended::Broken(format!("it ended with {code:?} and no verdict")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, of_run, of_tests};

    #[test]
    fn a_bug_is_noticed_by_tests_that_fail_and_not_by_code_that_does_not_compile() {
        let by = |names: &str| Ended::Noticed(names.to_owned());
        assert_eq!(of_tests(false, "test b ... FAILED\ntest a::c ... FAILED\ntest d ... ok\n"), by("a::c, b"));
        let five = ["e", "d", "c", "b", "a"].map(|name| format!("test {name} ... FAILED\n")).concat();
        assert_eq!(of_tests(false, &five), by("a, b, c and 2 more"));
        assert_eq!(of_tests(true, "running 1 test\ntest a ... ok\n"), Ended::Silent);
        for (passed, said) in [(false, "error[E0308]: mismatched types\n"), (false, ""), (true, "running 0 tests\n")] {
            assert!(matches!(of_tests(passed, said), Ended::Broken(_)), "{said:?}");
        }
    }

    #[test]
    fn a_verdict_counts_if_something_was_granted() {
        let line = |sections: u64| {
            format!("NOT AS EXPECTED: {{\"row\":\"ours\",\"sections\":{sections},\"overlaps\":2,\"left\":0}}")
        };
        assert_eq!(of_run(Some(1), &line(7)), Ended::Noticed("ours: 2 overlaps".to_owned()));
        assert!(matches!(of_run(Some(1), &line(0)), Ended::Broken(_)));
        assert!(matches!(of_run(Some(101), &line(7)), Ended::Broken(_)), "it panicked");
        assert_eq!(of_run(Some(0), ""), Ended::Silent);
    }
}
