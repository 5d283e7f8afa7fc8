//! Has TLC look at the specification: each claim, each claim without each of its rules, each broken assumption.

mod config;
mod story;
mod tlc;
mod value;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::spec::config::{Config, Row, Wanted};
use crate::spec::tlc::{Outcome, Report};

/// Where the specification lies, and where what TLC writes goes.
fn places() -> (PathBuf, PathBuf) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    (home.join("spec"), home.with_file_name("target").join("proof/spec"))
}

/// Checks what is named, or all. Returns whether everything is as it must be.
pub(crate) fn run(name: Option<&str>, longer: bool) -> Result<bool, String> {
    let (spec, target) = places();
    let configs = named(config::read_all(&spec)?, name)?;
    let tlc = tlc::find()?;
    let rows: Vec<Row> = configs.iter().flat_map(|config| config.rows(longer)).collect();
    let (mut reports, mut seen) = (Vec::new(), BTreeSet::new());
    for (number, row) in rows.iter().enumerate() {
        let place = format!("{} of {}: {}", number + 1, rows.len(), row.title());
        let report = tlc.check(&spec, &target, row, &place)?;
        if let Outcome::CounterExample { what, trace } = &report.outcome {
            println!("\n{}: {what} does not hold. {} steps:\n", row.title(), trace.len().saturating_sub(1));
            print!("{}", story::tell(trace));
        }
        seen.extend(report.happened.iter().map(|action| format!("{}: {action}", row.module)));
        reports.push(report);
    }
    println!("\n{}", table(&rows, &reports));
    let missing = if name.is_none() { never_happened(&spec, &configs, &seen)? } else { Vec::new() };
    for action in &missing {
        println!("never happened in any claim: {action}");
    }
    let wrong = rows.iter().zip(&reports).filter(|(row, report)| !row.is_as_wanted(&report.outcome)).count();
    println!("figure: rows of the specification that are as they must be: {} of {}", rows.len() - wrong, rows.len());
    Ok(wrong == 0 && missing.is_empty())
}

fn named(configs: Vec<Config>, name: Option<&str>) -> Result<Vec<Config>, String> {
    let Some(name) = name else { return Ok(configs) };
    let names: Vec<String> = configs.iter().map(|config| config.name.clone()).collect();
    let chosen: Vec<Config> = configs
        .into_iter()
        .filter(|config| config.name == name || config.module == name || config.short() == name)
        .collect();
    if chosen.is_empty() {
        return Err(format!("the specification has no `{name}`; it has {}", names.join(", ")));
    }
    Ok(chosen)
}

/// The actions of a module that happened in none of its claims.
fn never_happened(spec: &Path, configs: &[Config], seen: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let modules: BTreeSet<&str> = configs.iter().map(|config| config.module.as_str()).collect();
    let mut missing = Vec::new();
    for module in modules {
        let text = config::read(&spec.join(format!("{module}.tla")))?;
        let actions = config::actions(&text).into_iter().map(|action| format!("{module}: {action}"));
        missing.extend(actions.filter(|action| !seen.contains(action)));
    }
    Ok(missing)
}

fn table(rows: &[Row], reports: &[Report]) -> String {
    let mut lines = vec![["claim", "bounds", "states", "time", "verdict"].map(str::to_owned)];
    for (row, report) in rows.iter().zip(reports) {
        let verdict = match (&report.outcome, row.is_as_wanted(&report.outcome)) {
            (Outcome::Holds, true) => "holds".to_owned(),
            (Outcome::CounterExample { trace, .. }, true) => {
                format!("fails as it must, in {} steps", trace.len().saturating_sub(1))
            }
            (Outcome::Holds, false) => "HOLDS, AND MUST NOT".to_owned(),
            (Outcome::CounterExample { what, .. }, false) => format!("FAILS: {what}"),
        };
        lines.push([row.title(), row.bounds(), report.states.clone(), report.time.clone(), verdict]);
    }
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let pad = |line: &[String; 5]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(pad).collect::<Vec<_>>().join("\n")
}

impl Row {
    fn is_as_wanted(&self, outcome: &Outcome) -> bool {
        matches!(
            (&self.wanted, outcome),
            (Wanted::Holds, Outcome::Holds) | (Wanted::CounterExample, Outcome::CounterExample { .. })
        )
    }
}
