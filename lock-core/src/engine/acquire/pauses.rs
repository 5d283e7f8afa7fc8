//! When a claim asks again after it was not granted.

use std::time::Duration;

use crate::engine::claim::GRANT_TTL;
use crate::engine::shared::ticks::Ticks;
use lock_store::types::system::clock::{Timestamp, jitter};

/// The bounds of the pause between attempts, if the holder will not announce its release.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Returns when a claim that found the lock taken asks again. It may sleep or wait in the queue, or poll after a number of refusals.
pub(super) fn again_at(
    now: Timestamp,
    (sleep, ticks): (Option<Duration>, &Ticks),
    refusals: u32,
    ttl: Duration,
    ttl_left: Option<Duration>,
) -> Timestamp {
    match sleep {
        Some(pause) => asleep(now, pause, ttl_left, ticks),
        None if refusals == 0 => now.after(backstop(ttl, ttl_left)),
        None => now.after(poll_pause(refusals, ttl_left)),
    }
}

/// Returns how long to pause before asking again: full jitter below a bound that doubles with each refusal. The pause
/// is never longer than the holder's lease can last.
pub(super) fn poll_pause(refusals: u32, ttl_left: Option<Duration>) -> Duration {
    let (least, most) = POLL;
    let bound = least.saturating_mul(1 << refusals.min(8)).min(most);
    let pause = jitter(Duration::from_millis(1), bound);
    // One millisecond more, because the store counts leases in whole milliseconds.
    ttl_left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
}

/// Returns when a claim that may sleep for `pause` asks again. If the holder's lease ends before that, it asks when the
/// lease is due to end. Otherwise it asks somewhat earlier than it must. Many claims that fell asleep together
/// therefore spread out.
fn asleep(now: Timestamp, pause: Duration, ttl_left: Option<Duration>, ticks: &Ticks) -> Timestamp {
    if ttl_left.is_some_and(|left| left <= pause) {
        return now.after(pause + jitter(Duration::from_millis(1), Duration::from_millis(20)));
    }
    let at = now.after(jitter(pause - pause / 5, pause));
    // Rounding down to a tick would shorten a short pause too much.
    if pause < Duration::from_secs(1) { at } else { ticks.until(at) }
}

/// Returns when to confirm a place in the store's queue. This is often enough that most of a grant is left when it is
/// confirmed, and also when the holder's lease is due to end.
fn backstop(ttl: Duration, ttl_left: Option<Duration>) -> Duration {
    let regular = (ttl.min(GRANT_TTL) / 3).min(Duration::from_secs(1));
    let slack = jitter(Duration::from_millis(1), Duration::from_millis(20));
    ttl_left.map_or(regular, |left| regular.min(left + slack))
}
