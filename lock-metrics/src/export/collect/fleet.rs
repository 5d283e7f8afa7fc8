//! Exports the findings of inspectors in Redis.

use std::sync::PoisonError;

use crate::catalog::fleet;
use crate::export::sink::Sink;
use crate::state::Core;
use crate::state::fleet::{Fleet, FleetLock};
use crate::words::labels::MODES;
use crate::words::time::Moment;

impl Core {
    /// Exports the findings of the elected inspectors of this process.
    pub(super) fn fleet_to(&self, sink: &mut impl Sink) {
        let stores = self.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (store, found) in &stores {
            for (lock, state) in &found.locks {
                for (mode, held) in MODES.into_iter().zip(state.held) {
                    held.into_iter().for_each(|held| sink.gauge(&fleet::HELD, &[lock, store, mode], f64::from(held)));
                }
            }
        }
        for (store, found) in &stores {
            for (lock, state) in &found.locks {
                let overdue = state.job_overdue.map(|late| late.as_secs_f64());
                overdue.into_iter().for_each(|late| sink.gauge(&fleet::JOB_OVERDUE, &[lock, store], late));
            }
        }
        let mut waited = |metric, get: &dyn Fn(&(Moment, u32)) -> f64| {
            for (store, found) in &stores {
                for (lock, state) in &found.locks {
                    state.waited.iter().for_each(|(site, hold)| sink.gauge(metric, &[lock, store, site], get(hold)));
                }
            }
        };
        waited(&fleet::WAITED_HOLD_START, &|(since, _)| since.to_unix_seconds());
        waited(&fleet::WAITED_HOLD_WAITERS, &|(_, waiters)| f64::from(*waiters));
        let mut each = |metric, get: &dyn Fn(&FleetLock) -> Option<f64>| {
            for (store, found) in &stores {
                for (lock, state) in &found.locks {
                    get(state).into_iter().for_each(|value| sink.gauge(metric, &[lock, store], value));
                }
            }
        };
        each(&fleet::WAITERS, &|lock| lock.waiters.map(f64::from));
        each(&fleet::OLDEST_HOLD, &|lock| Some(lock.oldest_hold.to_unix_seconds()));
        each(&fleet::MIN_TTL, &|lock| Some(lock.min_ttl.unwrap_or_default().as_secs_f64()));
        each(&fleet::KEYS_WITHOUT_TTL, &|lock| Some(f64::from(lock.without_ttl)));
        each(&fleet::COMMANDS, &|lock| Some(f64::from(lock.commands[0])));
        each(&fleet::COMMANDS_STUCK, &|lock| Some(f64::from(lock.commands[1])));
        each(&fleet::COMMANDS_STUCK_WAITERS, &|lock| Some(f64::from(lock.commands[2])));
        for (store, found) in &stores {
            for (lock, state) in &found.locks {
                if let Some((session, since)) = &state.oldest_pin {
                    sink.gauge(&fleet::OLDEST_PIN, &[lock, store, session], since.to_unix_seconds());
                }
            }
        }
        for (store, found) in &stores {
            sink.counter(&fleet::OVERFLOW, &[store], found.overflow);
        }
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
