//! Faults of the memory store, for tests of how applications handle them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_store::types::error::{LockError, Result};

/// The faults of the next commands.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How many more commands fail.
    next: AtomicU32,
    /// Whether all commands fail.
    away: AtomicBool,
}

impl Faults {
    /// Returns an error if the command should fail. The command has then not changed anything.
    pub(super) fn check(&self) -> Result<()> {
        let failing = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        if failing || self.away.load(Ordering::Acquire) {
            return Err(LockError::not_executed(
                "the memory store is set to fail; set_away(false) makes it answer again",
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
