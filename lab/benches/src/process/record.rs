//! The history of one run: which task was inside, and when. Every figure and every check is computed from it.

use std::collections::HashMap;
use std::io::{Read, Write};

use serde::Serialize;

use crate::Result;
use crate::stats::{percentile, ratio};

/// One acquisition. Times are nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// When the acquire was called.
    pub(crate) start: u64,
    /// When the acquire returned. From here on the holder may assume that it is alone.
    pub(crate) enter: u64,
    /// The time right before the release was called. The exclusion lasts up to here.
    pub(crate) exit: u64,
    /// The fencing token, 0 if there is none.
    pub(crate) token: u64,
    pub(crate) key: u32,
    /// The task, numbered across all processes.
    pub(crate) task: u32,
    /// How many tasks may be inside at once, according to this one.
    pub(crate) inside: u32,
}

const BYTES: usize = 44;

/// Writes records for [`read`].
pub(crate) fn write(mut to: impl Write, records: &[Record]) -> Result<()> {
    for record in records {
        for word in [record.start, record.enter, record.exit, record.token] {
            to.write_all(&word.to_le_bytes())?;
        }
        for half in [record.key, record.task, record.inside] {
            to.write_all(&half.to_le_bytes())?;
        }
    }
    Ok(to.flush()?)
}

/// Reads this many records.
pub(crate) fn read(mut from: impl Read, count: usize) -> Result<Vec<Record>> {
    let mut records = Vec::with_capacity(count);
    let mut bytes = [0; BYTES];
    for _ in 0..count {
        from.read_exact(&mut bytes)?;
        let (words, halves) = bytes.split_at(32);
        let word = |index: usize| words[index * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let half = |index: usize| halves[index * 4..].first_chunk().map_or(0, |half| u32::from_le_bytes(*half));
        let (start, enter, exit, token) = (word(0), word(1), word(2), word(3));
        records.push(Record { start, enter, exit, token, key: half(0), task: half(1), inside: half(2) });
    }
    Ok(records)
}

/// The window of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The number of tasks in all processes.
    pub(crate) tasks: u32,
    /// The number of tasks in one process.
    pub(crate) tasks_per_process: u32,
    /// How long a command and its reply take, ns.
    pub(crate) round_trip: u64,
}

/// The results of a history.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Findings {
    pub(crate) acquisitions: u64,
    pub(crate) rate: f64,
    pub(crate) wait_p50_us: f64,
    pub(crate) wait_p99_us: f64,
    pub(crate) wait_max_us: f64,
    /// How many waits had not ended at the end of the window. The figures above include them.
    pub(crate) open_waits: u64,
    /// How many acquisitions per second followed one by another task. Only meaningful for a single key.
    pub(crate) changes_per_second: f64,
    pub(crate) changes_per_acquisition: f64,
    /// Acquisitions of the process with the fewest, divided by those of the process with the most.
    pub(crate) process_share: Option<f64>,
    /// The same for tasks.
    pub(crate) task_share: f64,
    /// How many tasks never acquired.
    pub(crate) starved: u64,
    pub(crate) hold_mean_us: f64,
    /// The p99 wait of writers among readers, divided by the wait that their queue explains. That is twice the hold of
    /// each writer ahead and of the writer itself, plus three round trips.
    pub(crate) writer_wait_p99: Option<f64>,
    /// How often a task entered while the tasks inside excluded it.
    pub(crate) violations: u64,
    /// How often a task entered with a token that was not greater than an earlier one, or smaller if it shares the lock.
    pub(crate) inversions: u64,
}

/// Computes the figures of a history. `open` has the waits that had not ended, in nanoseconds.
pub(crate) fn examine(mut records: Vec<Record>, open: &[u64], window: Window) -> Findings {
    let mut found = Findings::default();
    check(&mut records, &mut found);
    records.retain(|record| (window.from..window.to).contains(&record.enter));
    let count = u64::try_from(records.len()).unwrap_or(0);
    let seconds = (window.to - window.from) as f64 / 1e9;
    found.acquisitions = count;
    found.rate = count as f64 / seconds;

    let mut waits: Vec<u64> = records.iter().map(|record| record.enter - record.start).collect();
    waits.extend_from_slice(open);
    waits.sort_unstable();
    found.open_waits = u64::try_from(open.len()).unwrap_or(0);
    found.wait_p50_us = percentile(&waits, 500) as f64 / 1e3;
    found.wait_p99_us = percentile(&waits, 990) as f64 / 1e3;
    found.wait_max_us = percentile(&waits, 1000) as f64 / 1e3;

    let changes = records.windows(2).filter(|pair| pair[0].task != pair[1].task).count() as f64;
    found.changes_per_second = changes / seconds;
    found.changes_per_acquisition = ratio(changes, count.saturating_sub(1) as f64).unwrap_or(0.0);
    let held: u64 = records.iter().map(|record| record.exit.saturating_sub(record.enter)).sum();
    found.hold_mean_us = ratio(held as f64 / 1e3, count as f64).unwrap_or(0.0);
    found.writer_wait_p99 = writer_wait(&records, found.hold_mean_us * 1e3, window.round_trip);

    let by_task = counts(&records, window.tasks, |record| record.task);
    found.task_share = share(&by_task);
    found.starved = u64::try_from(by_task.iter().filter(|count| **count == 0).count()).unwrap_or(0);
    let processes = window.tasks / window.tasks_per_process.max(1);
    if processes > 1 {
        found.process_share =
            Some(share(&counts(&records, processes, |record| record.task / window.tasks_per_process)));
    }
    found
}

/// Checks exclusion and the order of tokens for each key. It covers the whole history, with warm-up and end, and leaves
/// the records in the order of entry.
fn check(records: &mut [Record], found: &mut Findings) {
    records.sort_unstable_by_key(|record| record.enter);
    let mut last: HashMap<u32, (Vec<(u64, u32)>, u64)> = HashMap::new();
    for record in records.iter() {
        let (inside, newest) = last.entry(record.key).or_default();
        inside.retain(|(exit, _)| *exit > record.enter);
        let most = inside.iter().map(|(_, most)| *most).fold(record.inside, u32::min);
        found.violations += u64::from(inside.len() >= usize::try_from(most).unwrap_or(usize::MAX));
        // Holders that share a lock have the same token.
        let known = *newest + u64::from(record.inside == 1);
        found.inversions += u64::from(record.token != 0 && record.token < known);
        inside.push((record.exit, record.inside));
        *newest = record.token.max(*newest);
    }
}

/// Compares the waits of writers among readers with the waits that their queue explains. The records are in the order of entry.
fn writer_wait(records: &[Record], hold: f64, round_trip: u64) -> Option<f64> {
    let writers: Vec<&Record> = records.iter().filter(|record| record.inside == 1).collect();
    if writers.len() == records.len() {
        return None;
    }
    let of_bound = |(place, writer): (usize, &&Record)| {
        let ahead = writers[..place].iter().rev().take_while(|before| before.enter > writer.start).count();
        let bound = 2.0 * (ahead + 1) as f64 * hold + 3.0 * round_trip as f64;
        (writer.enter - writer.start) as f64 / bound
    };
    let mut waits: Vec<f64> = writers.iter().enumerate().map(of_bound).collect();
    waits.sort_unstable_by(f64::total_cmp);
    let rank = (waits.len() * 99).div_ceil(100).max(1);
    waits.get(rank - 1).copied()
}

fn counts(records: &[Record], of: u32, who: impl Fn(&Record) -> u32) -> Vec<u64> {
    let mut counts = vec![0; usize::try_from(of).unwrap_or(0)];
    for record in records {
        if let Some(count) = usize::try_from(who(record)).ok().and_then(|index| counts.get_mut(index)) {
            *count += 1;
        }
    }
    counts
}

fn share(counts: &[u64]) -> f64 {
    let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    ratio(least as f64, most as f64).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Record, Window, examine, read, write};

    const WINDOW: Window = Window { from: 0, to: 1_000_000_000, tasks: 4, tasks_per_process: 2, round_trip: 0 };

    fn record(start: u64, enter: u64, exit: u64, token: u64, task: u32) -> Record {
        Record { start, enter, exit, token, key: 0, task, inside: 1 }
    }

    #[test]
    fn records_survive_the_pipe() {
        let records = vec![record(1, 2, 3, 4, 5), Record { key: 9, ..record(6, 7, 8, 9, 10) }];
        let mut bytes = Vec::new();
        write(&mut bytes, &records).unwrap();
        assert_eq!(read(bytes.as_slice(), 2).unwrap(), records);
    }

    #[test]
    fn a_clean_history() {
        let records =
            vec![record(0, 20_000, 30_000, 2, 2), record(0, 10_000, 20_000, 1, 0), record(0, 31_000, 32_000, 3, 2)];
        let found = examine(records, &[500_000], WINDOW);
        assert_eq!((found.violations, found.inversions, found.acquisitions, found.open_waits), (0, 0, 3, 1));
        assert_eq!((found.changes_per_second, found.changes_per_acquisition), (1.0, 0.5));
        assert_eq!((found.process_share, found.task_share, found.starved), (Some(0.5), 0.0, 2));
        assert_eq!((found.wait_p50_us, found.wait_max_us, found.hold_mean_us), (20.0, 500.0, 7.0));
    }

    #[test]
    fn two_inside_and_a_late_token_are_found() {
        let nested = examine(vec![record(0, 1, 9, 1, 0), record(0, 2, 3, 2, 1), record(0, 4, 5, 3, 2)], &[], WINDOW);
        assert_eq!((nested.violations, nested.inversions), (2, 0));
        let late = examine(vec![record(0, 1, 2, 5, 0), record(0, 3, 4, 5, 1), record(0, 5, 6, 4, 1)], &[], WINDOW);
        assert_eq!((late.violations, late.inversions), (0, 2));
    }

    #[test]
    fn who_shares_is_let_in_beside_others_and_no_writer_is() {
        let of = |inside, record| Record { inside, ..record };
        let two = [of(2, record(0, 1, 9, 1, 0)), of(2, record(0, 2, 9, 1, 1))];
        let clean = examine(two.to_vec(), &[], WINDOW);
        assert_eq!((clean.violations, clean.inversions, clean.writer_wait_p99), (0, 0, None));
        let third = examine([two.to_vec(), vec![of(2, record(0, 3, 9, 1, 2))]].concat(), &[], WINDOW);
        assert_eq!((third.violations, third.inversions), (1, 0));
        let writer = examine([two.to_vec(), vec![record(0, 3, 9, 1, 2)]].concat(), &[], WINDOW);
        assert_eq!((writer.violations, writer.inversions), (1, 1), "beside readers, with their token");
    }

    #[test]
    fn a_writer_may_wait_for_the_writers_ahead() {
        let reader = Record { inside: u32::MAX, ..record(0, 1_000, 2_000, 1, 0) };
        let waits = vec![reader, record(0, 2_000, 3_000, 2, 1), record(1_500, 5_500, 6_500, 3, 2)];
        let found = examine(waits, &[], WINDOW);
        assert_eq!(found.writer_wait_p99, Some(1.0), "one ahead and itself, each for 1 us and a batch");
    }
}
