//! The answer to a request for several locks at once.

use crate::types::fencing::FencingToken;
use crate::types::owner::Holder;

/// The answer to [`LockBackend::try_acquire_all`](crate::LockBackend::try_acquire_all).
///
/// ```
/// use lock_core::AttemptAll;
///
/// fn taken(answer: &AttemptAll) -> usize {
///     match answer {
///         AttemptAll::Granted { tokens } => tokens.len(),
///         _ => 0,
///     }
/// }
/// assert_eq!(taken(&AttemptAll::Apart), 0);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttemptAll {
    /// Every lock belongs to its claim, for the whole ttl from now.
    Granted {
        /// The first number of each claim's grant, in order. Tokens are only compared within one key, so
        /// they may all be the same.
        tokens: Vec<FencingToken>,
    },
    /// One of the locks belongs to somebody else, so none was taken.
    Held {
        /// The first such lock, in the order of the requests.
        index: usize,
        /// Who holds it, and for how long at most.
        holder: Holder,
    },
    /// The store cannot take these locks in one step, and has done nothing.
    Apart,
}
