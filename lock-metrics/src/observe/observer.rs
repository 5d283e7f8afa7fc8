//! Turns events into counts and rows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{
    GrantPath, Holder, LockError, LockErrorKind, LockEvent, LockEventKind, LockObserver, LossReason, Notice,
    QuorumHealth,
};

use crate::catalog;
use crate::state::counts::Counts;
use crate::state::recovered::Recovered;
use crate::state::table::{Hold, Phase, Row, Shard};
use crate::state::{Core, INSPECTOR_KEY, Node};
use crate::words::labels::{
    ACQUIRE_OUTCOMES, CHANGES, DEADLOCK_ROLES, ERROR_KINDS, LOSS_REASONS, MEMBER_STATES, MODES, OPS, PATHS, PHASES,
    POLICIES, REDIRECTIONS, RELEASE_OUTCOMES, RENEWAL_OUTCOMES, WAIT_OUTCOMES, mode_of, place,
};
use crate::words::time::Moment;

// The hot path counts by index, which is found at compile time.
const ACQUIRED: usize = place(&ACQUIRE_OUTCOMES, "acquired");
const RELEASED: usize = place(&RELEASE_OUTCOMES, "released");
const DROPPED: usize = place(&RELEASE_OUTCOMES, "dropped");
const UNCONFIRMED: usize = place(&RELEASE_OUTCOMES, "unconfirmed");
const SHUT_DOWN: usize = place(&RELEASE_OUTCOMES, "shut_down");
const ABANDONED: usize = place(&RELEASE_OUTCOMES, "abandoned");
const RENEWED: usize = place(&RENEWAL_OUTCOMES, "ok");
const RENEW_FAILED: usize = place(&RENEWAL_OUTCOMES, "error");
const WAIT_ACQUIRED: usize = place(&WAIT_OUTCOMES, "acquired");
const WAIT_FAILED: usize = place(&WAIT_OUTCOMES, "failed");
const MASTER_MOVED: usize = place(&CHANGES, "master_moved");
const SLOTS: usize = place(&CHANGES, "slots");
const FIRST: usize = place(&PHASES, "first");
const SECOND: usize = place(&PHASES, "second");
const VICTIM: usize = place(&DEADLOCK_ROLES, "victim");
const MEMBER: usize = place(&DEADLOCK_ROLES, "member");
// What belongs to no acquire is counted here; none of it is shown by mode.
const WRITE: usize = place(&MODES, "write");

/// Counts what happens to locks. Obtained from [`MetricsHandle::observer`](crate::MetricsHandle::observer).
///
/// [`install`](crate::install()) registers it for every manager of the process. Register it by hand
/// only with a handle of [`Builder::build`](crate::Builder::build).
///
/// ```
/// use lock_core::LockManager;
///
/// let metrics = lock_metrics::builder().build()?;
/// // Only this manager is counted.
/// LockManager::in_memory().observe(metrics.observer());
/// # Ok::<(), lock_metrics::InstallError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LockMetrics(pub(crate) Arc<Core>);

impl LockObserver for LockMetrics {
    fn on_event(&self, event: &LockEvent<'_>) {
        self.0.on_event(event);
    }

    fn on_notice(&self, notice: &Notice<'_>) {
        self.0.on_notice(notice);
    }
}

impl Core {
    fn on_event(&self, event: &LockEvent<'_>) {
        // Held for as long as an inspector lives, it would be listed above every lock that people look
        // for.
        if event.label.as_str() == INSPECTOR_KEY {
            return;
        }
        match &event.kind {
            LockEventKind::WaitStarted => self.wait_started(event),
            LockEventKind::Contended { holder } => self.contended(event, *holder),
            LockEventKind::Busy { .. } => self.failed(event, "busy", None, None),
            LockEventKind::TimedOut { waited, holder } => self.failed(event, "timeout", Some(*waited), *holder),
            LockEventKind::Cancelled { waited, holder } => self.failed(event, "cancelled", Some(*waited), *holder),
            LockEventKind::Failed { waited, .. } => self.failed(event, "error", Some(*waited), None),
            LockEventKind::Acquired { .. } => self.acquired(event),
            LockEventKind::Renewed { lease_was_left, lease_left, lateness } => {
                self.renewed(event, *lease_was_left, *lease_left, *lateness);
            }
            LockEventKind::RenewFailed { .. } => {
                let family = self.family(event.label.as_str()).number;
                self.table.shard(event.attempt).counts.of(family, mode_of(event.mode)).renewals.count(RENEW_FAILED);
            }
            LockEventKind::Released { held, dropped, confirmed } => {
                let outcome = match (confirmed, dropped) {
                    (false, _) => UNCONFIRMED,
                    (true, true) => DROPPED,
                    (true, false) => RELEASED,
                };
                self.ended(event, *held, RELEASE_OUTCOMES[outcome], |counts| counts.releases.count(outcome));
            }
            LockEventKind::Lost { held, reason: LossReason::ShutDown } => {
                self.ended(event, *held, RELEASE_OUTCOMES[SHUT_DOWN], |counts| counts.releases.count(SHUT_DOWN));
            }
            LockEventKind::Lost { held, reason } => {
                let reason = reason.as_str();
                self.ended(event, *held, reason, |counts| counts.lost.count(place(&LOSS_REASONS, reason)));
            }
            LockEventKind::Abandoned { held } => {
                self.ended(event, *held, RELEASE_OUTCOMES[ABANDONED], |counts| counts.releases.count(ABANDONED));
            }
            _ => {}
        }
    }

    /// Creates the row of an acquire that begins.
    fn begin(&self, event: &LockEvent<'_>, phase: Phase) -> Row {
        let family = self.family(event.label.as_str());
        if std::ptr::eq(family, &self.other) {
            self.label_overflow.fetch_add(1, Ordering::Relaxed);
        }
        let site = family.site(event);
        Row::new(event, [family.number, site, self.store(family, event.store)], phase)
    }

    fn wait_started(&self, event: &LockEvent<'_>) {
        let mut row = self.begin(event, Phase::Waiting { since: Moment::coarse(), holder: None });
        // Code of the application, and so before a shard is locked. The caller runs here: later it may not.
        row.trace = self.settings.traces.current().map(Box::new);
        self.table.shard(event.attempt).rows.insert(event.attempt, row);
    }

    /// Records the holder that blocks an acquire. Adds no row: this may come after the caller's
    /// terminal event, from another thread, and a row added then would stay for ever.
    fn contended(&self, event: &LockEvent<'_>, holder: Option<&Holder>) {
        let seen = holder.map(|holder| Box::new(holder.clone()));
        let mut shard = self.table.shard(event.attempt);
        if let Some(Row { phase: Phase::Waiting { holder: last_seen, .. }, .. }) = shard.rows.get_mut(&event.attempt) {
            *last_seen = seen;
        }
    }

    fn failed(&self, event: &LockEvent<'_>, outcome: &str, waited: Option<Duration>, holder: Option<&Holder>) {
        let family = self.family(event.label.as_str());
        let charged = holder.map(|holder| family.holder(holder.site()));
        let mut shard = self.table.shard(event.attempt);
        let row = shard.rows.remove(&event.attempt);
        let counts = shard.counts.of(family.number, mode_of(event.mode));
        counts.acquisitions.count(place(&ACQUIRE_OUTCOMES, outcome));
        if let Some(waited) = waited {
            counts.waited(WAIT_FAILED, waited, row.as_ref().and_then(Row::trace));
            charge(counts, charged, waited);
        }
        drop(shard);
        // Freed outside the lock.
        drop(row);
    }

    fn acquired(&self, event: &LockEvent<'_>) {
        let LockEventKind::Acquired { waited, token, owner, path, lease_left, waited_for } = &event.kind else {
            return;
        };
        let now = Moment::coarse();
        let charged = waited_for.map(|holder| self.family(event.label.as_str()).holder(holder.site()));
        let hold = Hold {
            since: now,
            expiry: now.after(*lease_left),
            token: *token,
            owner: *owner,
            stuck_at: now.after(event.stuck_after),
            reentrant: *path == GrantPath::Reentrant,
            reported: false,
        };
        let mut shard = self.table.shard(event.attempt);
        let Shard { rows, counts, next_stuck, .. } = &mut *shard;
        *next_stuck = next_stuck.earlier(hold.stuck_at);
        let (family, trace) = if let Some(row) = rows.get_mut(&event.attempt) {
            row.phase = Phase::Held(hold);
            (row.family(), row.trace())
        } else {
            // The observer was registered during the wait: the wait began before that.
            let row = self.begin(event, Phase::Held(hold));
            let family = row.family();
            rows.insert(event.attempt, row);
            (family, None)
        };
        let counts = counts.of(family, mode_of(event.mode));
        counts.acquisitions.count(ACQUIRED);
        counts.grants.count(path_place(*path));
        counts.waited(WAIT_ACQUIRED, *waited, trace);
        charge(counts, charged, *waited);
    }

    /// Counts a renewal. Adds no row, as in [`contended`](Self::contended).
    fn renewed(&self, event: &LockEvent<'_>, lease_was_left: Duration, lease_left: Duration, lateness: Duration) {
        let family = self.family(event.label.as_str()).number;
        let expiry = Moment::coarse().after(lease_left);
        let mut shard = self.table.shard(event.attempt);
        if let Some(Row { phase: Phase::Held(hold), .. }) = shard.rows.get_mut(&event.attempt) {
            hold.expiry = expiry;
        }
        shard.lateness.record_duration(catalog::RENEWAL_LATENESS.buckets(), lateness);
        let counts = shard.counts.of(family, mode_of(event.mode));
        counts.renewals.count(RENEWED);
        if !event.ttl.is_zero() {
            let ratio = lease_was_left.as_secs_f64() / event.ttl.as_secs_f64();
            counts.lease_ratio.record(catalog::LEASE_RATIO.buckets(), ratio);
        }
    }

    fn ended(&self, event: &LockEvent<'_>, held: Duration, outcome: &'static str, count: impl FnOnce(&mut Counts)) {
        let mut shard = self.table.shard(event.attempt);
        let row = shard.rows.remove(&event.attempt);
        let family = row.as_ref().map_or_else(|| self.family(event.label.as_str()).number, Row::family);
        let reentrant = matches!(&row, Some(Row { phase: Phase::Held(hold), .. }) if hold.reentrant);
        let counts = shard.counts.of(family, mode_of(event.mode));
        count(counts);
        if !reentrant {
            counts.holds.record_duration(catalog::HOLD.buckets(), held);
        }
        drop(shard);
        if let Some(Row { phase: Phase::Held(hold), .. }) = &row {
            if self.checked.any() {
                // By the next hold its token may be forgotten.
                self.is_fenced(self.family(event.label.as_str()), hold);
            }
            if hold.reported {
                self.push_recovered(Recovered::new(event, hold, held, outcome));
            }
        }
    }

    fn locked_node(&self, name: &str) -> MutexGuard<'_, Node> {
        self.node(name).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_quorum(&self, name: &str, health: &QuorumHealth) {
        let mut node = self.locked_node(name);
        let members = node.quorum.get_or_insert_default();
        members.states = [0; MEMBER_STATES.len()];
        for member in &health.members {
            if let Some(count) = members.states.get_mut(place(&MEMBER_STATES, member.state.as_str())) {
                *count += 1;
            }
        }
        members.majority = u32::try_from(health.majority).unwrap_or(u32::MAX);
        members.degraded_holds = u32::try_from(health.degraded_holds).unwrap_or(u32::MAX);
        members.rounds[FIRST] += health.rounds;
        members.rounds[SECOND] += health.second_rounds;
        drop(node);
        for member in &health.members {
            *self.locked_node(&member.name).repairs.get_or_insert_default() += member.repairs;
        }
    }

    fn on_notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Command { op, node, elapsed, error } => {
                let op = OPS.iter().position(|known| known == op).unwrap_or(OPS.len() - 1);
                let mut node = self.locked_node(node);
                node.commands[op].record_duration(catalog::COMMAND.buckets(), *elapsed);
                if let Some(error) = error {
                    node.errors.count(place(&ERROR_KINDS, error_kind(error)));
                }
            }
            Notice::Connection { node, up } => {
                self.locked_node(node).connected = Some(*up);
            }
            Notice::NodeLeft { node } => {
                // Nothing is known of it any more, and nothing to be alarmed about.
                let mut node = self.locked_node(node);
                (node.connected, node.policy, node.replicas, node.slots_open) = (None, None, None, None);
            }
            Notice::EvictionPolicy { node, policy } => {
                let place = POLICIES.iter().position(|known| known == policy).unwrap_or(POLICIES.len() - 1);
                let mut node = self.locked_node(node);
                node.policy = (*policy != "noeviction").then_some(place);
            }
            Notice::Failover { node } => self.locked_node(node).failovers += 1,
            Notice::Moved { node } => self.locked_node(node).changes[MASTER_MOVED] += 1,
            Notice::SlotsMoved { node, times } => self.locked_node(node).changes[SLOTS] += times,
            Notice::SlotsOpen { node, slots } => self.locked_node(node).slots_open = Some(*slots),
            Notice::Redirected { node, kind, times } => {
                if let Some(count) = self.locked_node(node).redirections.get_mut(place(&REDIRECTIONS, kind)) {
                    *count += times;
                }
            }
            Notice::Replication { node, replicas, min_replicas } => {
                self.locked_node(node).replicas = Some((*replicas, *min_replicas));
            }
            Notice::Confirmation { node, elapsed, enough } => {
                let mut node = self.locked_node(node);
                node.confirmations.record_duration(catalog::CONFIRM.buckets(), *elapsed);
                node.shortfalls += u64::from(!enough);
            }
            Notice::Quorum { node, health } => self.on_quorum(node, health),
            Notice::UnlockedRun { label } => {
                let family = self.family(label.as_str()).number;
                self.table.shard(0).counts.of(family, WRITE).unlocked_runs += 1;
            }
            Notice::FencingRegressed { label, .. } => {
                let family = self.family(label.as_str()).number;
                self.table.shard(0).counts.of(family, WRITE).fencing_regressions += 1;
            }
            Notice::FencingChecked { token } => self.checked.note(*token),
            Notice::FencingRejected { token, .. } => {
                self.checked.note(*token);
                self.fencing_rejections.fetch_add(1, Ordering::Relaxed);
            }
            Notice::OrderInverted { inversion } => {
                let family = self.family(inversion.wanted.as_str()).number;
                self.table.shard(0).counts.of(family, WRITE).order_inversions += 1;
            }
            Notice::Deadlocked { deadlock } => {
                let role = if deadlock.victim { VICTIM } else { MEMBER };
                self.deadlocks[role].fetch_add(1, Ordering::Relaxed);
            }
            Notice::JobEnded { label, succeeded: true } => self.family(label.as_str()).uses.succeeded(),
            Notice::Nested { held, wanted } => self.edges.note(held, wanted),
            _ => {}
        }
    }
}

/// Charges a wait to the call site that held the lock.
fn charge(counts: &mut Counts, holder: Option<usize>, waited: Duration) {
    if let Some(holder) = holder {
        counts.blocked_by(holder).record_duration(catalog::BLOCKED.buckets(), waited);
    }
}

/// [`place`] for the hot path.
fn path_place(path: GrantPath) -> usize {
    match path {
        GrantPath::Uncontended => const { place(&PATHS, "uncontended") },
        GrantPath::Handoff => const { place(&PATHS, "handoff") },
        rare => place(&PATHS, rare.as_str()),
    }
}

fn error_kind(error: &LockError) -> &'static str {
    match error.kind() {
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::Misconfigured => "misconfigured",
        _ => "other",
    }
}
