//! When a claim that was not granted asks again.

use std::time::Duration;

use crate::engine::claim::GRANT_TTL;
use crate::engine::shared::ticks::Ticks;
use crate::types::system::clock::{Timestamp, jitter};

/// The bounds of the pause between attempts, where the holder will not announce its release.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// When a claim asks again that found the lock taken by now: in the queue, where it may sleep for a while, or after so many
/// refusals.
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

/// How long to pause before asking again: full jitter under a bound that doubles, and no longer
/// than the lease in the way can last.
pub(super) fn poll_pause(refusals: u32, ttl_left: Option<Duration>) -> Duration {
    let (least, most) = POLL;
    let bound = least.saturating_mul(1 << refusals.min(8)).min(most);
    let pause = jitter(Duration::from_millis(1), bound);
    // A millisecond more, because the store counts a lease in whole ones.
    ttl_left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
}

/// When a claim that may sleep for so long asks again: right when the lease in the way would end, and otherwise somewhat earlier
/// than it must, so that those of many processes who fell asleep together do not stay together.
fn asleep(now: Timestamp, pause: Duration, ttl_left: Option<Duration>, ticks: &Ticks) -> Timestamp {
    if ttl_left.is_some_and(|left| left <= pause) {
        return now.after(pause + jitter(Duration::from_millis(1), Duration::from_millis(20)));
    }
    let at = now.after(jitter(pause - pause / 5, pause));
    // A short pause would become much shorter.
    if pause < Duration::from_secs(1) { at } else { ticks.until(at) }
}

/// When to confirm a place in the store's queue: often enough that a grant in between is worth
/// something, and right when the lease in the way would end.
fn backstop(ttl: Duration, ttl_left: Option<Duration>) -> Duration {
    let regular = (ttl.min(GRANT_TTL) / 3).min(Duration::from_secs(1));
    let slack = jitter(Duration::from_millis(1), Duration::from_millis(20));
    ttl_left.map_or(regular, |left| regular.min(left + slack))
}
