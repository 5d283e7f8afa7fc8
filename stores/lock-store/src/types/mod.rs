//! The common vocabulary: keys, owners, tokens, modes, options, errors. This layer imports only from itself.

pub mod error;
pub mod fencing;
pub mod key;
pub mod mode;
pub mod naming;
pub mod options;
pub mod order;
pub mod owner;
pub mod system;
pub mod url;
