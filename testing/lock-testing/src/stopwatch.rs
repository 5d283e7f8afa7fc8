//! Time measurement on machines that sometimes stall.

use std::collections::VecDeque;
use std::sync::Once;
use std::time::Duration;

use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// How often the meter reads the clock.
const TICK: Duration = Duration::from_millis(5);

/// A delay that is not counted, because every machine is that late.
const NOISE: Duration = Duration::from_millis(1);

/// The time that a test allows on top of a promise, for delays that the meter cannot see.
const SLACK: Duration = Duration::from_secs(2);

/// How many delays of the meter are remembered.
const REMEMBERED: usize = 100_000;

/// Measures how long something took, and how much of that time the machine stalled.
///
/// A test of a bound that reads only the clock fails on every machine that is stopped, swapped or shared at the wrong
/// time. A thread of the test process sleeps a few milliseconds at a time and notes how late it wakes up. In that time
/// no code could have kept a promise.
///
/// ```no_run
/// use std::time::Duration;
/// use lock_testing::Stopwatch;
///
/// let watch = Stopwatch::start();
/// // … what is promised to take at most a second …
/// watch.assert_within(Duration::from_secs(1), "the promise");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    since: Timestamp,
}

/// The times when the meter woke up too late, and by how much. `last` is its latest wake-up.
struct Meter {
    late: VecDeque<(Timestamp, Duration)>,
    last: Timestamp,
}

static METER: Mutex<Meter> = Mutex::new(Meter { late: VecDeque::new(), last: Timestamp::from_nanos(0) });

impl Stopwatch {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            meter().last = Clock::system().now();
            std::thread::spawn(tick);
        });
        Self { since: Clock::system().now() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Clock::system().now().since(self.since)
    }

    /// Returns how long the machine stalled in that time.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        let meter = meter();
        let known: Duration = meter.late.iter().rev().take_while(|(at, _)| *at > self.since).map(|(_, by)| *by).sum();
        known + Clock::system().now().since(meter.last.max(self.since)).saturating_sub(TICK)
    }

    /// Checks that no more time has passed than was promised, not counting the stalls of the machine.
    ///
    /// # Panics
    ///
    /// Panics if more time has passed.
    #[track_caller]
    pub fn assert_within(&self, promised: Duration, what: &str) {
        let (elapsed, stalled) = (self.elapsed(), self.stalled());
        assert!(
            elapsed <= promised + SLACK + stalled,
            "{what}: {elapsed:?}, promised within {promised:?}; the machine stood still for {stalled:?} of it",
        );
    }
}

fn meter() -> MutexGuard<'static, Meter> {
    METER.lock()
}

/// Runs as long as the process lives.
fn tick() {
    let clock = Clock::system();
    loop {
        #[expect(clippy::disallowed_methods, reason = "it measures how late it wakes")]
        std::thread::sleep(TICK);
        let mut meter = meter();
        let now = clock.now();
        let late = now.since(meter.last).saturating_sub(TICK);
        meter.last = now;
        if late > NOISE {
            if meter.late.len() == REMEMBERED {
                meter.late.pop_front();
            }
            meter.late.push_back((now, late));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SLACK, Stopwatch};

    #[test]
    fn what_takes_longer_than_promised_is_told() {
        let watch = Stopwatch::start();
        watch.assert_within(Duration::ZERO, "nothing");
        // The clock starts with the machine, and no machine runs a test within ten seconds of its start.
        let late = Stopwatch { since: watch.since.before(Duration::from_secs(10)) };
        assert!(late.elapsed() >= Duration::from_secs(10));
        let promised = Duration::from_secs(1);
        if late.elapsed() > promised + SLACK + late.stalled() {
            std::panic::catch_unwind(|| late.assert_within(promised, "ten seconds")).unwrap_err();
        }
    }
}
