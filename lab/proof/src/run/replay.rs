//! Repeats a run from its folder alone, and says what differs.

use std::path::Path;

use crate::kept::Kept;
use crate::record::Record;
use crate::run;

/// Returns whether the same faults struck in the same order and everything was as expected.
pub(crate) fn replay(folder: &Path, out: &Path) -> Result<bool, String> {
    let kept = Kept::read(folder)?;
    let before = faults(&folder.join("history.jsonl"))?;
    let (again, right) = run::run(kept.options.clone(), out, Some(&kept))?;
    let after = faults(&again.join("history.jsonl"))?;
    let differ = before.iter().zip(&after).position(|(before, after)| before != after);
    match differ {
        Some(at) => println!("the fault number {} differs: {} then, {} now", at + 1, before[at], after[at]),
        None if before.len() != after.len() => println!("{} faults then, {} now", before.len(), after.len()),
        None => println!("the same {} faults in the same order", before.len()),
    }
    Ok(right && before == after)
}

fn faults(history: &Path) -> Result<Vec<String>, String> {
    let text =
        std::fs::read_to_string(history).map_err(|error| format!("cannot read {}: {error}", history.display()))?;
    let fault = |line: &str| match serde_json::from_str(line) {
        Ok(Record::Fault { what, .. }) => Some(what),
        Ok(Record::Run { row, .. }) => Some(row),
        _ => None,
    };
    Ok(text.lines().filter_map(fault).collect())
}
