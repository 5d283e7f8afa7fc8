//! The knowledge of one process about the stripes that it takes by `any()`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lock_store::types::system::clock::Timestamp;
use lock_store::types::system::random;

/// How long a stripe that another process has is not tried again.
const BUSY_FOR: Duration = Duration::from_millis(50);

/// How long a stripe counts as recently held by this process.
const LATELY: Duration = Duration::from_secs(1);

/// How many more callers of this process may wait for a recently held stripe than for another one.
const AWAY: u32 = 4;

/// The state shared by the clones of one [`Striped`](super::Striped). It is made at the first `any()`, because its size
/// grows with the number of stripes.
#[derive(Debug, Default)]
pub(super) struct Segments {
    each: OnceLock<Box<[Segment]>>,
    /// Where the next choice begins, so that callers spread.
    next: AtomicU32,
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    /// When this process last had it, in nanoseconds.
    had: AtomicU64,
    /// Until when it need not be tried, in nanoseconds.
    busy_until: AtomicU64,
    /// How many callers of this process queue for it.
    waiting: AtomicU32,
}

impl Segments {
    fn each(&self, count: u32) -> &[Segment] {
        self.each.get_or_init(|| {
            // Processes start at different places.
            self.next.store(random::below(count), Ordering::Relaxed);
            (0..count).map(|_| Segment::default()).collect()
        })
    }

    pub(super) fn of(&self, stripe: u32, count: u32) -> &Segment {
        &self.each(count)[stripe as usize % count as usize]
    }

    /// Returns the stripes that may be free. The stripe that this process had last comes first.
    pub(super) fn to_try(&self, among: &[u32], count: u32, now: Timestamp) -> Vec<u32> {
        let segments = self.each(count);
        let mut stripes = self.rotated(among);
        stripes.retain(|stripe| segments[*stripe as usize].busy_until.load(Ordering::Relaxed) <= now.as_nanos());
        stripes.sort_by_key(|stripe| std::cmp::Reverse(segments[*stripe as usize].had.load(Ordering::Relaxed)));
        stripes
    }

    /// Chooses the stripe to queue for, where the fewest callers of this process wait. A recently held stripe counts as
    /// shorter, because the lock is handed on there without the store.
    pub(super) fn home(&self, among: &[u32], count: u32, now: Timestamp) -> Option<u32> {
        let segments = self.each(count);
        let lately = now.before(LATELY).as_nanos();
        self.rotated(among).into_iter().min_by_key(|stripe| {
            let segment = &segments[*stripe as usize];
            let had = segment.had.load(Ordering::Relaxed);
            let away = if had > lately { 0 } else { AWAY };
            (segment.waiting.load(Ordering::Relaxed) + away, std::cmp::Reverse(had))
        })
    }

    fn rotated(&self, among: &[u32]) -> Vec<u32> {
        let mut stripes = among.to_vec();
        if !stripes.is_empty() {
            let by = self.next.fetch_add(1, Ordering::Relaxed) as usize % stripes.len();
            stripes.rotate_left(by);
        }
        stripes
    }
}

impl Segment {
    pub(super) fn had(&self, now: Timestamp) {
        self.had.store(now.as_nanos(), Ordering::Relaxed);
        self.busy_until.store(0, Ordering::Relaxed);
    }

    pub(super) fn busy(&self, now: Timestamp) {
        self.busy_until.store(now.after(BUSY_FOR).as_nanos(), Ordering::Relaxed);
    }

    /// Counts a caller that queues, until the entry is dropped.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

/// One caller that queues for a stripe.
pub(super) struct Waiting<'a>(&'a Segment);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
