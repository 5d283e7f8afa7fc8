//! A counter-example as a numbered story: each step, and what the step changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::spec::value::parts;

/// One state of a counter-example: the action that led there, and the variables by name.
pub(super) struct Moment {
    pub(super) action: String,
    values: BTreeMap<String, String>,
}

/// Variables that a story leaves out because only the checker needs them.
const UNTOLD: [&str; 15] = [
    "after",
    "asks",
    "open",
    "torn",
    "until",
    "stamp",
    "confirmed",
    "turn",
    "first",
    "round",
    "calm",
    "replica",
    "seen",
    "faults",
    "sent",
];

/// Reads the states that TLC prints.
pub(super) fn read(text: &str) -> Vec<Moment> {
    let (mut moments, mut lines) = (Vec::new(), Vec::new());
    let mut action = None;
    for line in text.lines() {
        let next = line.strip_prefix("State ").and_then(|rest| rest.split_once(": <"));
        if next.is_some() || line.is_empty() {
            if let Some(action) = action.take() {
                moments.push(Moment { action, values: values(&std::mem::take(&mut lines)) });
            }
            action = next.map(|(_, rest)| rest.split([' ', '>', '(']).next().unwrap_or_default().to_owned());
        } else if action.is_some() {
            lines.push(line.trim());
        }
    }
    moments
}

/// The values of a state. A long value spans several lines.
fn values(lines: &[&str]) -> BTreeMap<String, String> {
    let state = format!("\n{}", lines.join("\n"));
    let variables = state.split("\n/\\ ").filter_map(|variable| variable.split_once(" = "));
    variables.flat_map(|(name, value)| parts(name.trim(), &value.replace('\n', " "))).collect()
}

/// Writes the story: each step with its number, and the values that it changed.
pub(super) fn tell(trace: &[Moment]) -> String {
    let mut story = String::new();
    for (number, moment) in trace.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &trace[before].values);
        let told = moment.values.iter().filter(|(name, value)| {
            before.is_some_and(|before| before.get(*name) != Some(*value))
                && !name.split('.').any(|part| UNTOLD.contains(&part))
        });
        let told: Vec<String> = told.map(|(name, value)| format!("{name} {}", plain(value))).collect();
        let action = if number == 0 { "Nothing yet" } else { &moment.action };
        let _ = writeln!(story, "{number:>4}. {action:<14} {}", told.join("; "));
    }
    story
}

/// A value without TLC's own syntax.
fn plain(value: &str) -> String {
    let signs = [
        (" |-> ", " "),
        ("<<", "("),
        (">>", ")"),
        ("\"", ""),
        ("[ ", "["),
        (" ]", "]"),
        ("( ", "("),
        (" )", ")"),
        ("{ ", "{"),
        (" }", "}"),
    ];
    signs.iter().fold(value.to_owned(), |text, (sign, plain)| text.replace(sign, plain))
}
