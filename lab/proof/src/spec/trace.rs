//! Checks that the log of a store is a behaviour of the specification, key by key.

mod callers;
mod log;
mod plant;
mod reader;
mod run;
mod steps;
mod tla;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::record::Record;
use crate::spec::story;
use crate::spec::tlc::{self, Outcome, Tlc, Until, places};
use crate::spec::trace::reader::Reader;
use crate::spec::trace::run::About;
use crate::spec::trace::steps::{Step, Times};

/// How far apart, in ms, two times of one step may be. A step reads the clock several times, and logs have whole milliseconds.
const SLACK: i64 = 6;
/// How many wrong logs are shown in full.
const TOLD: usize = 3;
/// How long one step of a server may take on a busy machine, ms.
const LONGEST: i64 = 250;

/// Checks the run in a folder, or makes a run of its own. Returns whether every log is a behaviour of the specification.
pub(super) fn run(words: &[String]) -> Result<bool, String> {
    let tlc = tlc::find(false)?;
    let (_, target) = places();
    let folder = match words {
        [] => run::record(&target)?,
        [folder] => PathBuf::from(folder),
        _ => return Err("`spec trace` takes the folder of one run".into()),
    };
    let (about, logs) = read(&folder)?;
    let check = Check { tlc: &tlc, folder: &folder, margin: (about.ttl_ms / 100).max(2), ttl: about.ttl_ms };
    let names: Vec<&String> = logs.keys().collect();
    let steps: Vec<&[Step]> = logs.values().map(Vec::as_slice).collect();
    let told: usize = steps.iter().map(|log| log.len()).sum();
    eprintln!("{} keys, {told} steps of their logs", steps.len());
    let allowed = check.all("whole", &steps)?;
    let mut wrong = 0;
    for ((name, log), reached) in names.iter().zip(&steps).zip(&allowed) {
        if *reached < log.len() {
            wrong += 1;
            println!("{name}: step {} of {} is not allowed", reached + 1, log.len());
            if wrong <= TOLD {
                println!("{}\n", check.story(log, *reached)?);
            }
        }
    }
    println!(
        "figure: logs of keys that are behaviours of the specification: {} of {}",
        steps.len() - wrong,
        steps.len()
    );
    let missed = plants(&check, &steps)?;
    Ok(wrong == 0 && missed == 0)
}

/// Plants steps that are not allowed. Returns how many of them the check did not find at their number.
fn plants(check: &Check<'_>, logs: &[&[Step]]) -> Result<usize, String> {
    let (planted, missing) = plant::all(logs);
    missing.iter().for_each(|what| println!("not planted, because no log has a place for it: {what}"));
    let altered: Vec<&[Step]> = planted.iter().map(|plant| plant.steps.as_slice()).collect();
    let reached = check.all("planted", &altered)?;
    let mut missed = 0;
    for (plant, reached) in planted.iter().zip(reached) {
        let found = reached == plant.number;
        missed += usize::from(!found);
        let verdict = if found { "found".to_owned() } else { format!("NOT FOUND: {reached} were allowed") };
        println!("planted as step {}: {}: {verdict}", plant.number + 1, plant.what);
    }
    println!("figure: planted steps that were found by their numbers: {} of {}", planted.len() - missed, planted.len());
    Ok(missed)
}

fn read(folder: &Path) -> Result<(About, BTreeMap<String, Vec<Step>>), String> {
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let about: About = serde_json::from_str(&text("trace.json")?).map_err(|error| format!("trace.json: {error}"))?;
    let mut reader = Reader::new(Times { ttl: about.ttl_ms, slack: SLACK, longest: LONGEST, ahead: about.ahead_ns });
    for group in log::read(&folder.join("store.aof"))? {
        reader.read(&group)?;
    }
    let history = text("history.jsonl")?;
    let lines = history.lines().filter(|line| !line.is_empty());
    let records: Result<Vec<Record>, _> = lines.map(serde_json::from_str).collect();
    Ok((about, reader.with_callers(&records.map_err(|error| format!("history.jsonl: {error}"))?)?))
}

/// The settings of a check.
struct Check<'a> {
    tlc: &'a Tlc,
    folder: &'a Path,
    ttl: i64,
    margin: i64,
}

impl Check<'_> {
    /// Returns for each log how many of its steps the specification allows.
    fn all(&self, name: &str, logs: &[&[Step]]) -> Result<Vec<usize>, String> {
        let report = self.tlc(name, logs, usize::MAX)?;
        if let Outcome::CounterExample { what, .. } = report.outcome {
            return Err(format!("a log is a behaviour of the specification in which {what} does not hold"));
        }
        let mut reached = vec![0; logs.len()];
        for line in report.said.lines().filter_map(|line| line.strip_prefix("<<\"step\", ")) {
            let mut numbers =
                line.trim_end_matches(">>").split(", ").map(|number| number.parse::<usize>().unwrap_or(0));
            if let (Some(log), Some(at)) = (numbers.next(), numbers.next())
                && let Some(most) = reached.get_mut(log.wrapping_sub(1))
            {
                *most = at.max(*most);
            }
        }
        Ok(reached)
    }

    /// Shows how the specification gets to the step after `reached`, and which step that is.
    fn story(&self, log: &[Step], reached: usize) -> Result<String, String> {
        let report = self.tlc("told", &[&log[..=reached]], reached + 1)?;
        let told = match report.outcome {
            Outcome::CounterExample { trace, .. } => story::tell(&trace),
            _ => String::new(),
        };
        let lines: Vec<&str> = told.lines().collect();
        let last = lines[lines.len().saturating_sub(12)..].join("\n");
        Ok(format!("{last}\nwhat the log says next: {:?}", log[reached]))
    }

    fn tlc(&self, name: &str, logs: &[&[Step]], number: usize) -> Result<tlc::Report, String> {
        let (spec, _) = places();
        let folder = self.folder.join(name);
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::copy(spec.join("Lock.tla"), folder.join("Lock.tla")).map_err(failed)?;
        fs::copy(spec.join("Trace.tla"), folder.join("Trace.tla")).map_err(failed)?;
        fs::write(folder.join("Steps.tla"), tla::module(logs)).map_err(failed)?;
        let told = number != usize::MAX;
        let number = if told { number } else { 0 };
        let config = tla::config(logs, self.ttl, SLACK, LONGEST, self.margin, if told { "NotReached" } else { "" });
        self.tlc.run(
            &folder,
            "Trace.tla",
            &format!("{config}  Number = {number}\n"),
            &format!("trace {name}"),
            Until::default(),
        )
    }
}
