//! A check for one resource, at the place where the writes arrive.

use std::sync::atomic::{AtomicU64, Ordering};

use lock_store::contract::event::{Notice, notify_all};
use lock_store::types::fencing::{FencingToken, StaleToken};

/// Guards one resource: admits a token unless a newer one was seen.
///
/// Keep it where the writes arrive, and not where the lock is taken. A database does the same with
/// `UPDATE … SET fence = $token WHERE id = $id AND fence <= $token`. Send that statement before the reads and writes
/// under the lock.
///
/// Observers hear of each checked token ([`Notice::FencingChecked`]). In the process of the holder, `lock-metrics`
/// concludes from it that the writes under this lock are fenced.
///
/// ```
/// use lock_core::{FencingGate, FencingToken};
///
/// let gate = FencingGate::new();
/// gate.admit(FencingToken::new(34))?;
/// let stale = gate.admit(FencingToken::new(33)).unwrap_err();
/// assert_eq!(stale.newest, FencingToken::new(34));
/// # Ok::<(), lock_core::StaleToken>(())
/// ```
#[derive(Debug, Default)]
pub struct FencingGate {
    /// The newest admitted token.
    newest: AtomicU64,
}

impl FencingGate {
    /// Creates a gate that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self { newest: AtomicU64::new(0) }
    }

    /// Creates a gate that continues after a restart, from the newest token that was stored.
    #[must_use]
    pub const fn resuming(newest: FencingToken) -> Self {
        Self { newest: AtomicU64::new(newest.get()) }
    }

    /// Admits a write with this token, or refuses it if a newer holder has already written.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] names both tokens. The write must not happen.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        let newest = self.newest.fetch_max(token.get(), Ordering::AcqRel);
        if newest > token.get() {
            let stale = StaleToken::new(token, Self::newest(self));
            tracing::warn!(%token, newest = %stale.newest, "refused a write with a stale fencing token");
            notify_all(&Notice::FencingRejected { token, newest: stale.newest });
            return Err(stale);
        }
        notify_all(&Notice::FencingChecked { token });
        Ok(())
    }

    /// Returns the newest admitted token, zero if none was admitted.
    #[must_use]
    pub fn newest(&self) -> FencingToken {
        FencingToken::new(self.newest.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::FencingGate;
    use lock_store::types::fencing::FencingToken;

    #[test]
    fn admits_equal_and_newer_only() {
        let gate = FencingGate::resuming(FencingToken::new(5));
        assert!(gate.admit(FencingToken::new(4)).is_err());
        assert!(gate.admit(FencingToken::new(5)).is_ok());
        assert!(gate.admit(FencingToken::new(5)).is_ok());
        assert!(gate.admit(FencingToken::new(9)).is_ok());
        assert!(gate.admit(FencingToken::new(8)).is_err());
        assert_eq!(gate.newest(), FencingToken::new(9));
    }
}
