//! The tokens that this process has checked at a write.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_core::FencingToken;

/// Enough for the writes of many holders at a time.
const SLOTS: usize = 1024;

/// The last checked tokens. A newer token may replace an older one, so a checked token may be missing. A token that was
/// not checked is never here.
#[derive(Debug, Default)]
pub(crate) struct Checked(OnceLock<Box<[AtomicU64]>>);

impl Checked {
    pub(crate) fn note(&self, token: FencingToken) {
        let slots = self.0.get_or_init(|| std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect());
        slots[slot(token)].store(token.get(), Ordering::Relaxed);
    }

    /// Returns whether any token was ever checked in this process.
    pub(crate) fn any(&self) -> bool {
        self.0.get().is_some()
    }

    pub(crate) fn contains(&self, token: FencingToken) -> bool {
        self.0.get().is_some_and(|slots| slots[slot(token)].load(Ordering::Relaxed) == token.get())
    }
}

fn slot(token: FencingToken) -> usize {
    (token.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;

    use super::Checked;

    #[test]
    fn knows_what_was_checked_and_nothing_else() {
        let checked = Checked::default();
        assert!(!checked.contains(FencingToken::new(7)));
        for number in 1..=5_000 {
            checked.note(FencingToken::new(number));
            assert!(checked.contains(FencingToken::new(number)));
        }
        assert!((5_001..9_000).all(|number| !checked.contains(FencingToken::new(number))));
    }
}
