//! Keys that were recently found taken: the next attempt at one of them goes to the script at once. So it does
//! at keys that clients of other libraries lock too, because only the script leaves them free for those.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;

use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;
use lock_store::types::system::clock::{Clock, Timestamp};

const PLACES: usize = 1024;

/// How long a key is remembered.
const KEPT: Duration = Duration::from_secs(2);

/// How long one is remembered that a client of another library had. As in `layout.lua`.
const KEPT_FOREIGN: Duration = Duration::from_secs(30);

/// A table of fixed size, in which keys may share a place: a wrong entry only costs a little speed.
#[derive(Debug)]
pub(crate) struct Collisions {
    /// Until when the keys of a place count as contended, in ns.
    until: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Collisions {
    fn default() -> Self {
        Self { until: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::default() }
    }
}

impl Collisions {
    fn place(&self, key: &LockKey) -> &AtomicU64 {
        let hash = self.hasher.hash_one(key.as_str());
        &self.until[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }

    pub(crate) fn note(&self, key: &LockKey, now: Timestamp) {
        self.place(key).fetch_max(now.after(KEPT).as_nanos(), Ordering::Relaxed);
    }

    /// Notes who stands in the way at a key.
    pub(crate) fn note_holder(&self, key: &LockKey, holder: &Holder, now: Timestamp) {
        if holder.info.is_none() {
            self.place(key).fetch_max(now.after(KEPT_FOREIGN).as_nanos(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        let until = self.place(key).load(Ordering::Relaxed);
        until != 0 && until > Clock::system().now().as_nanos()
    }
}
