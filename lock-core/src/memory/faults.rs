//! Faults of the memory store, for tests of what applications do about them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{LockError, Result};

/// What the next commands are to meet.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How many more commands fail.
    next: AtomicU32,
    /// Whether all fail, until told otherwise.
    away: AtomicBool,
}

impl Faults {
    /// Fails a command that is to fail. It has then changed nothing.
    pub(super) fn check(&self) -> Result<()> {
        let failing = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        if failing || self.away.load(Ordering::Acquire) {
            return Err(LockError::not_executed(
                "the memory store was told to be away; bring it back with set_away(false)",
            ));
        }
        Ok(())
    }

    pub(super) fn fail_next(&self, count: u32) {
        self.next.store(count, Ordering::Release);
    }

    pub(super) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Release);
    }
}
