//! Moments as Prometheus counts them. The only file that reads a wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch; 0 means never.
///
/// Durations of waits and holds come with the events, measured on the clock that leases use. These
/// moments only say *since when*, and what reads them (Prometheus, a person) counts in Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixTime(u64);

impl UnixTime {
    pub(crate) const NEVER: Self = Self(0);

    pub(crate) fn now() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "exported timestamps are Unix time, whatever the lease clock says"
        )]
        let now = SystemTime::now();
        Self(nanos(now.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    /// Returns the time of the last clock tick, at most a few milliseconds old, for a fifth of the
    /// price of [`now`](Self::now): this is read for every acquire.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn coarse() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// Returns the time: there is no cheaper clock here.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn coarse() -> Self {
        Self::now()
    }

    pub(crate) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the time from `earlier` to this moment, zero if the clock was set back between.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn to_seconds(self) -> f64 {
        Duration::from_nanos(self.0).as_secs_f64()
    }

    pub(crate) fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the earlier of two moments, where never is later than everything.
    pub(crate) fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::NEVER, some) | (some, Self::NEVER) => some,
            (one, two) => one.min(two),
        }
    }
}

/// Returns whole nanoseconds, at most the 584 years that fit.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::UnixTime;

    #[test]
    fn never_is_the_latest() {
        let (early, late) = (UnixTime::from_nanos(5), UnixTime::from_nanos(9));
        assert_eq!(early.earlier(late), early);
        assert_eq!(late.earlier(early), early);
        assert_eq!(UnixTime::NEVER.earlier(late), late);
        assert_eq!(late.earlier(UnixTime::NEVER), late);
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn the_coarse_clock_is_a_few_ticks_behind() {
        let (coarse, fine) = (UnixTime::coarse(), UnixTime::now());
        assert!(fine.since(coarse) < Duration::from_millis(500) && coarse.since(fine) < Duration::from_millis(50));
    }
}
