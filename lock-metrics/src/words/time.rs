//! Times as Prometheus counts them. This is the only file that reads clocks.
//!
//! A time is read from a steady clock that cannot be set, so ages are right whatever happens to the system's time.
//! Exported times are Unix times: the same times, all shifted by one offset.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far the system's time may drift from the exported times before all of them are adjusted.
const STEP: u64 = 50_000_000;

/// A larger difference between the clocks of a process and its store is not credible.
const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// The offset that turns a steady time into Unix time, 0 before the first use.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds on the steady clock. 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) const NEVER: Self = Self(0);
    /// Later than every other time.
    pub(crate) const LAST: Self = Self(u64::MAX);

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn now() -> Self {
        Self::read(rustix::time::ClockId::Monotonic)
    }

    /// Returns the time of the last clock tick, at most a few milliseconds old, at a fifth of the cost of
    /// [`now`](Self::now). It is read for every acquire.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn coarse() -> Self {
        Self::read(rustix::time::ClockId::MonotonicCoarse)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn read(clock: rustix::time::ClockId) -> Self {
        let now = rustix::time::clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0)))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn now() -> Self {
        use std::sync::LazyLock;
        use std::time::Instant;

        #[expect(clippy::disallowed_methods, reason = "ages are measured here, not leases")]
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        // One second more, so that no time after the start is mistaken for never.
        Self(nanos(START.elapsed()).saturating_add(1_000_000_000))
    }

    /// Returns the time. This platform has no cheaper clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn coarse() -> Self {
        Self::now()
    }

    pub(crate) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns an earlier time, or the earliest that the clock can represent.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors are told ages"))]
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)).max(1))
    }

    /// Returns the duration from `earlier` to this time, or zero if `earlier` lies after it.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns nanoseconds since the Unix epoch, 0 for never.
    pub(crate) fn to_unix_nanos(self) -> u64 {
        if self == Self::NEVER { 0 } else { self.0.wrapping_add(offset()) }
    }

    /// Returns seconds since the Unix epoch by the clock of a store, 0 for never.
    pub(crate) fn to_store_seconds(self, clock: &StoreClock) -> f64 {
        let nanos = if self == Self::NEVER { 0 } else { self.0.wrapping_add(clock.offset()) };
        Duration::from_nanos(nanos).as_secs_f64()
    }

    /// Returns seconds since the Unix epoch, 0 for never.
    pub(crate) fn to_unix_seconds(self) -> f64 {
        Duration::from_nanos(self.to_unix_nanos()).as_secs_f64()
    }

    pub(crate) fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.to_unix_nanos())
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the earlier of two times. Never counts as the latest time.
    pub(crate) fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::NEVER, some) | (some, Self::NEVER) => some,
            (one, two) => one.min(two),
        }
    }
}

/// The clock of a store, as its grants show it: the offset that turns a steady time into the store's Unix time, 0
/// before the first grant. It does not depend on a system time, so a machine with a wrong time exports the same times
/// as any other.
#[derive(Debug, Default)]
pub(crate) struct StoreClock(AtomicU64);

impl StoreClock {
    /// Notes the store's time just before `now`.
    pub(crate) fn note(&self, time: SystemTime, now: Moment) {
        let time = nanos(time.duration_since(UNIX_EPOCH).unwrap_or_default());
        if time.abs_diff(now.to_unix_nanos()) > YEAR {
            // Tokens of another store may be arbitrary numbers.
            return;
        }
        let offset = time.wrapping_sub(now.0);
        let known = self.0.load(Ordering::Relaxed);
        // Written rarely, because every acquire reads it.
        if known.abs_diff(offset) > STEP {
            self.0.store(offset, Ordering::Relaxed);
        }
    }

    /// Returns the offset. Until the store's clock is known, it is the offset of this process's own clock.
    fn offset(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => offset(),
            known => known,
        }
    }
}

/// Follows the system's time if it was set. A drift below `STEP` leaves timestamps as they are, so that a hold has the
/// same start in every scrape.
pub(crate) fn follow_system_time() {
    let (fresh, known) = (read_offset(), offset());
    if fresh.wrapping_sub(known).min(known.wrapping_sub(fresh)) > STEP {
        OFFSET.store(fresh, Ordering::Relaxed);
    }
}

fn offset() -> u64 {
    match OFFSET.load(Ordering::Relaxed) {
        0 => {
            let fresh = read_offset();
            OFFSET.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(fresh)
        }
        known => known,
    }
}

fn read_offset() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "exported timestamps are Unix time, whatever the lease clock says")]
    let now = SystemTime::now();
    nanos(now.duration_since(UNIX_EPOCH).unwrap_or_default()).wrapping_sub(Moment::now().0)
}

/// Returns whole nanoseconds, at most the 584 years that fit.
pub(crate) fn nanos(duration: Duration) -> u64 {
    // Counted in 64 bits: `as_nanos` counts in 128, and this is on the path of every acquire.
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use lock_testing::limit;

    use super::Moment;

    #[test]
    #[limit]
    fn never_is_the_latest() {
        let (early, late) = (Moment::from_nanos(5), Moment::from_nanos(9));
        assert_eq!(early.earlier(late), early);
        assert_eq!(late.earlier(early), early);
        assert_eq!(Moment::NEVER.earlier(late), late);
        assert_eq!(late.earlier(Moment::NEVER), late);
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(Moment::NEVER.to_unix_nanos(), 0);
    }

    #[test]
    #[limit]
    fn the_coarse_clock_is_a_few_ticks_behind() {
        let (coarse, fine) = (Moment::coarse(), Moment::now());
        assert!(fine.since(coarse) < Duration::from_millis(500) && coarse.since(fine) < Duration::from_millis(50));
    }

    #[test]
    #[limit]
    fn what_is_exported_is_unix_time() {
        #[expect(clippy::disallowed_methods, reason = "what it is compared with")]
        let system = SystemTime::now();
        let now = Moment::now().to_system_time();
        let apart = now.duration_since(system).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(1), "{apart:?}");
    }
}
