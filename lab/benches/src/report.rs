//! The table, and the same data as JSON.

use std::io::Write;

use serde::Serialize;

use crate::Result;
use crate::bench::{Bench, Scale};
use crate::outcome::{Bound, Outcome, Target};
use crate::process::fleet::Sample;
use crate::race::{RAW, RSLOCK, Race};
use crate::row::Row;

/// The complete results of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    scale: Scale,
    rounds: u32,
    warm_up_ms: u64,
    window_ms: u64,
    machine: Machine,
    contestants: [(&'static str, &'static str); 3],
    server: String,
    rows: Vec<Measured>,
}

#[derive(Debug, Serialize)]
struct Machine {
    processor: Option<String>,
    processors: usize,
    system: &'static str,
}

#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    about: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Report {
    /// Prints the header.
    pub(crate) fn begin(bench: &mut Bench) -> Result<Self> {
        let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let report = Self {
            version: env!("CARGO_PKG_VERSION"),
            scale: bench.scale,
            rounds: bench.rounds,
            warm_up_ms: millis(bench.pace.warm_up),
            window_ms: millis(bench.pace.window),
            machine: Machine {
                processor: processor(),
                processors: std::thread::available_parallelism().map_or(1, usize::from),
                system: std::env::consts::OS,
            },
            contestants: [("redis-rs", "1.8"), ("rslock", "0.10"), ("distkit", "0.7")],
            server: bench.server().version()?,
            rows: Vec::new(),
        };
        println!(
            "lock-bench {}: {} processors ({}), {}, {} rounds of {} ms after {} ms, median of rounds",
            report.version,
            report.machine.processors,
            report.machine.processor.as_deref().unwrap_or("unknown"),
            report.server,
            report.rounds,
            report.window_ms,
            report.warm_up_ms,
        );
        Ok(report)
    }

    /// Prints a row and keeps it.
    pub(crate) fn add(&mut self, row: &Row, outcome: Outcome) {
        println!("\n{} – {}", row.name, row.about);
        for table in &outcome.tables {
            print_race(table.about, &table.race);
        }
        for figure in &outcome.figures {
            println!("  {:<36}{:>12} {}", figure.name, number(figure.median), figure.unit);
        }
        for target in &outcome.targets {
            println!("  {}", sentence(target));
        }
        for (what, count) in outcome.faults.iter().filter(|(_, count)| **count > 0) {
            println!("  FAULT: {what}: {count}");
        }
        let _ = std::io::stdout().flush();
        self.rows.push(Measured { name: row.name, about: row.about, outcome });
    }

    /// Prints how many targets were met.
    ///
    /// # Errors
    ///
    /// Fails if an event happened that must never happen.
    pub(crate) fn finish(&self) -> Result<()> {
        let all = || self.rows.iter().flat_map(|row| &row.outcome.targets);
        println!("\n{} of {} targets met", all().filter(|target| target.met).count(), all().count());
        match self.rows.iter().flat_map(|row| row.outcome.faults.values()).sum::<u64>() {
            0 => Ok(()),
            faults => Err(format!("{faults} faults, see above: what may never happen did").into()),
        }
    }
}

fn sentence(target: &Target) -> String {
    let sign = match target.bound {
        Bound::AtLeast => "≥",
        Bound::AtMost => "≤",
    };
    let verdict = match (target.met, target.value) {
        (true, _) => "met",
        (false, Some(_)) => "NOT MET",
        (false, None) => "NOT MET, not measured",
    };
    let reach = number(Some(target.reach));
    format!("reach: {:<58} {sign} {reach:<8} {:>10}  {verdict}", target.what, number(target.value))
}

/// One column of the table: its heading and its cells.
type Column = (&'static str, fn(&Sample) -> f64);

fn print_race(about: &str, race: &Race) {
    let counts: fn(&Sample) -> f64 = if race.shared_key { |s| s.found.changes_per_second } else { |s| s.found.rate };
    let has = |name: &str| race.lanes.iter().any(|lane| lane.name == name);
    let mut heads = vec![String::new(), "rate/s".to_owned()];
    if race.shared_key {
        heads.push("changes/s".to_owned());
    }
    let rivals: Vec<&str> = [RAW, RSLOCK].into_iter().filter(|name| has(name)).collect();
    heads.extend(rivals.iter().map(|name| format!("× {name}")));
    let mut columns: Vec<Column> = vec![
        ("p50 ms", |s| s.found.wait_p50_us / 1e3),
        ("p99 ms", |s| s.found.wait_p99_us / 1e3),
        ("max ms", |s| s.found.wait_max_us / 1e3),
        ("client µs", |s| s.client_us.unwrap_or(f64::NAN)),
        ("server µs", |s| s.server_us.unwrap_or(f64::NAN)),
    ];
    if race.shared_key {
        columns.push(("proc share", |s| s.found.process_share.unwrap_or(f64::NAN)));
        columns.push(("task share", |s| s.found.task_share));
        columns.push(("open", |s| s.found.open_waits as f64));
        columns.push(("hold µs", |s| s.found.hold_mean_us));
    }
    columns.push(("starved", |s| s.found.starved as f64));
    heads.extend(columns.iter().map(|(head, _)| (*head).to_owned()));
    let counted = race.lanes.iter().any(|lane| lane.instructions.is_some());
    if counted {
        heads.extend(["client ins", "server ins"].map(str::to_owned));
    }
    if !about.is_empty() {
        println!("  {about}");
    }
    print_line(&heads);
    for lane in &race.lanes {
        let mut cells = vec![lane.name.to_owned(), number(race.median(lane.name, |s| s.found.rate))];
        if race.shared_key {
            cells.push(number(race.median(lane.name, |s| s.found.changes_per_second)));
        }
        cells.extend(rivals.iter().map(|rival| number(race.ratio(lane.name, rival, counts))));
        cells.extend(columns.iter().map(|(_, figure)| number(race.median(lane.name, figure))));
        if counted {
            cells.push(number(lane.instructions.map(|count| count.client)));
            cells.push(number(lane.instructions.map(|count| count.server)));
        }
        print_line(&cells);
        if let Some(error) = lane.rounds.iter().find_map(|sample| sample.error.as_ref()) {
            println!("    with errors, such as: {error}");
        }
    }
}

fn print_line(cells: &[String]) {
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        if index == 0 {
            line.push_str(&format!("  {cell:<26}"));
        } else {
            line.push_str(&format!("{cell:>11}"));
        }
    }
    println!("{}", line.trim_end());
}

/// Formats a value with three significant digits. Whole numbers stay whole.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if !value.is_finite() => "–".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value.abs() >= 1000.0 => thousands(value),
        Some(value) if value.abs() >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 0.1 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

/// Formats 1234567 as 1,234,567.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers() {
        let shown = [0.0, 0.0167, 0.5, 12.34, 7.0, 123.4, 1234.5, 1_234_567.0].map(|value| number(Some(value)));
        assert_eq!(shown, ["0", "0.0167", "0.50", "12.3", "7", "123", "1,234", "1,234,567"]);
        assert_eq!((number(None), number(Some(f64::NAN))), ("–".to_owned(), "–".to_owned()));
    }
}
