//! Whether jobs ran as often as they may.

use std::collections::BTreeMap;

use crate::check::Row;
use crate::record::{Record, Told};

/// When a run was asked for, when it began or its end was reported, and for how long the job may not begin again.
type Run = (u64, u64, Option<u64>);

/// Counts the runs, the runs that were one too many, and how many of these followed a run that servers forgot.
pub(super) fn count(row: &Row) -> (usize, usize, usize) {
    let mut jobs = BTreeMap::<&str, (Vec<Run>, Vec<Run>)>::new();
    for record in &row.records {
        if let Record::Job { what, name, within, asked, at } = record {
            let job = jobs.entry(name).or_default();
            let runs = if *what == Told::Began { &mut job.0 } else { &mut job.1 };
            runs.push((*asked, *at, *within));
        }
    }
    let (mut runs, mut again, mut excused) = (0, 0, 0);
    for (begun, told) in jobs.values_mut() {
        runs += begun.len();
        begun.sort_by_key(|(asked, at, _)| (*at, *asked));
        let mut wrong = |from: u64, until: u64| {
            again += 1;
            excused += usize::from(row.forgot_between(from, until));
        };
        // A job that is remembered from its start begins once within its time.
        for pair in begun.windows(2) {
            let ((before, ..), (_, at, within)) = (pair[0], pair[1]);
            if within.is_some_and(|within| at.saturating_sub(before) < within) {
                wrong(before, at);
            }
        }
        // A job that is remembered from its end does not run again after the end was reported to the store.
        let Some(end) = told.iter().map(|(_, at, _)| *at).min() else { continue };
        let first = begun.iter().map(|(asked, ..)| *asked).min().unwrap_or_default();
        for (_, at, _) in begun.iter().filter(|(asked, ..)| *asked > end) {
            wrong(first, *at);
        }
    }
    (runs, again, excused)
}
