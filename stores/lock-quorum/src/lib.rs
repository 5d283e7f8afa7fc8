//! One lock over several independent stores: it is held while a majority of them holds it.
//!
//! RedLock, with what it lacks: tokens that rise, members that may restart, members that may be added.

mod acquire;
mod inspect;
mod marks;
mod members;
mod queries;
mod release;
mod repair;
mod round;
mod run;
mod session;
mod shared;
mod store;
mod turns;
#[cfg(feature = "redis")]
mod url;

#[cfg(feature = "redis")]
#[doc(hidden)]
pub use url::take_members;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::members::health::RoundCounts;
use crate::members::{Member, MemberTime};
use crate::shared::Shared;
use crate::turns::Turns;
use lock_store::contract::backend::{AnyBackend, MemberList};
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::{MAX_TTL, MIN_RENEWED_TTL};
use lock_store::types::system::sync::Mutex;

/// One lock over several independent stores: it is held while a majority of them holds it.
///
/// It survives the loss of any minority of its members, data included, without a moment of two holders. It needs
/// an odd number of members, three at least, that fail independently: servers without replicas of each other, on
/// different machines. Clients of the RedLock algorithm in other languages that use the same members exclude it
/// and are excluded by it.
///
/// A member that restarts or is flushed may have given a lock away before. It says since when it has kept its data,
/// and does not count until every lease from before has ended: [`with_max_ttl`](Self::with_max_ttl) bounds that
/// time and every ttl. A new quorum begins the same way, unless [`init`](Self::init) has been called once.
///
/// Every process must name the same members. Members are added or removed one at a time: change the list in one
/// process after the other, then the next member.
///
/// Waiters poll, one per process and key: a queue over all processes does not exist.
///
/// ```
/// use lock_core::{AnyBackend, LockManager, MemoryStore, Quorum};
///
/// # async fn demo() -> Result<(), lock_core::LockError> {
/// let members = ["a", "b", "c"].map(|name| AnyBackend::new(MemoryStore::new()).named(name));
/// let locks = LockManager::builder(Quorum::of(members)?).build()?;
/// let guard = locks.lock("report").await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Quorum {
    shared: Arc<Shared>,
}

/// The meaning of a member's restart.
///
/// ```
/// use lock_core::{AnyBackend, MemoryStore, Quorum, Restarts};
///
/// let members = ["a", "b", "c"].map(|name| AnyBackend::new(MemoryStore::new()).named(name));
/// let quorum = Quorum::of(members)?.with_restarts(Restarts::Remember);
/// # drop(quorum);
/// # Ok::<(), lock_core::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Restarts {
    /// It may have lost what it granted, so it does not count for a while. The default.
    #[default]
    Forget,
    /// It loses nothing, as with `appendfsync always` on a disk that keeps what it confirmed: it counts at once.
    Remember,
}

impl Quorum {
    /// Joins stores to a quorum, of which a majority must agree.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) for fewer than three members, and for
    /// two of the same name.
    pub fn of(members: impl IntoIterator<Item = AnyBackend>) -> Result<Self> {
        let members: Vec<Member> = members.into_iter().map(Member::new).collect();
        let mut names: Vec<String> = members.iter().map(|member| (*member.name).to_owned()).collect();
        names.sort_unstable();
        let count = names.len();
        if count < 3 {
            return Err(LockError::misconfigured(format!(
                "a quorum of {count} cannot lose a member; name at least three independent stores, or use one by its \
                 own URL",
            )));
        }
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LockError::misconfigured(format!(
                "two members of the quorum are named {}: each store votes once; name different ones, or use \
                 AnyBackend::named",
                pair[0],
            )));
        }
        if let Some(name) = names.iter().find(|name| name.contains([',', '|'])) {
            return Err(LockError::misconfigured(format!(
                "{name:?} cannot be the name of a member: it contains a comma or a bar; use AnyBackend::named",
            )));
        }
        if count.is_multiple_of(2) {
            tracing::warn!(
                members = count,
                "a quorum of an even number of members survives no more failures than one of a member less; add one, or \
                 remove one"
            );
        }
        let list = MemberList::new(names, count / 2 + 1, Duration::from_secs(60));
        let name = members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(",").into();
        let shared = Shared {
            time: MemberTime::of(count),
            members,
            name,
            list,
            restarts: Restarts::Forget,
            sessions: Arc::default(),
            turns: Turns::default(),
            rounds: RoundCounts::default(),
            newest: AtomicU64::new(0),
            lists_read: AtomicBool::new(false),
            clock: OnceLock::new(),
            home: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Asks for more than a majority, up to all of the members, which others call a MultiLock: the lock then lasts
    /// only while they all are there.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) for less than a majority, and for more
    /// members than there are.
    pub fn with_majority(self, members: usize) -> Result<Self> {
        let all = self.shared.members.len();
        if members <= all / 2 || members > all {
            return Err(LockError::misconfigured(format!(
                "{members} of {all} members is not a majority that can be reached; use {} to {all}",
                all / 2 + 1,
            )));
        }
        Ok(self.edit(|shared| shared.list.majority = members))
    }

    /// Bounds the ttl of every lock, and with it for how long a member that lost its data does not count. Default one
    /// minute.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Misconfigured`](lock_store::LockErrorKind::Misconfigured) for less than a second, and for more than
    /// 30 days.
    pub fn with_max_ttl(self, max_ttl: Duration) -> Result<Self> {
        if !(MIN_RENEWED_TTL..=MAX_TTL).contains(&max_ttl) {
            return Err(LockError::misconfigured(format!(
                "a max_ttl of {max_ttl:?} is out of bounds; use between {MIN_RENEWED_TTL:?} and 30 days, for example 60s",
            )));
        }
        Ok(self.edit(|shared| shared.list.max_ttl = max_ttl))
    }

    /// Says whether members may lose data when they restart.
    #[must_use]
    pub fn with_restarts(self, restarts: Restarts) -> Self {
        self.edit(|shared| shared.restarts = restarts)
    }

    /// Declares that no member has ever granted a lock that may still be held: they count from now on. For a quorum
    /// that is new; otherwise two processes may hold one lock.
    ///
    /// # Errors
    ///
    /// The errors of the first member that fails.
    ///
    /// # Cancel safety
    ///
    /// Members that were not told yet stay as they are. Safe to repeat.
    pub async fn init(&self) -> Result<()> {
        for member in &self.shared.members {
            member.backend().vouch().await?;
        }
        Ok(())
    }

    /// Returns the list of its members.
    #[doc(hidden)]
    #[must_use]
    pub fn list(&self) -> &MemberList {
        &self.shared.list
    }

    /// Returns whether every majority of it meets every majority of another list.
    #[doc(hidden)]
    #[must_use]
    pub fn fits(&self, other: &MemberList) -> bool {
        members::fit_together(&self.shared.list, other)
    }

    /// Returns whether members that restart count at once.
    #[doc(hidden)]
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.shared.restarts == Restarts::Remember
    }

    /// Changes a setting. It is not in use yet, unless it was cloned.
    fn edit(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        match Arc::get_mut(&mut self.shared) {
            Some(shared) => change(shared),
            None => tracing::warn!("a quorum that is in use keeps its settings; make them before it is cloned"),
        }
        self
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quorum({} of {})", self.shared.list.majority, self.shared.names().join(", "))
    }
}
