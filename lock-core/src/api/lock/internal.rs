//! The settings of a request that only this crate makes.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[cfg(feature = "tower")]
use crate::api::lock::AcceptedWork;
use crate::api::lock::LockRequest;
use crate::engine::claim::tag::LeaseTag;
use crate::engine::report::event_context::Origin;
use lock_store::contract::event::Purpose;
use lock_store::types::error::{LockError, Result};
use lock_store::types::naming::RequestedKeys;
use lock_store::types::options::LockOptions;

impl LockRequest {
    /// Returns the origin of this request, with its observers.
    pub(crate) fn origin(&self) -> Arc<Origin> {
        Arc::clone(self.manager.origin())
    }

    /// Asks in the name of another call, with its options.
    pub(crate) fn on_behalf_of(mut self, called_from: &'static Location<'static>, options: LockOptions) -> Self {
        (self.called_from, self.options) = (called_from, options);
        self
    }

    /// Sets the purpose of the lock.
    pub(crate) fn with_purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// Asks for a lease of a holder, whom others see in place of the call site.
    pub(crate) fn for_a_lease(mut self, tag: LeaseTag, seen_as: String) -> Self {
        (self.lease, self.seen_as) = (Some(tag), Some(seen_as.into()));
        self
    }

    /// Shows other processes a text in place of the call site.
    pub(crate) fn seen_as(mut self, what: Arc<str>) -> Self {
        self.seen_as = Some(what);
        self
    }

    /// Keeps the key taken for its `min_hold` even if this process dies.
    pub(crate) fn kept_if_crashed(mut self) -> Self {
        self.kept_if_crashed = true;
        // The key is already kept when the work ends, so no caller has to wait for the answer to the release.
        self.release_in_background()
    }

    /// Makes this a part of accepted work. A shutdown serves it until its time is up, and waits for it.
    #[cfg(feature = "tower")]
    pub(crate) fn accepted(mut self) -> (Self, AcceptedWork) {
        self.accepted = true;
        let work = AcceptedWork { _entry: self.manager.engine().enter(), _manager: self.manager.clone() };
        (self, work)
    }

    /// Sets since when a release may have kept the key taken. Used for a key that serves one run.
    pub(crate) fn kept_since(mut self, moment: SystemTime) -> Self {
        self.kept_since = Some(moment);
        self
    }

    /// Refuses to share the key, for a job. A run may take long: the manager's threshold for stuck locks does not
    /// apply, unless the request itself sets one.
    pub(crate) fn for_a_job(self, every: Option<Duration>) -> Self {
        let mut this = self.with_purpose(Purpose::Job { every });
        if this.options.stuck_after == this.manager.options().stuck_after {
            let usual = this.options.stuck_threshold();
            this.options.stuck_after = Some(every.map_or(Duration::MAX, |period| period.max(usual)));
        }
        match this.mode {
            Ok(mode) if mode.is_shared() => this.refused(LockError::misconfigured(
                "a job runs in one place, but readers and permits share their key; ask for it with lock(key)",
            )),
            _ => this,
        }
    }

    /// Appends a suffix to each key.
    pub(crate) fn with_key_suffix(mut self, suffix: &str) -> Self {
        self.keys = self.keys.and_then(|keys| match keys {
            RequestedKeys::One(key) => key.with_suffix(suffix).map(RequestedKeys::One),
            RequestedKeys::All(keys) => {
                let suffixed = keys.into_iter().map(|key| key.with_suffix(suffix)).collect::<Result<_>>();
                suffixed.map(RequestedKeys::All)
            }
        });
        self
    }

    /// Makes the acquire fail, because of a mistake that was found before it.
    pub(crate) fn refused(mut self, error: LockError) -> Self {
        self.keys = Err(self.about(error));
        self
    }

    /// Returns the first mistake: this one, with a key, unless the keys are wrong.
    pub(super) fn about(&self, error: LockError) -> LockError {
        match &self.keys {
            Ok(keys) => keys.as_slice().iter().fold(error, LockError::with_key),
            Err(earlier) => earlier.clone(),
        }
    }
}
