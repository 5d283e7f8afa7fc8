//! The uses of locks: permits, stripes, elections, jobs, and locks inside each other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{LockLabel, Mode, Purpose};

use crate::words::time::{Moment, nanos};

/// The number of recorded pairs of locks that are taken inside each other. Further pairs are left out.
const MAX_EDGES: usize = 256;

/// How often a call site may change its number of permits. If it changes more often, the number depends on the key.
const MAX_RESIZES: u64 = 3;

/// The uses of one lock name.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// The last requested number of stripes, 0 if it has none.
    stripes: AtomicU32,
    is_election: AtomicBool,
    is_job: AtomicBool,
    /// The longest period of a job, 0 if it has none.
    period: AtomicU64,
    last_success: AtomicU64,
}

impl Uses {
    /// Notes an acquire.
    pub(crate) fn note(&self, purpose: Purpose) {
        match purpose {
            Purpose::Stripe { of } => self.stripes.store(of, Ordering::Relaxed),
            Purpose::Leadership => self.is_election.store(true, Ordering::Relaxed),
            Purpose::Job { every } => {
                self.is_job.store(true, Ordering::Relaxed);
                raise(&self.period, nanos(every.unwrap_or_default()));
            }
            _ => {}
        }
    }

    /// Notes that a run of the job has just succeeded.
    pub(crate) fn succeeded(&self) {
        raise(&self.last_success, Moment::now().as_nanos());
    }

    pub(crate) fn stripes(&self) -> Option<u32> {
        Some(self.stripes.load(Ordering::Relaxed)).filter(|stripes| *stripes > 0)
    }

    pub(crate) fn is_election(&self) -> bool {
        self.is_election.load(Ordering::Relaxed)
    }

    /// Returns when a run last succeeded, if it is a job.
    pub(crate) fn last_success(&self) -> Option<Moment> {
        let is_job = self.is_job.load(Ordering::Relaxed);
        is_job.then(|| Moment::from_nanos(self.last_success.load(Ordering::Relaxed)))
    }

    pub(crate) fn period(&self) -> Option<Duration> {
        Some(self.period.load(Ordering::Relaxed)).filter(|period| *period > 0).map(Duration::from_nanos)
    }
}

/// The number of permits that one call site asks for. The upper half counts how often the number has changed.
#[derive(Debug, Default)]
pub(crate) struct Permits(AtomicU64);

impl Permits {
    /// Notes an acquire.
    pub(crate) fn note(&self, mode: Mode) {
        let Mode::Shared { limit, .. } = mode else { return };
        let known = self.0.load(Ordering::Relaxed);
        if mode == Mode::READ || known & u64::from(u32::MAX) == u64::from(limit) {
            return;
        }
        let changes = (known >> 32) + u64::from(known > 0);
        self.0.store(changes.min(MAX_RESIZES + 1) << 32 | u64::from(limit), Ordering::Relaxed);
    }

    /// Returns the number, if the call site has one.
    pub(crate) fn limit(&self) -> Option<u32> {
        let known = self.0.load(Ordering::Relaxed);
        let limit = u32::try_from(known & u64::from(u32::MAX)).unwrap_or(0);
        (limit > 0 && known >> 32 <= MAX_RESIZES).then_some(limit)
    }
}

/// The pairs of locks of which one is waited for while the other is held.
#[derive(Debug, Default)]
pub(crate) struct Edges(Mutex<BTreeSet<Edge>>);

/// The names of the held lock and of the wanted lock.
type Edge = (Box<str>, Box<str>);

impl Edges {
    /// Notes that one lock is waited for while another is held.
    pub(crate) fn note(&self, held: &LockLabel, wanted: &LockLabel) {
        let mut edges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if edges.len() < MAX_EDGES {
            edges.insert((held.as_str().into(), wanted.as_str().into()));
        }
    }

    pub(crate) fn all(&self) -> BTreeSet<Edge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writes only when the value grows, which is rare. A shared cache line that is only read stays in every core's cache.
pub(crate) fn raise(cell: &AtomicU64, value: u64) {
    if cell.load(Ordering::Relaxed) < value {
        cell.fetch_max(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{LockLabel, Mode};

    use super::{Edges, MAX_EDGES, MAX_RESIZES, Permits};

    #[test]
    fn a_number_of_permits_may_change_now_and_then_but_not_with_every_key() {
        let permits = Permits::default();
        permits.note(Mode::READ);
        permits.note(Mode::Exclusive);
        assert_eq!(permits.limit(), None);
        for limit in [16, 16, 8, 16] {
            permits.note(Mode::permits(1, limit).unwrap());
            assert_eq!(permits.limit(), Some(limit));
        }
        for _ in 0..MAX_RESIZES {
            for limit in [4, 2] {
                permits.note(Mode::permits(1, limit).unwrap());
            }
        }
        assert_eq!(permits.limit(), None);
    }

    #[test]
    fn pairs_of_locks_have_a_bound() {
        let edges = Edges::default();
        for number in 0..2 * MAX_EDGES {
            edges.note(&LockLabel::new(number.to_string()), &LockLabel::from_static("stock"));
        }
        assert_eq!(edges.all().len(), MAX_EDGES);
    }
}
