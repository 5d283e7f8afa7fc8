//! Whether writes came in the order of the holds that they belong to.

use std::collections::HashMap;

use crate::check::Row;
use crate::record::Record;

/// Counts all writes, those that arrived after a write of a later hold of their key, and how many of these were admitted.
pub(super) fn count(row: &Row) -> (usize, usize, usize) {
    let granted: HashMap<_, _> =
        row.holds.iter().map(|hold| ((hold.grant.process, hold.grant.hold), hold.grant.at)).collect();
    let mut writes: Vec<_> = row
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Write { process, hold, key, token, at, accepted } => {
                // A hold without a token is ordered by the time of its grant.
                let order = token.or_else(|| granted.get(&(*process, *hold)).copied()).unwrap_or_default();
                Some((*at, key, order, *accepted))
            }
            _ => None,
        })
        .collect();
    writes.sort_by_key(|(at, ..)| *at);
    let (mut latest, mut arrived, mut passed) = (HashMap::<&String, u64>::new(), 0, 0);
    for (_, key, order, accepted) in &writes {
        let latest = latest.entry(key).or_default();
        if order < latest {
            arrived += 1;
            passed += usize::from(*accepted);
        }
        *latest = (*latest).max(*order);
    }
    (writes.len(), arrived, passed)
}
