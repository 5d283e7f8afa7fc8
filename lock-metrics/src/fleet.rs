//! What the inspector found in Redis, kept for scrapes.

use std::sync::PoisonError;
use std::time::Duration;

use crate::catalog::fleet;
use crate::collect::Sink;
use crate::state::Core;
use crate::time::UnixTime;

/// The last scan, or zeros for an instance that is not elected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    /// By lock name. Every name that can occur is there from the beginning.
    pub(crate) locks: Vec<(String, FleetLock)>,
    pub(crate) scan_duration: Duration,
    pub(crate) truncated: bool,
    pub(crate) last_success: UnixTime,
}

/// What Redis holds under one lock name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetLock {
    pub(crate) held: u32,
    pub(crate) waiters: u32,
    pub(crate) oldest_hold: UnixTime,
    /// Of those that have one.
    pub(crate) min_ttl: Option<Duration>,
    pub(crate) without_ttl: u32,
}

impl Core {
    /// Keeps what an inspector found.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn publish(&self, found: Fleet) {
        *self.fleet.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Tells what an inspector of this process found, if there is one.
    pub(crate) fn fleet_to(&self, sink: &mut impl Sink) {
        let found = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(found) = found else { return };
        let mut each = |metric, get: &dyn Fn(&FleetLock) -> f64| {
            for (name, lock) in &found.locks {
                sink.gauge(metric, &[name], get(lock));
            }
        };
        each(&fleet::HELD, &|lock| f64::from(lock.held));
        each(&fleet::WAITERS, &|lock| f64::from(lock.waiters));
        each(&fleet::OLDEST_HOLD, &|lock| lock.oldest_hold.to_seconds());
        each(&fleet::MIN_TTL, &|lock| lock.min_ttl.unwrap_or_default().as_secs_f64());
        each(&fleet::KEYS_WITHOUT_TTL, &|lock| f64::from(lock.without_ttl));
        sink.gauge(&fleet::SCAN_DURATION, &[], found.scan_duration.as_secs_f64());
        sink.gauge(&fleet::TRUNCATED, &[], f64::from(u8::from(found.truncated)));
        sink.gauge(&fleet::LAST_SUCCESS, &[], found.last_success.to_seconds());
    }
}
