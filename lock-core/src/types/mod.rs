//! The common vocabulary: keys, owners, tokens, modes, options, errors. This layer imports only from itself.

pub(crate) mod error;
pub(crate) mod fencing;
pub(crate) mod key;
pub(crate) mod mode;
pub(crate) mod naming;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod stripe;
pub(crate) mod system;
pub(crate) mod url;
