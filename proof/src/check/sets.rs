//! Whether each element that was added to a set is in it.

use std::collections::{HashMap, HashSet};

use crate::check::Row;
use crate::record::Record;

/// Counts the elements that were added, and those of them that the set, as it was read last, lacks. What was added after that, or to a
/// set that nobody has read, is not known to be in it.
pub(super) fn count(row: &Row) -> (usize, usize) {
    let mut last = HashMap::<&str, (u64, HashSet<u64>)>::new();
    for record in &row.records {
        let Record::Set { key, elements, at } = record else { continue };
        if last.get(&**key).is_none_or(|(before, _)| before <= at) {
            last.insert(key, (*at, elements.iter().copied().collect()));
        }
    }
    let (mut added, mut lost) = (0, 0);
    for record in &row.records {
        let Record::Add { key, element, at, .. } = record else { continue };
        added += 1;
        let is_there = last.get(&**key).is_some_and(|(read, elements)| at < read && elements.contains(element));
        lost += usize::from(!is_there);
    }
    (added, lost)
}

/// Leaves out what was added after the last look at its set, in a row that goes on.
pub(super) fn leave_out_the_unread(records: &mut Vec<Record>) {
    let mut read = HashMap::<String, u64>::new();
    for record in &*records {
        if let Record::Set { key, at, .. } = record {
            let last = read.entry(key.clone()).or_default();
            *last = (*last).max(*at);
        }
    }
    records.retain(|record| match record {
        Record::Add { key, at, .. } => read.get(key).is_some_and(|read| at < read),
        _ => true,
    });
}
