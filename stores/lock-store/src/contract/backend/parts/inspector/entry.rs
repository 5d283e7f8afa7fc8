//! One lock, as it is read from its store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::contract::backend::SyncReport;
use crate::types::key::LockKey;
use crate::types::mode::Mode;
use crate::types::owner::Holder;

/// One lock that is not free, as its store has it.
///
/// ```
/// use lock_core::{LockKey, MemoryStore};
/// use lock_store::Inspector as _;
///
/// # async fn demo(store: MemoryStore) -> Result<(), lock_core::LockError> {
/// if let Some(entry) = store.entry(&LockKey::new("report")?).await? {
///     println!("{} for {:?}, {:?} wait", entry.holder, entry.held_for, entry.waiters);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockEntry {
    /// The rendered key.
    pub key: LockKey,
    /// The kind of its holder.
    pub state: EntryState,
    /// How many units of it are taken, if it is shared. Each reader that claims for its process counts as one unit, and
    /// so does each permit.
    pub units: Option<u64>,
    /// The mode: exclusive, or the mode of the claims that share it. `None` if the lock was released and only its
    /// `min_hold` lasts, or if the claims that shared it have just gone.
    pub mode: Option<Mode>,
    /// The holder with its lease. If the lease was handed on inside a process, this is the holder that opened it. The
    /// live view of that process names the current holder. If several claims share the lock, this is the one that came
    /// first, which may have left: [`Inspector::sharers`](crate::Inspector::sharers) lists them.
    pub holder: Holder,
    /// The value that a foreign client wrote, at most its first 1,025 bytes. An operator needs it to take the lock away
    /// from that client: see [`RevokeFrom::Foreign`](crate::RevokeFrom::Foreign).
    pub foreign_value: Option<Vec<u8>>,
    /// When the lock was granted, by the store's clock. `None` for a foreign holder, and for a shared lock, whose members
    /// came at different times: see [`FleetHolder::held_for`](crate::FleetHolder::held_for).
    pub granted_at: Option<SystemTime>,
    /// How long ago it was granted, by the store's clock.
    pub held_for: Option<Duration>,
    /// How many processes are in the store's queue. `None` if that could not be read. Processes that poll are not
    /// counted.
    pub waiters: Option<u64>,
    /// The ttl with which a holder of this library took the lock. A renewal extends the lease to this time. `None` for
    /// other holders.
    pub ttl: Option<Duration>,
    /// For how long the oldest open transaction has pinned the lock, by the store's clock. `None` if none has.
    pub pinned_for: Option<Duration>,
    /// Which sessions have pinned it, as the store names them: `session 7`.
    pub pinned_by: Option<String>,
    /// Details that only this store knows, each with a name for people and programs: `("pinned by", "pid 7, for 3s")`.
    pub details: Vec<(&'static str, String)>,
    /// The answer of each member, if the store is a quorum.
    pub members: Option<Arc<SyncReport<Option<Self>>>>,
}

/// The kind of holder of a lock that is not free.
///
/// ```
/// use lock_store::EntryState;
///
/// assert_eq!(EntryState::Foreign.as_str(), "foreign");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryState {
    /// A holder of this library.
    Held,
    /// Several holders of this library: readers, or holders of permits.
    Shared,
    /// The lock was released, and stays taken for the rest of its `min_hold`.
    Kept,
    /// A client of the classic protocol, or another program that wrote a string there.
    Foreign,
    /// Fewer members of a quorum than a majority have it, so nobody holds it.
    Minority,
    /// Members of a quorum that gave no answer decide whether it is held.
    Unknown,
}

impl EntryState {
    /// Returns the state in one lower-case word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Shared => "shared",
            Self::Kept => "kept",
            Self::Foreign => "foreign",
            Self::Minority => "minority",
            Self::Unknown => "unknown",
        }
    }
}

impl LockEntry {
    /// Describes a lock by its holder, at a time of the store's clock. [`Holder::since`] gives how long it has been
    /// held. A holder with neither an owner nor a description belongs to another library. A holder with only a
    /// description has released, and the lock stays taken for its `min_hold`.
    #[must_use]
    pub fn new(key: LockKey, holder: Holder, now: SystemTime) -> Self {
        let state = match (&holder.owner, &holder.info) {
            (Some(_), _) => EntryState::Held,
            (None, Some(_)) => EntryState::Kept,
            (None, None) => EntryState::Foreign,
        };
        let granted_at = holder.since;
        let held_for = granted_at.map(|since| now.duration_since(since));
        Self {
            key,
            state,
            units: None,
            mode: (state != EntryState::Kept).then_some(Mode::Exclusive),
            foreign_value: None,
            holder,
            granted_at,
            // The holder's estimate of the server's time may be slightly ahead.
            held_for: held_for.map(Result::unwrap_or_default),
            waiters: None,
            ttl: None,
            pinned_for: None,
            pinned_by: None,
            details: Vec::new(),
            members: None,
        }
    }

    /// Returns whether two members of a quorum have the lock of the same holder.
    #[must_use]
    pub fn has_holder_of(&self, other: &Self) -> bool {
        self.holder.owner == other.holder.owner && self.foreign_value == other.foreign_value
    }

    /// Returns how long ago the lease was renewed, or granted if it was not renewed since. A holder renews after a
    /// third of its ttl, unless it asked for another interval or for no renewal. If it has not renewed for much longer,
    /// it has died, hangs, or cannot reach the server.
    ///
    /// `None` if this is unknown: for foreign holders, for a key without an expiry, after
    /// `LockGuard::extend` by more than the ttl, and after the lease.
    #[must_use]
    pub fn renewed_ago(&self) -> Option<Duration> {
        if self.is_only_pinned() {
            return None;
        }
        self.ttl?.checked_sub(self.holder.ttl_left?)
    }

    /// Returns whether the lease is over, and the lock is kept by something else: see [`Holder::kept_by`].
    #[must_use]
    pub fn is_only_pinned(&self) -> bool {
        self.holder.kept_by.is_some() && self.holder.ttl_left == Some(Duration::ZERO)
    }

    /// Returns whether the key would stay taken forever, because it has no expiry.
    #[must_use]
    pub fn is_without_ttl(&self) -> bool {
        self.holder.ttl_left.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{EntryState, LockEntry};
    use crate::types::fencing::FencingToken;
    use crate::types::key::LockKey;
    use crate::types::owner::{Holder, HolderInfo, OwnerId};

    fn at(micros: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(micros)
    }

    #[test]
    fn a_holder_tells_since_when() {
        let mut holder = Holder::new(HolderInfo::new("h", 1, "s"), OwnerId::random(), FencingToken::new(7), None);
        holder.since = Some(UNIX_EPOCH + Duration::from_secs(7));
        let entry = LockEntry::new(LockKey::new("k").unwrap(), holder, at(9_500_000));
        assert_eq!(entry.granted_at, Some(UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(entry.held_for, Some(Duration::from_millis(2500)));
        assert!(entry.is_without_ttl() && entry.state == EntryState::Held);
    }

    #[test]
    fn a_holder_ahead_of_the_clock_is_new() {
        let mut holder =
            Holder::new(HolderInfo::new("h", 1, "s"), OwnerId::random(), FencingToken::new(7), Some(Duration::ZERO));
        holder.since = Some(UNIX_EPOCH + Duration::from_secs(7));
        let entry = LockEntry::new(LockKey::new("k").unwrap(), holder, at(5));
        assert_eq!(entry.held_for, Some(Duration::ZERO));
    }

    #[test]
    fn what_is_left_of_the_lease_tells_when_it_was_renewed() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let renewed = |ttl, ttl_left| {
            let holder = Holder::new(HolderInfo::new("h", 1, "s"), OwnerId::random(), FencingToken::new(7), ttl_left);
            let mut entry = LockEntry::new(LockKey::new("k").unwrap(), holder, at(5));
            entry.ttl = ttl;
            entry.renewed_ago()
        };
        assert_eq!(renewed(seconds(10), seconds(8)), seconds(2));
        assert_eq!(renewed(seconds(10), seconds(60)), None, "extended");
        assert_eq!((renewed(seconds(10), None), renewed(None, seconds(8))), (None, None));
    }

    #[test]
    fn foreign_text_has_no_age() {
        let entry = LockEntry::new(LockKey::new("k").unwrap(), Holder::foreign(None), at(5));
        assert_eq!((entry.state, entry.held_for, entry.granted_at), (EntryState::Foreign, None, None));
    }
}
