//! The holders of a lock and its waiters.

use std::time::Duration;

use crate::contract::backend::LockEntry;
use crate::types::mode::Mode;
use crate::types::owner::{HolderInfo, OwnerId};

/// One of the holders of a lock.
///
/// ```
/// use lock_core::{HolderInfo, Mode, OwnerId};
/// use lock_store::FleetHolder;
///
/// let mut reader = FleetHolder::new(Some(OwnerId::random()), None);
/// (reader.info, reader.mode) = (Some(HolderInfo::new("web-3", 4711, "shop::price")), Some(Mode::READ));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetHolder {
    /// The identity of its claim. `None` for a client of another library, and for a released lock that stays taken for
    /// the rest of its `min_hold`.
    pub owner: Option<OwnerId>,
    /// The process and call site, as the holder describes itself.
    pub info: Option<HolderInfo>,
    /// The mode in which it has the lock. `None` if unknown.
    pub mode: Option<Mode>,
    /// The time left of its lease. `None` if the lease never ends.
    pub lease_left: Option<Duration>,
    /// For how long its process has had its claim, by the store's clock. `None` if the store does not know.
    pub held_for: Option<Duration>,
}

impl FleetHolder {
    /// Describes a holder by its claim and its lease.
    #[must_use]
    pub fn new(owner: Option<OwnerId>, lease_left: Option<Duration>) -> Self {
        Self { owner, info: None, mode: None, lease_left, held_for: None }
    }
}

/// The holder of a lock that is not shared.
impl From<LockEntry> for FleetHolder {
    fn from(entry: LockEntry) -> Self {
        let holder = entry.holder;
        let held_for = entry.held_for;
        Self {
            owner: holder.owner,
            info: holder.info,
            mode: Some(Mode::Exclusive),
            lease_left: holder.ttl_left,
            held_for,
        }
    }
}

/// One process in the queue of a key. More callers of that process may wait behind this one.
///
/// ```
/// use std::time::Duration;
/// use lock_core::OwnerId;
/// use lock_store::Waiter;
///
/// let first = Waiter::new(1, OwnerId::random(), Duration::from_secs(2));
/// println!("{}. for {:?}", first.position, first.waiting_for);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Its place in the queue. The first place is 1.
    pub position: usize,
    /// The identity of its claim.
    pub owner: OwnerId,
    /// The process and call site, as the waiter describes itself.
    pub info: Option<HolderInfo>,
    /// The mode in which it wants the lock. `None` if unknown.
    pub mode: Option<Mode>,
    /// How long it has been in the queue, by the store's clock.
    pub waiting_for: Duration,
    /// How long ago it last confirmed that it still waits. A waiter that has missed three confirmations is passed over.
    /// `None` if it sleeps.
    pub confirmed: Option<Duration>,
    /// Whether it sleeps: it has waited for so long that it confirms its place rarely.
    pub asleep: bool,
}

impl Waiter {
    /// Describes a waiter by its place.
    #[must_use]
    pub fn new(position: usize, owner: OwnerId, waiting_for: Duration) -> Self {
        Self { position, owner, info: None, mode: None, waiting_for, confirmed: None, asleep: false }
    }
}
