//! Checks the specification with TLC: each claim, each claim without each of its rules, and each broken assumption.

mod config;
mod reach;
mod story;
mod tlc;
mod trace;
mod value;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::spec::config::{Config, Row, Wanted};
use crate::spec::tlc::{Outcome, Report, Tlc, Until, places};

/// How long TLC may check one row at greater bounds. The weekly job has time for all of them.
const LONGEST: Duration = Duration::from_secs(25 * 60);

/// How many states of each row TLC checks if only the actions are counted.
const GLANCE: u64 = 30_000;

/// Checks the named rows, or all, each until it has `states` distinct states. Returns whether every result is as it must be.
pub(crate) fn run(names: &[String], longer: bool, states: Option<u64>) -> Result<bool, String> {
    if let Some((_, run)) = names.split_first().filter(|(name, _)| *name == "trace") {
        return trace::run(run);
    }
    let (glance, names) = match names.split_first() {
        Some((name, rest)) if name == "actions" => (true, rest),
        _ => (false, names),
    };
    let (spec, target) = places();
    let configs = named(config::read_all(&spec)?, names)?;
    let whole = names.is_empty();
    let tlc = tlc::find(whole || glance)?;
    let rows = configs.iter().flat_map(|config| config.rows(longer));
    let rows: Vec<Row> = rows.filter(|row| !glance || row.rule.is_none()).collect();
    let until = match states {
        Some(_) => Until { time: None, states },
        None if glance => Until { time: None, states: Some(GLANCE) },
        None => Until { time: longer.then_some(LONGEST), states: None },
    };
    let reports = check_all(&tlc, &spec, &target, &rows, until)?;
    for (row, report) in rows.iter().zip(&reports).filter(|_| !glance) {
        if let Outcome::CounterExample { what, trace } = &report.outcome {
            println!("\n{}: {what} does not hold. {} steps:\n", row.title(), trace.len().saturating_sub(1));
            print!("{}", story::tell(trace));
        }
    }
    println!("\n{}", table(&rows, &reports));
    let happened: Vec<_> = reports.iter().map(|report| &report.happened).collect();
    let (counted, mut never) = reach::table(&spec, &configs, &rows, &happened)?;
    if whole || glance {
        println!("\n{counted}");
    }
    // A part of the rows need not reach every action.
    never.retain(|_| whole);
    for action in &never {
        println!("never happened in any claim: {action}");
    }
    let wrong = rows.iter().zip(&reports).filter(|(row, report)| !row.is_as_wanted(&report.outcome)).count();
    println!("figure: rows of the specification that are as they must be: {} of {}", rows.len() - wrong, rows.len());
    Ok(wrong == 0 && never.is_empty())
}

/// Checks two rows at a time: a short row spends most of its time on starting TLC.
fn check_all(tlc: &Tlc, spec: &Path, target: &Path, rows: &[Row], until: Until) -> Result<Vec<Report>, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(row) = rows.get(number) else { return Ok(done) };
            let place = format!("{} of {}: {}", number + 1, rows.len(), row.title());
            done.push((number, tlc.check(spec, target, row, &place, until)?));
        }
    };
    let mut done = thread::scope(|scope| {
        let (one, other) = (scope.spawn(work), scope.spawn(work));
        let ended = [one, other].map(|worker| worker.join().unwrap_or_else(|_| Err("a look at a row panicked".into())));
        ended
            .into_iter()
            .collect::<Result<Vec<Vec<(usize, Report)>>, String>>()
            .map(|done| done.into_iter().flatten().collect::<Vec<_>>())
    })?;
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, report)| report).collect())
}

fn named(configs: Vec<Config>, names: &[String]) -> Result<Vec<Config>, String> {
    let is = |config: &Config, name: &String| config.name.starts_with(name) || config.short() == name;
    if let Some(name) = names.iter().find(|name| !configs.iter().any(|config| is(config, name))) {
        let all: Vec<&str> = configs.iter().map(|config| &*config.name).collect();
        return Err(format!("the specification has no `{name}`; it has {}", all.join(", ")));
    }
    Ok(configs.into_iter().filter(|config| names.is_empty() || names.iter().any(|name| is(config, name))).collect())
}

/// A table in the form of README.md.
fn table(rows: &[Row], reports: &[Report]) -> String {
    let mut lines = vec![["claim", "bounds", "states", "time", "verdict"].map(str::to_owned)];
    for (row, report) in rows.iter().zip(reports) {
        let verdict = match (&report.outcome, row.is_as_wanted(&report.outcome)) {
            (Outcome::Holds, true) => "holds".to_owned(),
            (Outcome::Cut, true) => "was not looked at to its end; nothing wrong so far".to_owned(),
            (Outcome::Cut, false) => "DID NOT FAIL SO FAR, AND MUST".to_owned(),
            (Outcome::CounterExample { trace, .. }, true) => {
                format!("fails as it must, in {} steps", trace.len().saturating_sub(1))
            }
            (Outcome::Holds, false) => "HOLDS, AND MUST NOT".to_owned(),
            (Outcome::CounterExample { what, .. }, false) => format!("FAILS: {what}"),
        };
        lines.push([row.title(), row.bounds(), report.states.clone(), report.time.clone(), verdict]);
    }
    lines.insert(1, ["---"; 5].map(str::to_owned));
    lines.iter().map(|line| format!("| {} |", line.join(" | "))).collect::<Vec<_>>().join("\n")
}

impl Row {
    fn is_as_wanted(&self, outcome: &Outcome) -> bool {
        matches!(
            (&self.wanted, outcome),
            (Wanted::Holds, Outcome::Holds | Outcome::Cut) | (Wanted::CounterExample, Outcome::CounterExample { .. })
        )
    }
}
