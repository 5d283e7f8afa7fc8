//! A critical section as its holder knows it: from the first moment to the last at which the guard said
//! that the lock was held.

use std::sync::atomic::{AtomicU64, Ordering};

use lock_core::testing::Record;
use lock_core::{FencingToken, LockGuard, LockKey};

use crate::soak::Shared;

pub(crate) struct Section<'a> {
    shared: &'a Shared,
    locks: Vec<(LockKey, FencingToken, u64)>,
    /// The last moment at which the guard was held.
    last: u64,
}

impl<'a> Section<'a> {
    /// Begins it, unless the lock is lost by now.
    pub(crate) fn begin(shared: &'a Shared, guard: &LockGuard) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(1 << 48);
        let at = shared.recorder.now();
        let deadline = at + u64::try_from(guard.remaining().as_nanos()).unwrap();
        guard.ensure_held().ok()?;
        let process = std::process::id();
        let mut locks = Vec::new();
        for key in guard.keys() {
            let (token, attempt) = (guard.token_of(key).unwrap(), COUNT.fetch_add(1, Ordering::Relaxed));
            let (name, number) = (key.as_str().to_owned(), token.get());
            shared.recorder.record(&Record::Grant { process, attempt, at, key: name, token: number, deadline });
            locks.push((key.clone(), token, attempt));
        }
        shared.count("sections");
        Some(Self { shared, locks, last: at })
    }

    /// Looks whether the lock is still held, and writes under it.
    pub(crate) fn write(&mut self, guard: &LockGuard) {
        if !self.holds(guard) {
            return;
        }
        for (key, token, _) in &self.locks {
            let written = self.shared.resource.write(key.as_str(), token.get());
            self.shared.count(if written { "writes" } else { "refused-writes" });
        }
        self.holds(guard);
    }

    fn holds(&mut self, guard: &LockGuard) -> bool {
        // Before it is asked: that it is held afterwards means that it was held then.
        let now = self.shared.recorder.now();
        let held = guard.ensure_held().is_ok();
        if held {
            self.last = now;
        }
        held
    }

    /// Ends it, before the lock is released.
    pub(crate) fn end(mut self, guard: &LockGuard) {
        if !self.holds(guard) {
            self.shared.count("lost");
        }
    }
}

impl Drop for Section<'_> {
    /// Also where the body is dropped because the lock is lost.
    fn drop(&mut self) {
        let (process, at) = (std::process::id(), self.last);
        for (key, token, attempt) in &self.locks {
            let (key, token, attempt) = (key.as_str().to_owned(), token.get(), *attempt);
            self.shared.recorder.record(&Record::Renew { process, attempt, deadline: at });
            self.shared.recorder.record(&Record::Release { process, at, key, token });
            self.shared.recorder.record(&Record::End { process, attempt, at, how: "left".to_owned() });
        }
    }
}
