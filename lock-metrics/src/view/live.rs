//! The current holds and waits, for people. They have keys, which no metric contains.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lock_core::{FencingToken, Holder, LockKey};

use crate::state::Core;
use crate::state::table::{Phase, Role, Row};
use crate::words::labels::MODES;
use crate::words::time::Moment;
use crate::words::trace::TraceId;

/// One hold or wait of this process.
///
/// ```
/// let metrics = lock_metrics::builder().build()?;
/// for lock in metrics.live_locks() {
///     println!("{lock:?}");
/// }
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveLock {
    /// The rendered key.
    pub key: LockKey,
    /// The lock name in metrics.
    pub lock: String,
    /// The store name in metrics. The same key in two stores means two locks.
    pub store: String,
    /// Its role, if it is more than a lock: `leader`, `candidate` or `job`.
    pub role: Option<&'static str>,
    /// The call site in this process that holds or waits.
    pub site: String,
    /// The mode: `write`, `read`, `permit` or `lease`.
    pub mode: &'static str,
    /// How many permits it has or wants. 0 if the lock has no permits.
    pub permits: u32,
    /// When the hold or wait began.
    pub since: SystemTime,
    /// How long ago it began.
    pub age: Duration,
    /// The trace in which it was requested, in 32 digits, if [`with_trace_ids`](crate::Builder::with_trace_ids) knows
    /// it.
    pub trace_id: Option<String>,
    /// Whether it holds or waits, with the details of that state.
    pub state: LiveState,
}

/// The state of a [`LiveLock`].
///
/// ```
/// use lock_metrics::LiveState;
///
/// let metrics = lock_metrics::builder().build()?;
/// let stuck = |lock: &lock_metrics::LiveLock| matches!(lock.state, LiveState::Held { stuck: true, .. });
/// assert_eq!(metrics.live_locks().filter(stuck).count(), 0);
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LiveState {
    /// It waits.
    #[non_exhaustive]
    Waiting {
        /// The last seen holder, if the store returned one.
        waits_for: Option<Holder>,
    },
    /// It holds the lock.
    #[non_exhaustive]
    Held {
        /// The fencing token of the grant.
        token: FencingToken,
        /// The first digits of the owner's identity: enough to recognise it, too few to act as the owner.
        owner: String,
        /// The time left of the lease. Zero if it should have been renewed by now.
        lease_left: Duration,
        /// The age at which it counts as stuck. `None` if it is never stuck, like a leader.
        stuck_after: Option<Duration>,
        /// Whether the hold is older than `stuck_after`.
        stuck: bool,
        /// Whether this hold is nested in another hold of the same task, which really holds the lock.
        reentrant: bool,
        /// Whether this process has checked a token of this lock at a write, of this hold or of an earlier one. A check
        /// is made by a [`FencingGate`](lock_core::FencingGate) or a [`FencedWrite`](lock_core::FencedWrite).
        fenced: bool,
    },
}

impl LiveLock {
    pub(crate) fn new(core: &Core, now: Moment, row: Row) -> Self {
        let (lock, site) = core.names(&row);
        let (lock, site) = (lock.to_owned(), site.to_owned());
        let (mode, permits) = (MODES[row.mode()], row.permits);
        let trace_id = row.trace().map(TraceId::to_hex);
        let family = core.nth_family(row.family()).1;
        let store = core.store_of(row.family()).0.to_owned();
        let role = match (row.role, &row.phase) {
            (Role::Lock, _) => None,
            (Role::Job, _) => Some("job"),
            (Role::Leader, Phase::Held(_)) => Some("leader"),
            (Role::Leader, Phase::Waiting { .. }) => Some("candidate"),
        };
        let (since, state) = match row.phase {
            Phase::Waiting { since, holder, .. } => (since, LiveState::Waiting { waits_for: holder.map(|seen| *seen) }),
            Phase::Held(hold) => {
                let state = LiveState::Held {
                    token: hold.token,
                    owner: hold.owner.to_hex().chars().take(4).collect(),
                    lease_left: hold.expiry.since(now),
                    stuck_after: (hold.stuck_at < Moment::LAST).then(|| hold.stuck_at.since(hold.since)),
                    stuck: now >= hold.stuck_at,
                    reentrant: hold.reentrant,
                    fenced: core.is_fenced(family, &hold),
                };
                (hold.since, state)
            }
        };
        let (since, age) = (since.to_system_time(), now.since(since));
        Self { key: row.key, lock, store, role, site, mode, permits, since, age, trace_id, state }
    }
}

/// Copies one shard at a time, so that a hundred thousand holds never block an acquire for long.
#[derive(Debug)]
pub(crate) struct LiveLocks {
    core: Arc<Core>,
    next_shard: usize,
    rows: std::vec::IntoIter<Row>,
}

impl LiveLocks {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, next_shard: 0, rows: Vec::new().into_iter() }
    }
}

impl Iterator for LiveLocks {
    type Item = LiveLock;

    fn next(&mut self) -> Option<LiveLock> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(LiveLock::new(&self.core, Moment::now(), row));
            }
            let shard = self.core.table.nth(self.next_shard)?;
            self.next_shard += 1;
            let rows: Vec<Row> = shard.rows.values().cloned().collect();
            drop(shard);
            self.rows = rows.into_iter();
        }
    }
}
