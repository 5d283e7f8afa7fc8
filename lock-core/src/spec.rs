//! What one acquire asks for.

use crate::engine::Caller;
use crate::event_context::EventContext;
use crate::options::LockOptions;

/// What a caller asks for.
#[derive(Debug)]
pub(crate) struct LockSpec {
    pub(crate) events: EventContext,
    pub(crate) options: LockOptions,
    pub(crate) caller: Caller,
    /// Whether a grant that the current task holds already may be shared.
    pub(crate) reentrant: bool,
}
