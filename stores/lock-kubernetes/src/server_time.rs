//! The time of the API server, from the `Date` of its answers.
//!
//! It tells until when a released lock stays taken, and when a job has run. No lease depends on it.

use lock_store::Timestamp;
use lock_store::types::system::clock::wall_clock;
use lock_store::types::system::sync::Mutex;

/// By how many ms the server's time is ahead of this machine's time since boot: at least, and at most.
///
/// `Date` has whole seconds. Several answers narrow the bounds down to the time of one answer.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<(i64, i64)>>);

impl ServerTime {
    /// Notes the `Date` of an answer to a request that was sent and answered at these times.
    pub(crate) fn note(&self, sent: Timestamp, received: Timestamp, date: i64) {
        let second = date.saturating_mul(1000);
        let seen = (second - millis(received), second + 1000 - millis(sent));
        let mut known = self.0.lock();
        *known = Some(match *known {
            Some((least, most)) if seen.0 <= most && seen.1 >= least => (least.max(seen.0), most.min(seen.1)),
            // The time of the server was set, or another server has answered.
            _ => seen,
        });
    }

    /// Returns the earliest that the server's time may be, in ms since 1970.
    pub(crate) fn least(&self, now: Timestamp) -> i64 {
        self.0.lock().map_or_else(of_day, |(least, _)| millis(now) + least)
    }

    /// Returns the latest that the server's time may be, in ms since 1970.
    pub(crate) fn most(&self, now: Timestamp) -> i64 {
        self.0.lock().map_or_else(of_day, |(_, most)| millis(now) + most)
    }
}

fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn of_day() -> i64 {
    let since = wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::Timestamp;

    use super::ServerTime;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(0).after(Duration::from_millis(millis))
    }

    #[test]
    fn answers_narrow_the_bounds_and_a_clock_that_was_set_replaces_them() {
        let time = ServerTime::default();
        // The true time of the server is 100,300 ms ahead.
        time.note(at(0), at(10), 100);
        assert_eq!((time.least(at(10)), time.most(at(10))), (100_000, 101_010));
        time.note(at(690), at(695), 100);
        assert_eq!((time.least(at(695)), time.most(at(695))), (100_685, 101_005));
        time.note(at(701), at(705), 101);
        assert_eq!((time.least(at(705)), time.most(at(705))), (101_000, 101_015));
        time.note(at(800), at(810), 50);
        assert_eq!((time.least(at(810)), time.most(at(810))), (50_000, 51_010));
    }
}
