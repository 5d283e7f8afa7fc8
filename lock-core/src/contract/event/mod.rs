//! The events of locks, for observers such as metrics.

mod deadlock;
mod grant_path;
mod observers;
mod purpose;
mod quorum;

use std::time::Duration;

use crate::types::error::{LockError, LossReason};
use crate::types::fencing::FencingToken;
use crate::types::key::{LockKey, LockLabel};
use crate::types::mode::Mode;
use crate::types::order::OrderInversion;
use crate::types::owner::{Holder, OwnerId};

pub use deadlock::{Deadlock, DeadlockMember};
pub use grant_path::GrantPath;
pub use observers::observe_all;
pub(crate) use observers::{Observers, notify_all};
pub use purpose::Purpose;
pub use quorum::{MemberHealth, MemberState, QuorumHealth};

/// Receives every [`LockEvent`] and [`Notice`].
///
/// Called inline, on the hot path, from the caller's task and from the keeper: count and return.
/// A panic is caught and dropped, because telemetry must never break locking.
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
    /// Takes note of one step in the life of one acquire.
    fn on_event(&self, event: &LockEvent<'_>);

    /// Takes note of something that belongs to no single acquire.
    ///
    /// An observer that is added later gets the current state at once: the connection, the
    /// eviction policy and the replication of each node.
    fn on_notice(&self, notice: &Notice<'_>) {
        let _ = notice;
    }
}

impl<F: Fn(&LockEvent<'_>) + Send + Sync + 'static> LockObserver for F {
    fn on_event(&self, event: &LockEvent<'_>) {
        self(event);
    }
}

/// One step in the life of one acquire.
///
/// The steps of one [`attempt`](Self::attempt) always follow this grammar, with exactly one
/// terminal step, so that a gauge that goes up at one and down at another cannot leak:
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
    /// The family of locks: the metric label.
    pub label: &'a LockLabel,
    /// The rendered key. For logs and live views, never for a metric label.
    pub key: &'a LockKey,
    /// The function or source line that acquires.
    pub site: &'a str,
    /// The name of the store: what [`LockManagerBuilder::store_name`](crate::LockManagerBuilder::store_name)
    /// gave it, else its node, without credentials.
    pub store: &'a str,
    /// The lease asked for.
    pub ttl: Duration,
    /// The age at which the hold counts as stuck.
    pub stuck_after: Duration,
    /// How it asked to share the key. A [downgrade](crate::LockGuard::downgrade) does not change it.
    pub mode: Mode,
    /// What the lock is for.
    pub purpose: Purpose,
    /// What happened.
    pub kind: LockEventKind<'a>,
}

impl<'a> LockEvent<'a> {
    /// Builds an event, for tests of observers.
    #[must_use]
    pub fn new(attempt: u64, label: &'a LockLabel, key: &'a LockKey, site: &'a str, kind: LockEventKind<'a>) -> Self {
        const TTL: Duration = Duration::from_secs(30);
        const STUCK_AFTER: Duration = Duration::from_secs(90);
        let (mode, purpose) = (Mode::Exclusive, Purpose::Lock);
        Self { attempt, label, key, site, store: "memory", ttl: TTL, stuck_after: STUCK_AFTER, mode, purpose, kind }
    }
}

/// What happened in a [`LockEvent`].
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
    /// The lock was found taken, and the caller waits. Sent whenever the holder seen changes.
    Contended {
        /// Who holds it, if the store could tell.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the lock was taken and the caller did not want to wait.
    Busy {
        /// Time since the acquire began.
        waited: Duration,
        /// Who holds it, if the store could tell.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the lock stayed taken for the whole wait.
    TimedOut {
        /// Time since the acquire began.
        waited: Duration,
        /// The last holder seen.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the caller dropped the acquire.
    Cancelled {
        /// Time since the acquire began.
        waited: Duration,
        /// The last holder seen.
        holder: Option<&'a Holder>,
    },
    /// Terminal: the acquire failed for another reason than a taken lock.
    Failed {
        /// Time since the acquire began.
        waited: Duration,
        /// Why.
        error: &'a LockError,
    },
    /// The lock was granted.
    Acquired {
        /// Time since the acquire began.
        waited: Duration,
        /// The fencing token of the grant.
        token: FencingToken,
        /// The identity of the grant.
        owner: OwnerId,
        /// How the lock was granted.
        path: GrantPath,
        /// The time left of the lease.
        lease_left: Duration,
        /// The holder that this caller saw last in its way, if it waited.
        waited_for: Option<&'a Holder>,
    },
    /// The watchdog prolonged the lease.
    Renewed {
        /// The time that was left of the lease before.
        lease_was_left: Duration,
        /// The time left now.
        lease_left: Duration,
        /// How much later than planned the renewal was sent.
        lateness: Duration,
    },
    /// A renewal got no definite answer. It is tried again until the lease ends.
    RenewFailed {
        /// Why.
        error: &'a LockError,
        /// The time left of the lease.
        lease_left: Duration,
    },
    /// Terminal: the lock was given back.
    Released {
        /// Time since the grant.
        held: Duration,
        /// Whether the guard was dropped instead of released.
        dropped: bool,
        /// Whether the store confirmed it; otherwise an earlier release did it, and its answer was lost.
        confirmed: bool,
    },
    /// Terminal: the lock was lost while it was held.
    Lost {
        /// Time since the grant.
        held: Duration,
        /// Why.
        reason: LossReason,
    },
    /// Terminal: the lock was released, but the store could not be told before the lease ended.
    Abandoned {
        /// Time since the grant.
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

/// Something that belongs to no single acquire.
///
/// ```
/// use lock_core::{LockEvent, LockObserver, Notice};
///
/// struct Connections;
///
/// impl LockObserver for Connections {
///     fn on_event(&self, _: &LockEvent<'_>) {}
///
///     fn on_notice(&self, notice: &Notice<'_>) {
///         if let Notice::Connection { node, up } = notice {
///             println!("{node} is {}", if *up { "up" } else { "down" });
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A command to the store ended.
    Command {
        /// What it did: `acquire`, `renew`, `release`, `withdraw`, `holder` or `deadlock`.
        op: &'static str,
        /// The node that served it, without credentials.
        node: &'a str,
        /// From send to answer.
        elapsed: Duration,
        /// Why it failed, if it did.
        error: Option<&'a LockError>,
    },
    /// The keeper's connection to a node came up or went down.
    Connection {
        /// The node, without credentials.
        node: &'a str,
        /// Whether it is up now.
        up: bool,
    },
    /// A node serves no locks any more, as a master of a cluster that another has replaced. No connection to it is
    /// kept.
    NodeLeft {
        /// The node, without credentials.
        node: &'a str,
    },
    /// Another server has taken over a node, or it was started again: its data have another history, and locks may be
    /// missing from it.
    Failover {
        /// The node, without credentials.
        node: &'a str,
    },
    /// The server of a node was found at another address.
    Moved {
        /// The node, without credentials. Its name stays the same.
        node: &'a str,
    },
    /// Slots of a cluster got other masters, since the last time.
    SlotsMoved {
        /// The nodes by which the cluster was named, without credentials.
        node: &'a str,
        /// How often.
        times: u64,
    },
    /// How many slots of a master of a cluster are open: being moved, from it or to it. Sent when the keeper has
    /// connected, and every minute.
    ///
    /// No lock of an open slot can be taken that is not there yet. A slot stays open if whatever moved it was stopped;
    /// `redis-cli --cluster fix` closes it.
    SlotsOpen {
        /// The master, without credentials.
        node: &'a str,
        /// How many.
        slots: u32,
    },
    /// A master of a cluster sent callers elsewhere, or had them ask again, since the last time.
    Redirected {
        /// The master, without credentials.
        node: &'a str,
        /// What it said: `moved`, `ask`, `try_again` or `no_master`.
        kind: &'static str,
        /// How often.
        times: u64,
    },
    /// Who has a copy of a node's locks, sent when the keeper has connected, and every minute.
    ///
    /// With replicas, with none that must have a write (`min-replicas-to-write`), and without
    /// [`Durability`](crate::Durability), a failover may lose locks that are held.
    Replication {
        /// The node, without credentials.
        node: &'a str,
        /// How many replicas are connected.
        replicas: u32,
        /// Without how many connected replicas the server refuses writes.
        min_replicas: u32,
    },
    /// Replicas or disks confirmed what a node had executed, or did not.
    Confirmation {
        /// The node, without credentials.
        node: &'a str,
        /// How long it took.
        elapsed: Duration,
        /// Whether as many confirmed as were asked for.
        enough: bool,
    },
    /// The members of a quorum, and what has happened there. Sent every two seconds.
    Quorum {
        /// The node: the names of its members, without credentials.
        node: &'a str,
        /// What this process knows of it.
        health: &'a QuorumHealth,
    },
    /// The `maxmemory-policy` of a node, sent when the keeper has connected. With any other than
    /// `noeviction` it may evict locks under memory pressure.
    EvictionPolicy {
        /// The node, without credentials.
        node: &'a str,
        /// The policy it reports.
        policy: &'a str,
    },
    /// A protected body ran without its lock, because the user allowed it.
    UnlockedRun {
        /// The family of locks.
        label: &'a LockLabel,
    },
    /// A write came with its token: a [`FencingGate`](crate::FencingGate) admitted it, or a
    /// [`FencedWrite`](crate::FencedWrite) takes it to where it is checked.
    FencingChecked {
        /// The token of the write.
        token: FencingToken,
    },
    /// A [`FencingGate`](crate::FencingGate) refused a stale token.
    FencingRejected {
        /// The token of the refused write.
        token: FencingToken,
        /// The newest token admitted.
        newest: FencingToken,
    },
    /// The run of a job ended, under its lock. Not sent if the lock was lost or its release could not be told to the
    /// store, or if the run was dropped: such a run is none.
    JobEnded {
        /// The family of locks.
        label: &'a LockLabel,
        /// Whether it returned something other than `Err`.
        succeeded: bool,
    },
    /// A lock is waited for while another is held. Sent each time, if the order is watched.
    Nested {
        /// The family of the lock that is held.
        held: &'a LockLabel,
        /// The family of the lock that is waited for.
        wanted: &'a LockLabel,
    },
    /// Two families of locks are taken in both orders, so that two callers can wait for each other. Sent once for
    /// each pair, if the order is watched.
    OrderInverted {
        /// Which, and where.
        inversion: &'a OrderInversion,
    },
    /// Tasks wait for each other. Each of them that finds it before it is broken says so, once.
    Deadlocked {
        /// Who waits for whom.
        deadlock: &'a Deadlock,
    },
    /// The store granted a token that is not greater than one it gave before: it lost data.
    FencingRegressed {
        /// The family of locks.
        label: &'a LockLabel,
        /// The token granted.
        token: FencingToken,
        /// The newest token seen before.
        newest: FencingToken,
    },
}
