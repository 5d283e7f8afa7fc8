//! The current holds and waits, and the counts, in shards.
//!
//! One lock guards the rows and the counts of a shard. Every event changes a row, and under the lock of that row a
//! count is a plain addition. Attempts are spread over the shards by number, so two threads rarely meet.
//!
//! The lock is a spin lock. Each lock of the application takes it three times, which is most of the cost here. A spin
//! lock is released without an atomic read-modify-write. A thread that does not get it soon sleeps.

use std::collections::HashMap;
use std::time::Duration;
use std::{hint, thread};

use foldhash::fast::RandomState;
use lock_core::{FencingToken, Holder, LockEvent, LockKey, Mode, OwnerId, Purpose};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::state::counts::{Counts, LATENESS_BUCKETS};
use crate::state::histogram::Histogram;
use crate::words::labels::{MODES, mode_of_event};
use crate::words::time::Moment;
use crate::words::trace::TraceId;

/// How often a thread retries before it sleeps: about a microsecond in all.
const SPINS: u32 = 50;
/// How long it sleeps. A scrape of many holds keeps a shard for about as long.
const NAP: Duration = Duration::from_micros(50);

/// All shards.
#[derive(Debug)]
pub(crate) struct Table(Box<[Padded]>);

/// Keeps shards on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(SpinMutex<Shard>);

/// A part of the attempts of this process.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// By number of the attempt.
    pub(crate) rows: HashMap<u64, Row, RandomState>,
    pub(crate) counts: PerName,
    pub(crate) lateness: Histogram<LATENESS_BUCKETS>,
    /// Before this time, no unreported hold becomes stuck.
    pub(crate) next_stuck: Moment,
}

/// The counts of one shard, by number of the lock name and by mode. Boxed because most names touch few shards and have
/// one mode.
#[derive(Debug, Default)]
pub(crate) struct PerName(Vec<Option<Box<Counts>>>);

/// One acquire between its first and its last event. Small, because a process may hold many locks.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The number of the lock name, which also identifies the store.
    family: u16,
    site: u16,
    /// An index in [`MODES`](crate::words::labels::MODES).
    mode: u8,
    pub(crate) role: Role,
    /// How many permits it takes.
    pub(crate) permits: u32,
    /// The trace of the caller. Boxed because few have one.
    pub(crate) trace: Option<Box<TraceId>>,
    pub(crate) key: LockKey,
    pub(crate) phase: Phase,
}

impl Row {
    /// Creates a row for an acquire, with these numbers of a lock name and a call site.
    pub(crate) fn new(event: &LockEvent<'_>, [family, site]: [usize; 2], phase: Phase) -> Self {
        let small = |number| u16::try_from(number).unwrap_or(u16::MAX);
        let mode = u8::try_from(mode_of_event(event)).unwrap_or(0);
        let permits = match event.mode {
            Mode::Shared { units, .. } if event.mode != Mode::READ => units,
            _ => 0,
        };
        let (role, key) = (Role::of(event.purpose), event.key.clone());
        let [family, site] = [family, site].map(small);
        Self { family, site, mode, role, permits, trace: None, key, phase }
    }

    /// Returns whether it is a candidate for a role. A candidate does not count as a waiter.
    pub(crate) fn stands(&self) -> bool {
        self.role == Role::Leader && matches!(self.phase, Phase::Waiting { .. })
    }

    /// Returns the trace of the caller, if it is known.
    pub(crate) fn trace(&self) -> Option<TraceId> {
        self.trace.as_deref().copied()
    }

    /// Returns the index of its mode.
    pub(crate) fn mode(&self) -> usize {
        usize::from(self.mode)
    }

    /// Returns the number of the lock name among those of all stores.
    pub(crate) fn family(&self) -> usize {
        usize::from(self.family)
    }

    /// Returns the number of the call site within the lock name.
    pub(crate) fn site(&self) -> usize {
        usize::from(self.site)
    }
}

/// The purpose of an acquire, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To exclude other callers.
    Lock,
    /// To lead. A waiter is then a candidate.
    Leader,
    /// To run a job.
    Job,
}

impl Role {
    pub(crate) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Leadership => Self::Leader,
            Purpose::Job { .. } => Self::Job,
            _ => Self::Lock,
        }
    }
}

/// The progress of an acquire.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The acquire waits for as long as the limit, for this holder if one was seen. Boxed because most acquires never see
    /// one.
    Waiting { since: Moment, limit: Option<Duration>, holder: Option<Box<Holder>> },
    /// The acquire holds the lock.
    Held(Hold),
}

/// The known data of a hold.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) since: Moment,
    /// When the lease ends unless it is renewed.
    pub(crate) expiry: Moment,
    pub(crate) token: FencingToken,
    pub(crate) owner: OwnerId,
    /// When it counts as stuck.
    pub(crate) stuck_at: Moment,
    /// Whether this hold is nested in another one, which has its own row and really holds the lock.
    pub(crate) reentrant: bool,
    /// Whether it was reported as stuck.
    pub(crate) reported: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let shards = (threads * 4).next_power_of_two().clamp(8, 64);
        Self(std::iter::repeat_with(Padded::default).take(shards).collect())
    }

    /// Locks the shard of an attempt.
    pub(crate) fn shard(&self, attempt: u64) -> SpinMutexGuard<'_, Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits choose the shard")]
        let index = attempt as usize & (self.0.len() - 1);
        lock(&self.0[index])
    }

    /// Locks one shard after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = SpinMutexGuard<'_, Shard>> {
        self.0.iter().map(lock)
    }

    /// Locks the shard with this number, if it exists.
    pub(crate) fn nth(&self, index: usize) -> Option<SpinMutexGuard<'_, Shard>> {
        self.0.get(index).map(lock)
    }
}

/// Locks a shard. The core catches an observer's panic. At worst a panic leaves a count incomplete, never a lock.
#[inline]
fn lock(shard: &Padded) -> SpinMutexGuard<'_, Shard> {
    shard.0.try_lock().unwrap_or_else(|| wait_for(shard))
}

/// Waits for a shard. First it spins for another event, which takes nanoseconds. Then it sleeps for a scrape, or for a
/// thread that lost its processor.
#[cold]
fn wait_for(shard: &Padded) -> SpinMutexGuard<'_, Shard> {
    let mut spins = SPINS;
    loop {
        if let Some(shard) = shard.0.try_lock() {
            return shard;
        }
        if spins > 0 {
            spins -= 1;
            hint::spin_loop();
        } else {
            #[expect(clippy::disallowed_methods, reason = "who has the shard waits for nothing but a processor")]
            thread::sleep(NAP);
        }
    }
}

impl PerName {
    /// Returns the counts of a lock name in a mode.
    pub(crate) fn of(&mut self, family: usize, mode: usize) -> &mut Counts {
        let at = family * MODES.len() + mode;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_default()
    }

    /// Returns the counts that exist, with the number of their lock name and the index of their mode.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize, &Counts)> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(at, counts)| Some((at / MODES.len(), at % MODES.len(), counts.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use lock_testing::limit;

    use super::{SPINS, Table, lock};

    #[test]
    #[limit]
    fn who_finds_a_shard_taken_waits_for_it() {
        let table = Table::new();
        let (tell, started) = mpsc::channel();
        thread::scope(|scope| {
            let taken = table.shard(0);
            let waiter = scope.spawn(|| {
                tell.send(()).unwrap();
                table.shard(0).counts.of(0, 0).unlocked_runs += 1;
            });
            started.recv().unwrap();
            // Far longer than it spins. It sleeps by now, or will find the shard free.
            for _ in 0..100 * SPINS {
                thread::yield_now();
            }
            assert!(!waiter.is_finished());
            drop(taken);
        });
        assert_eq!(table.shard(0).counts.of(0, 0).unlocked_runs, 1);
    }

    #[test]
    #[limit]
    fn a_panic_gives_its_shard_back() {
        let table = Table::new();
        let panics = thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _taken = table.shard(0);
                panic!("an observer's bug");
            });
            panicking.join()
        });
        assert!(panics.is_err());
        assert!(lock(&table.0[0]).rows.is_empty());
    }
}
