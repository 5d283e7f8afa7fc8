//! What one acquire asks for.

use std::time::Duration;

use crate::engine::report::event_context::EventContext;
use crate::engine::shared::Caller;
use crate::types::options::LockOptions;

/// What a caller asks for.
#[derive(Debug)]
pub(crate) struct LockSpec {
    pub(crate) events: EventContext,
    pub(crate) options: LockOptions,
    pub(crate) caller: Caller,
    /// Whether a grant that the current task holds already may be shared.
    pub(crate) reentrant: bool,
    /// Whether this belongs to work that a shutdown still serves until its time is up.
    pub(crate) accepted: bool,
    /// For how long before now a release may have kept the key taken.
    pub(crate) kept_for: Duration,
}
