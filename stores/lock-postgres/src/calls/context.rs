//! The context of every call: the settings, and the time here and at the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Clock, LockKey, Timestamp};

use crate::url::Settings;

/// The state that the calls of a store share.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) server_time: ServerTime,
    pub(crate) pins: Pins,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, clock: Clock::system(), server_time: ServerTime::default(), pins: Pins::default() }
    }
}

/// The server's clock, as its last answer showed it.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<(Timestamp, i64)>>);

impl ServerTime {
    pub(crate) fn set(&self, heard: Timestamp, micros: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((heard, micros));
    }

    /// Returns which time the server's clock shows after a while, or a little earlier. Any, before its first answer.
    pub(super) fn after(&self, now: Timestamp, left: Duration) -> i64 {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((heard, micros)) => micros.saturating_add(micros_of(now.since(heard))).saturating_add(micros_of(left)),
            None => i64::MAX,
        }
    }
}

fn micros_of(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The pins as they were read a moment ago. They are cached because waiters ask many times a second.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<HashMap<LockKey, (Timestamp, Arc<str>)>>);

impl Pins {
    /// For how long it is told again.
    const FRESH: Duration = Duration::from_secs(2);

    /// How many keys are remembered.
    const MOST: usize = 1000;

    pub(super) fn get(&self, key: &LockKey, now: Timestamp) -> Option<Arc<str>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(read, _)| now.since(*read) < Self::FRESH).map(|(_, text)| Arc::clone(text))
    }

    pub(super) fn set(&self, key: LockKey, now: Timestamp, text: Arc<str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert(key, (now, text));
    }
}
