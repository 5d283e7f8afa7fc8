//! The request of one acquire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::claim::tag::LeaseTag;
use crate::engine::report::event_context::EventContext;
use crate::engine::shared::Caller;
use lock_store::contract::event::WaitProgress;
use lock_store::types::options::LockOptions;
use lock_store::types::owner::Holder;

/// The request of one acquire.
#[derive(Debug)]
pub(crate) struct LockSpec {
    pub(crate) events: EventContext,
    pub(crate) options: LockOptions,
    pub(crate) caller: Caller,
    /// Whether the caller may share a grant that the current task holds already.
    pub(crate) reentrant: bool,
    /// Whether the request belongs to work that a shutdown still serves until its time is up.
    pub(crate) accepted: bool,
    /// How long a release may have kept the key taken until now, by its `min_hold`. A quorum counts on it while a
    /// member has lost its data.
    pub(crate) kept_for: Duration,
    /// The function to call while the request waits.
    pub(crate) on_waiting: Option<OnWaiting>,
    /// The holder of the lease that is asked for, if it is one.
    pub(crate) lease: Option<LeaseTag>,
}

impl LockSpec {
    /// Returns whether the holder of the lease that is asked for has it already.
    pub(crate) fn is_of_same(&self, holder: Option<&Holder>) -> bool {
        self.lease.is_some_and(|tag| tag.is_of(holder.and_then(|holder| holder.owner)))
    }
}

/// The function that a request calls while it waits.
#[derive(Clone)]
pub(crate) struct OnWaiting(pub(crate) Arc<dyn Fn(&WaitProgress) + Send + Sync>);

impl fmt::Debug for OnWaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWaiting")
    }
}
