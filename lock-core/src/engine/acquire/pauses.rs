//! When a claim that was not granted asks again.

use std::time::Duration;

use crate::engine::claim::GRANT_TTL;
use crate::types::system::clock::jitter;

/// The bounds of the pause between attempts, where the holder will not announce its release.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// How long to pause before asking again: full jitter under a bound that doubles, and no longer
/// than the lease in the way can last.
pub(super) fn poll_pause(refusals: u32, ttl_left: Option<Duration>) -> Duration {
    let (least, most) = POLL;
    let bound = least.saturating_mul(1 << refusals.min(8)).min(most);
    let pause = jitter(Duration::from_millis(1), bound);
    // A millisecond more, because the store counts a lease in whole ones.
    ttl_left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
}

/// When to confirm a place in the store's queue: often enough that a grant in between is worth
/// something, and right when the lease in the way would end.
pub(super) fn backstop(ttl: Duration, ttl_left: Option<Duration>) -> Duration {
    let regular = (ttl.min(GRANT_TTL) / 3).min(Duration::from_secs(1));
    let slack = jitter(Duration::from_millis(1), Duration::from_millis(20));
    ttl_left.map_or(regular, |left| regular.min(left + slack))
}
