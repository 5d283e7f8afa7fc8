//! The events of locks, for observers such as metrics.

mod deadlock;
mod grant_path;
mod notice;
mod observers;
mod purpose;
mod quorum;
mod waiting;

use std::time::Duration;

use crate::types::error::{LockError, LossReason};
use crate::types::fencing::FencingToken;
use crate::types::key::{LockKey, LockLabel};
use crate::types::mode::Mode;
use crate::types::owner::{Holder, OwnerId};

pub use deadlock::{Deadlock, DeadlockMember};
pub use grant_path::GrantPath;
pub use notice::Notice;
pub use observers::{Observers, notify_all, observe_all};
pub use purpose::Purpose;
pub use quorum::{MemberHealth, MemberState, QuorumHealth};
pub use waiting::WaitProgress;

/// Receives every [`LockEvent`] and [`Notice`].
///
/// Called inline on the hot path, from the caller's task and from the keeper. Count the event and return. A panic is
/// caught and dropped, because telemetry must never break locking.
///
/// ```
/// use lock_core::{LockEvent, LockEventKind, LockManager, LockObserver};
///
/// struct Losses;
///
/// impl LockObserver for Losses {
///     fn on_event(&self, event: &LockEvent<'_>) {
///         if let LockEventKind::Lost { reason, .. } = &event.kind {
///             eprintln!("{} was lost: {reason}", event.key);
///         }
///     }
/// }
///
/// LockManager::in_memory().observe(Losses);
/// ```
pub trait LockObserver: Send + Sync + 'static {
    /// Receives one step in the life of one acquire.
    fn on_event(&self, event: &LockEvent<'_>);

    /// Receives a notice that does not belong to a single acquire.
    ///
    /// An observer that is added later gets the current state at once: the stores, and the connection, the eviction
    /// policy and the replication of each node.
    fn on_notice(&self, notice: &Notice<'_>) {
        let _ = notice;
    }

    /// Learns about a wait while it lasts: after a second, after ten seconds, and then each minute.
    ///
    /// Called from the waiting task. In a crowd of waiters some of these messages are left out.
    fn on_waiting(&self, progress: &WaitProgress) {
        let _ = progress;
    }

    /// Returns whether [`on_waiting`](Self::on_waiting) does anything.
    ///
    /// Each message costs a look at the store. A wait without a listener does not look, and asks again within a minute.
    fn hears_waits(&self) -> bool {
        true
    }
}

impl<F: Fn(&LockEvent<'_>) + Send + Sync + 'static> LockObserver for F {
    fn on_event(&self, event: &LockEvent<'_>) {
        self(event);
    }

    fn hears_waits(&self) -> bool {
        false
    }
}

/// One step in the life of one acquire.
///
/// The steps of one [`attempt`](Self::attempt) always follow this grammar, with exactly one terminal step. A gauge that
/// rises at one step and falls at another therefore cannot leak:
///
/// ```text
/// WaitStarted Contended*
///     ( Busy | TimedOut | Cancelled | Failed
///     | Acquired (Renewed | RenewFailed)* (Released | Lost | Abandoned) )
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockEvent<'a> {
    /// Identifies the acquire within this process.
    pub attempt: u64,
    /// The family of locks. It is the metric label.
    pub label: &'a LockLabel,
    /// The rendered key. Use it for logs and live views, never as a metric label.
    pub key: &'a LockKey,
    /// The function or source line that acquires.
    pub site: &'a str,
    /// The name of the store: the one that `LockManagerBuilder::store_name`
    /// gave it, otherwise its node, without credentials. In a namespace it is `name#prefix`. The same label in two
    /// stores means two locks.
    pub store: &'a str,
    /// The requested lease.
    pub ttl: Duration,
    /// The age at which the hold counts as stuck. For a role it is [`Duration::MAX`] or centuries: a role is never
    /// stuck unless the request says when.
    pub stuck_after: Duration,
    /// How long the caller is willing to wait. `None` if it waits without a limit.
    pub wait_limit: Option<Duration>,
    /// The requested mode. A downgrade does not change it.
    pub mode: Mode,
    /// The purpose of the lock.
    pub purpose: Purpose,
    /// The step.
    pub kind: LockEventKind<'a>,
}

impl<'a> LockEvent<'a> {
    /// Builds an event, for tests of observers.
    #[must_use]
    pub fn new(attempt: u64, label: &'a LockLabel, key: &'a LockKey, site: &'a str, kind: LockEventKind<'a>) -> Self {
        const TTL: Duration = Duration::from_secs(30);
        const STUCK_AFTER: Duration = Duration::from_secs(90);
        let (mode, purpose) = (Mode::Exclusive, Purpose::Lock);
        let (store, ttl, stuck_after, wait_limit) = ("memory", TTL, STUCK_AFTER, None);
        Self { attempt, label, key, site, store, ttl, stuck_after, wait_limit, mode, purpose, kind }
    }
}

/// The step of a [`LockEvent`].
///
/// ```
/// use lock_core::{LockEvent, LockEventKind, LockManager};
///
/// LockManager::in_memory().observe(|event: &LockEvent<'_>| {
///     if let LockEventKind::Acquired { .. } = event.kind {
///         println!("{} holds {}", event.site, event.key);
///     }
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockEventKind<'a> {
    /// An acquire began.
    WaitStarted,
    /// The lock was found taken, and the caller waits. Sent again whenever the seen holder changes.
    Contended {
        /// The holder, if the store could tell.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the lock was taken and the caller did not want to wait.
    Busy {
        /// The time since the acquire began.
        waited: Duration,
        /// The holder, if the store could tell.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the lock stayed taken for the whole wait.
    TimedOut {
        /// The time since the acquire began.
        waited: Duration,
        /// The last seen holder.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the caller dropped the acquire.
    Cancelled {
        /// The time since the acquire began.
        waited: Duration,
        /// The last seen holder.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the acquire failed for another reason than a taken lock.
    Failed {
        /// The time since the acquire began.
        waited: Duration,
        /// The reason.
        error: &'a LockError,
    },
    /// The lock was granted.
    Acquired {
        /// The time since the acquire began.
        waited: Duration,
        /// The fencing token of the grant.
        token: FencingToken,
        /// The identity of the grant.
        owner: OwnerId,
        /// How the lock was granted.
        path: GrantPath,
        /// The time left of the lease.
        lease_left: Duration,
        /// The last holder that this caller waited for, if it waited.
        waited_for: Option<&'a Holder>,
    },
    /// The watchdog extended the lease.
    Renewed {
        /// How long a lease the store had granted or confirmed before. It is shorter than the ttl if locks end with a
        /// session, and if the grant came through a queue: the first renewal extends such a grant to the ttl.
        lease: Duration,
        /// The time that was left of the lease before.
        lease_was_left: Duration,
        /// The time that is left now.
        lease_left: Duration,
        /// How much later than planned the renewal was sent.
        lateness: Duration,
    },
    /// A renewal got no definite answer. It is retried until the lease ends.
    RenewFailed {
        /// The reason.
        error: &'a LockError,
        /// The time left of the lease.
        lease_left: Duration,
    },
    /// Terminal: the lock was released.
    Released {
        /// The time since the grant.
        held: Duration,
        /// Whether the guard was dropped instead of released.
        dropped: bool,
        /// Whether the store confirmed it. Otherwise an earlier try freed the lock, and its answer was lost.
        confirmed: bool,
    },
    /// Terminal: the lock was lost while it was held.
    Lost {
        /// The time since the grant.
        held: Duration,
        /// The reason.
        reason: LossReason,
    },
    /// Terminal: the lock was released, but the store could not be told before the lease ended.
    Abandoned {
        /// The time since the grant.
        held: Duration,
    },
}

impl LockEventKind<'_> {
    /// Returns whether this step ends its acquire.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        !matches!(
            self,
            Self::WaitStarted
                | Self::Contended { .. }
                | Self::Acquired { .. }
                | Self::Renewed { .. }
                | Self::RenewFailed { .. }
        )
    }
}
