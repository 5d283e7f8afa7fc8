//! Turns events into counts and rows.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{FencingToken, GrantPath, Holder, LockEvent, LockEventKind, LockObserver, LossReason, Notice, Purpose};

use crate::catalog;
use crate::state::counts::Counts;
use crate::state::family::Family;
use crate::state::recovered::Recovered;
use crate::state::table::{Hold, Phase, Role, Row, Shard};
use crate::state::{Core, INSPECTOR_KEY, MAX_SITES};
use crate::words::labels::{
    ACQUIRE_OUTCOMES, LOSS_REASONS, PATHS, RELEASE_OUTCOMES, RENEWAL_OUTCOMES, WAIT_OUTCOMES, mode_of_event, place,
    site_of,
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

/// Counts the events of locks. Obtained from [`MetricsHandle::observer`](crate::MetricsHandle::observer).
///
/// [`install`](crate::install()) registers it for every manager of the process. Register it by hand only with a handle
/// of [`Builder::build`](crate::Builder::build).
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

    fn hears_waits(&self) -> bool {
        false
    }
}

impl Core {
    fn on_event(&self, event: &LockEvent<'_>) {
        // This lock is held as long as an inspector lives. It would be listed above every lock that people look for.
        if event.label.as_str() == INSPECTOR_KEY {
            if let LockEventKind::Acquired { token, path, .. } = &event.kind {
                self.note_time(event, *token, *path, Moment::coarse());
            }
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
            LockEventKind::Renewed { lease, lease_was_left, lease_left, lateness } => {
                self.renewed(event, *lease, *lease_was_left, *lease_left, *lateness);
            }
            LockEventKind::RenewFailed { .. } => {
                let family = self.counted(event.label.as_str(), event.store).number;
                self.table.shard(event.attempt).counts.of(family, mode_of_event(event)).renewals.count(RENEW_FAILED);
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

    /// Notes the store's clock, by which tokens are drawn. Only a fresh token was drawn a moment ago. A token that was
    /// handed on is as old as the lease, and a shared token is as old as its phase.
    fn note_time(&self, event: &LockEvent<'_>, token: FencingToken, path: GrantPath, now: Moment) {
        let fresh = matches!(path, GrantPath::Uncontended | GrantPath::Granted | GrantPath::Polled);
        if fresh
            && !event.mode.is_shared()
            && let Some(drawn) = token.drawn_at()
        {
            self.store(event.store).clock.note(drawn, now);
        }
    }

    /// Creates the row of an acquire that begins.
    fn begin(&self, event: &LockEvent<'_>, phase: Phase) -> Row {
        let store = self.store(event.store);
        let family = store.family(event.label.as_str());
        let site = family.site(event);
        if self.is_other(store) {
            self.overflowed("store");
        }
        if store.is_other(family) {
            self.overflowed("lock");
        }
        if site == MAX_SITES {
            self.overflowed("site");
        }
        Row::new(event, [family.number, site], phase)
    }

    /// Returns the number of the call site that held the lock.
    fn charged(&self, family: &Family, holder: &Holder) -> usize {
        let site = family.holder(site_of(holder.site()));
        if site == MAX_SITES {
            self.overflowed("holder_site");
        }
        site
    }

    fn wait_started(&self, event: &LockEvent<'_>) {
        let phase = Phase::Waiting { since: Moment::coarse(), limit: event.wait_limit, holder: None };
        let mut row = self.begin(event, phase);
        // This is code of the application, so it runs before a shard is locked. It runs here because the caller is
        // running: later events may come from another thread.
        row.trace = self.settings.traces.current().map(Box::new);
        self.table.shard(event.attempt).rows.insert(event.attempt, row);
    }

    /// Records the holder that blocks an acquire. It adds no row: this may come after the caller's terminal event, from
    /// another thread, and a row added then would stay for ever.
    fn contended(&self, event: &LockEvent<'_>, holder: Option<&Holder>) {
        let seen = holder.map(|holder| Box::new(holder.clone()));
        let mut shard = self.table.shard(event.attempt);
        if let Some(Row { phase: Phase::Waiting { holder: last_seen, .. }, .. }) = shard.rows.get_mut(&event.attempt) {
            *last_seen = seen;
        }
    }

    fn failed(&self, event: &LockEvent<'_>, outcome: &'static str, waited: Option<Duration>, holder: Option<&Holder>) {
        let family = self.counted(event.label.as_str(), event.store);
        // A candidate for a role does not wait for a lock.
        let waited = waited.filter(|_| Role::of(event.purpose) != Role::Leader);
        let holder = holder.filter(|_| waited.is_some());
        let charged = holder.map(|holder| self.charged(family, holder));
        let mut shard = self.table.shard(event.attempt);
        let row = shard.rows.remove(&event.attempt);
        let counts = shard.counts.of(family.number, mode_of_event(event));
        counts.acquisitions.count(place(&ACQUIRE_OUTCOMES, outcome));
        if let Some(waited) = waited {
            counts.waited(WAIT_FAILED, waited, row.as_ref().and_then(Row::trace));
            charge(counts, charged, waited);
        }
        drop(shard);
        if let (Some(row), Some(waited), Some(holder)) = (&row, waited, holder) {
            self.contention.note(event.key, [row.family(), row.site()], holder, waited, outcome);
            if outcome == "timeout" {
                self.timeouts.note(event.key, row.family(), holder);
            }
        }
        // Freed after the shard is unlocked.
        drop(row);
    }

    fn acquired(&self, event: &LockEvent<'_>) {
        let LockEventKind::Acquired { waited, token, owner, path, lease_left, waited_for } = &event.kind else {
            return;
        };
        let now = Moment::coarse();
        self.note_time(event, *token, *path, now);
        let leads = Role::of(event.purpose) == Role::Leader;
        let blamed = waited_for.filter(|_| !leads);
        let charged = blamed.map(|holder| self.charged(self.family(event.label.as_str(), event.store), holder));
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
        let (numbers, trace) = if let Some(row) = rows.get_mut(&event.attempt) {
            row.phase = Phase::Held(hold);
            ([row.family(), row.site()], row.trace())
        } else {
            // The observer was registered during the wait, so the wait began before that.
            let row = self.begin(event, Phase::Held(hold));
            let numbers = [row.family(), row.site()];
            rows.insert(event.attempt, row);
            (numbers, None)
        };
        let counts = counts.of(numbers[0], mode_of_event(event));
        counts.acquisitions.count(ACQUIRED);
        counts.grants.count(path_place(*path));
        if !leads {
            counts.waited(WAIT_ACQUIRED, *waited, trace);
            charge(counts, charged, *waited);
        }
        drop(shard);
        self.timeouts.forget(event.key, numbers[0]);
        if let Some(holder) = blamed {
            self.contention.note(event.key, numbers, holder, *waited, ACQUIRE_OUTCOMES[ACQUIRED]);
        }
    }

    /// Counts a renewal. Adds no row, as in [`contended`](Self::contended).
    fn renewed(
        &self,
        event: &LockEvent<'_>,
        lease: Duration,
        lease_was_left: Duration,
        lease_left: Duration,
        lateness: Duration,
    ) {
        let family = self.counted(event.label.as_str(), event.store).number;
        let expiry = Moment::coarse().after(lease_left);
        let mut shard = self.table.shard(event.attempt);
        if let Some(Row { phase: Phase::Held(hold), .. }) = shard.rows.get_mut(&event.attempt) {
            hold.expiry = expiry;
        }
        // A grant from the queue is shorter than requested, and the first renewal extends it. That renewal is still
        // part of the grant.
        if lease < event.ttl && lease < lease_left {
            return;
        }
        shard.lateness.record_duration(catalog::RENEWAL_LATENESS.buckets(), lateness);
        let counts = shard.counts.of(family, mode_of_event(event));
        counts.renewals.count(RENEWED);
        if !lease.is_zero() {
            let ratio = lease_was_left.as_secs_f64() / lease.as_secs_f64();
            counts.lease_ratio.record(catalog::LEASE_RATIO.buckets(), ratio);
        }
    }

    fn ended(&self, event: &LockEvent<'_>, held: Duration, outcome: &'static str, count: impl FnOnce(&mut Counts)) {
        let mut shard = self.table.shard(event.attempt);
        let row = shard.rows.remove(&event.attempt);
        let family = row.as_ref().map_or_else(|| self.counted(event.label.as_str(), event.store).number, Row::family);
        let reentrant = matches!(&row, Some(Row { phase: Phase::Held(hold), .. }) if hold.reentrant);
        let counts = shard.counts.of(family, mode_of_event(event));
        // A lease that was handed over stays taken.
        if event.purpose == Purpose::Lease {
            return;
        }
        count(counts);
        if !reentrant {
            counts.holds.record_duration(catalog::HOLD.buckets(), held);
        }
        drop(shard);
        if let Some(Row { phase: Phase::Held(hold), .. }) = &row {
            if self.checked.any() {
                // By the next hold, the list of checked tokens may have lost this token.
                self.is_fenced(self.family(event.label.as_str(), event.store), hold);
            }
            if hold.reported {
                self.push_recovered(Recovered::new(event, hold, held, outcome));
            }
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
