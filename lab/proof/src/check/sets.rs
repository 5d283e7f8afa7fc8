//! Whether each element that was added to a set is in it.

use std::collections::{HashMap, HashSet};

use crate::check::Row;
use crate::record::Record;

/// Counts the added elements, and how many of them the set lacks when it was last read. An element that was added
/// later, or to a set that was never read, counts as missing.
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

/// In a row that is still running, leaves out elements that were added after the last read of their set.
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
