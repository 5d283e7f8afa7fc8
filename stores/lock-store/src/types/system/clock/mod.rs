//! The time by which leases count. It keeps running while the machine is suspended.

mod wake_up;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use crate::types::system::clock::wake_up::WakeUp;
use crate::types::system::random;

/// A time on a [`Clock`], in nanoseconds since an arbitrary start.
///
/// ```
/// use std::time::Duration;
/// use lock_core::Clock;
///
/// let now = Clock::system().now();
/// assert_eq!(now.after(Duration::from_secs(1)).since(now), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Later than every other time.
    #[doc(hidden)]
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time `by` later, or the end of time on overflow.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the time `by` earlier, or the start of the clock on overflow.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// Returns the duration from `earlier` to this time, or zero if `earlier` lies after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[doc(hidden)]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in half the space, because every lock keeps several. At most 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nanos(u64);

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(nanos(duration))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// Returns the safety margin of a lease, because the clocks of client and server may drift apart. It is one percent,
/// and at least two milliseconds for the resolution of the server's expiry. As in the Redlock algorithm.
fn drift_margin(ttl: Duration) -> Duration {
    (ttl / 100).max(Duration::from_millis(2))
}

/// Returns the end of a lease that was granted or renewed by a command sent at `sent_at`. It counts from the send,
/// because the store may have executed the command at that time.
#[must_use]
pub fn deadline_of(sent_at: Timestamp, ttl: Duration) -> Timestamp {
    sent_at.after(ttl).before(drift_margin(ttl))
}

/// Draws a random duration between two bounds.
#[must_use]
pub fn jitter(least: Duration, most: Duration) -> Duration {
    least + most.saturating_sub(least).mul_f64(random::fraction())
}

/// Returns the machine's time of day. It may jump, so no lease depends on it.
#[must_use]
pub fn wall_clock() -> std::time::SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    std::time::SystemTime::now()
}

/// Returns a time of the system clock in ms since 1970. It never falls, even if the time of day is set back. If the
/// time of day is set forward, it follows.
pub fn since_epoch(moment: Timestamp) -> u64 {
    /// The start of the system clock in ms since 1970: the latest that the time of day has ever indicated.
    static ORIGIN: AtomicU64 = AtomicU64::new(0);
    let millis = |moment: Timestamp| moment.as_nanos() / 1_000_000;
    let of_day = wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis();
    let origin = u64::try_from(of_day).unwrap_or(0).saturating_sub(millis(boot_time()));
    ORIGIN.fetch_max(origin, Ordering::Relaxed).max(origin) + millis(moment)
}

/// The clock of one manager and of the stores that it drives.
///
/// ```
/// use std::time::Duration;
/// use lock_core::Clock;
///
/// let clock = Clock::system();
/// let begun = clock.now();
/// assert!(clock.now().since(begun) < Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// CLOCK_BOOTTIME. `std::time::Instant` stops during suspend: a laptop that was closed for an hour would still
    /// believe in its lease.
    Boot,
    /// The clock of a tokio runtime, which its tests may pause. Shared, because every lock has a clock.
    Runtime(Arc<RuntimeClock>),
}

struct RuntimeClock {
    handle: tokio::runtime::Handle,
    origin: tokio::time::Instant,
    next_turn: AtomicU64,
}

impl Clock {
    /// Returns the machine's clock since boot, which runs on during suspend.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::Boot)
    }

    /// Returns the clock of the current tokio runtime. Under `tokio::time::pause` this is virtual time.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn of_current_runtime() -> Self {
        let (handle, origin) = (tokio::runtime::Handle::current(), tokio::time::Instant::now());
        Self(Source::Runtime(Arc::new(RuntimeClock { handle, origin, next_turn: AtomicU64::new(0) })))
    }

    /// Reserves the next turn, which is `apart` after the one before, and returns its time. `None` if that is later than
    /// `within` from now. All users of the machine's clock share their turns.
    #[doc(hidden)]
    #[must_use]
    pub fn reserve_turn(&self, apart: Duration, within: Duration) -> Option<Timestamp> {
        static SHARED: AtomicU64 = AtomicU64::new(0);
        let (now, next) = (self.now(), if let Source::Runtime(clock) = &self.0 { &clock.next_turn } else { &SHARED });
        let turn = |next: u64| Timestamp(next.max(now.0));
        let after = |next| (turn(next) <= now.after(within)).then(|| turn(next).after(apart).0);
        next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok().map(turn)
    }

    /// Returns the present time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Boot => boot_time(),
            Source::Runtime(clock) => {
                // Other threads must read the runtime's clock too, and not their own.
                let _context = clock.handle.enter();
                Timestamp(nanos(tokio::time::Instant::now().duration_since(clock.origin)))
            }
        }
    }

    /// Sleeps until `moment`. Only for code that runs on the runtime of this clock.
    #[doc(hidden)]
    pub async fn sleep_until(&self, moment: Timestamp) {
        if moment == Timestamp::NEVER {
            return std::future::pending().await;
        }
        let left = moment.since(self.now());
        #[expect(clippy::disallowed_methods, reason = "the one timer of the keeper's own runtime")]
        tokio::time::sleep(left).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Timestamp(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// CLOCK_MONOTONIC. On Apple's systems and on Windows, std measures with it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Timestamp {
    use std::sync::OnceLock;
    use std::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let now = Instant::now();
    Timestamp(nanos(now.duration_since(*ORIGIN.get_or_init(|| now))))
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Boot => "Clock(boot)",
            Source::Runtime(_) => "Clock(runtime)",
        })
    }
}

#[cfg(test)]
mod tests {
    use lock_testing::limit;
    use std::time::Duration;

    use super::{Clock, Timestamp};

    #[tokio::test(start_paused = true)]
    #[limit]
    async fn follows_the_paused_runtime_also_from_other_threads() {
        let clock = Clock::of_current_runtime();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let seen = std::thread::spawn(move || clock.now()).join().unwrap();
        assert_eq!(seen, Timestamp::from_nanos(3_600_000_000_000));
    }

    /// `Instant` reads CLOCK_MONOTONIC. With it, a machine that was suspended for an hour would still believe in its
    /// leases.
    #[cfg(target_os = "linux")]
    #[test]
    #[limit]
    fn the_machine_is_asked_for_the_time_since_boot() {
        let boot = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
        };
        let (before, now, after) = (boot(), Clock::system().now().as_nanos(), boot());
        assert!(before <= now && now <= after, "{before} {now} {after}");
    }

    #[test]
    #[limit]
    fn arithmetic_saturates() {
        let start = Timestamp::from_nanos(5);
        assert_eq!(start.since(Timestamp::from_nanos(9)), Duration::ZERO);
        assert_eq!(start.after(Duration::MAX), Timestamp::NEVER);
        assert_eq!(start.before(Duration::MAX), Timestamp::from_nanos(0));
        assert!(Clock::system().now() > Timestamp::from_nanos(0));
    }
}
