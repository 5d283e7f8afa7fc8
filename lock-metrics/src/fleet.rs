//! What inspectors found in Redis, kept for scrapes.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use crate::catalog::fleet;
use crate::collect::Sink;
use crate::state::Core;
use crate::time::Moment;

/// The last scan of a store by the elected instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    /// By lock name: every name that was seen since the election.
    pub(crate) locks: BTreeMap<String, FleetLock>,
    pub(crate) scan_duration: Duration,
    pub(crate) truncated: bool,
    pub(crate) last_success: Moment,
}

/// What Redis holds under one lock name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetLock {
    pub(crate) held: u32,
    pub(crate) waiters: u32,
    pub(crate) oldest_hold: Moment,
    /// Covers only the keys that have one.
    pub(crate) min_ttl: Option<Duration>,
    pub(crate) without_ttl: u32,
}

impl Core {
    /// Keeps what the elected inspector of a store found, or forgets it: another instance exports it
    /// now, and zeros beside its numbers would be wrong.
    #[cfg_attr(not(feature = "inspector"), expect(dead_code, reason = "only inspectors find anything"))]
    pub(crate) fn publish(&self, store: &str, found: Option<Fleet>) {
        let mut fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => drop(fleet.insert(store.to_owned(), found)),
            None => drop(fleet.remove(store)),
        }
    }

    /// Exports what the elected inspectors of this process found.
    pub(crate) fn fleet_to(&self, sink: &mut impl Sink) {
        let stores = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut each = |metric, get: &dyn Fn(&FleetLock) -> f64| {
            for (store, found) in &stores {
                for (lock, state) in &found.locks {
                    sink.gauge(metric, &[lock, store], get(state));
                }
            }
        };
        each(&fleet::HELD, &|lock| f64::from(lock.held));
        each(&fleet::WAITERS, &|lock| f64::from(lock.waiters));
        each(&fleet::OLDEST_HOLD, &|lock| lock.oldest_hold.to_unix_seconds());
        each(&fleet::MIN_TTL, &|lock| lock.min_ttl.unwrap_or_default().as_secs_f64());
        each(&fleet::KEYS_WITHOUT_TTL, &|lock| f64::from(lock.without_ttl));
        let mut each = |metric, get: &dyn Fn(&Fleet) -> f64| {
            for (store, found) in &stores {
                sink.gauge(metric, &[store], get(found));
            }
        };
        each(&fleet::SCAN_DURATION, &|found| found.scan_duration.as_secs_f64());
        each(&fleet::TRUNCATED, &|found| f64::from(u8::from(found.truncated)));
        each(&fleet::LAST_SUCCESS, &|found| found.last_success.to_unix_seconds());
    }
}
