//! The data that every event of one acquire carries.

use std::sync::Arc;
use std::time::Duration;

use lock_store::contract::event::{LockEvent, LockEventKind, Notice, Observers, Purpose};
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::mode::Mode;
use lock_store::types::order::{OrderGraph, Taken};
use lock_store::types::owner::HolderInfo;
use lock_store::types::system::call_site::CallSite;
use lock_store::types::system::clock::Nanos;
use lock_store::types::system::fork::MadeIn;

/// The data that all acquires of one manager have in common.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The name of this host, as other processes see it.
    pub(crate) host: Arc<str>,
    /// Read once. A manager does not survive a fork, because its keeper's thread does not.
    pub(crate) pid: u32,
    /// The name of the store, as observers see it.
    pub(crate) store: Arc<str>,
    pub(crate) observers: Arc<Observers>,
    /// The process in which the manager was made.
    pub(crate) made_in: MadeIn,
    /// The text that other processes see in place of the call site, if it was set.
    pub(crate) seen_as: Option<Arc<str>>,
    /// Records the order in which locks are taken inside each other, if that is watched.
    pub(crate) order: Option<Arc<OrderGraph>>,
}

/// The caller and the lock of one acquire, for its events.
#[derive(Clone, Debug)]
pub(crate) struct EventContext {
    pub(crate) attempt: u64,
    pub(crate) key: LockKey,
    pub(crate) label: LockLabel,
    /// The place in the source where it is acquired.
    pub(crate) call_site: &'static CallSite,
    pub(crate) ttl: Nanos,
    pub(crate) stuck_after: Nanos,
    /// How long the caller waits at most. The greatest duration stands for no limit: an `Option` is twice as large.
    pub(crate) wait_limit: Nanos,
    /// The mode: exclusive, or how it shares the key.
    pub(crate) mode: Mode,
    pub(crate) purpose: Purpose,
    pub(crate) origin: Arc<Origin>,
}

impl EventContext {
    /// Describes the acquiring process to other processes.
    pub(crate) fn holder_info(&self) -> HolderInfo {
        let Origin { host, pid, seen_as, .. } = &*self.origin;
        let site = seen_as.as_ref().unwrap_or(&self.call_site.shared);
        HolderInfo::new(Arc::clone(host), *pid, Arc::clone(site)).with_lock(self.label.clone())
    }

    /// Notes that this lock is waited for while another is held.
    pub(crate) fn note_order(&self, held: &Self) {
        let Some(order) = &self.origin.order else { return };
        if held.key == self.key {
            return;
        }
        self.origin.observers.notice(&Notice::Nested { held: &held.label, wanted: &self.label });
        if let Some(inversion) = order.note(held.taken(), self.taken()) {
            tracing::warn!("{inversion}");
            self.origin.observers.notice(&Notice::OrderInverted { inversion: &inversion, store: &self.origin.store });
        }
    }

    fn taken(&self) -> Taken<'_> {
        Taken { label: &self.label, key: &self.key, site: self.call_site.name }
    }

    /// Sends one event to the observers.
    pub(crate) fn emit(&self, kind: LockEventKind<'_>) {
        let mut event = LockEvent::new(self.attempt, &self.label, &self.key, self.call_site.name, kind);
        event.store = &self.origin.store;
        (event.ttl, event.stuck_after) = (self.ttl.into(), self.stuck_after.into());
        event.wait_limit = Some(self.wait_limit).filter(|limit| *limit != Duration::MAX.into()).map(Duration::from);
        (event.mode, event.purpose) = (self.mode, self.purpose);
        self.origin.observers.event(&event);
    }

    /// Reports how the run of a job ended, if this is the lock of a job.
    pub(crate) fn emit_job_ended(&self, succeeded: bool) {
        if matches!(self.purpose, Purpose::Job { .. }) {
            let store = &self.origin.store;
            self.origin.observers.notice(&Notice::JobEnded { label: &self.label, store, succeeded });
        }
    }
}
