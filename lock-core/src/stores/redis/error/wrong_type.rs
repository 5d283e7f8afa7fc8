//! Marks an error that is about the type of a key.

use std::error::Error;
use std::fmt;

use crate::types::error::LockError;

/// Marks an error of the server that says no more than that some key is of another type.
#[derive(Debug)]
pub(crate) struct WrongType;

impl WrongType {
    pub(crate) fn is_of(error: &LockError) -> bool {
        error.source().is_some_and(<dyn Error>::is::<Self>)
    }
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WRONGTYPE")
    }
}

impl Error for WrongType {}
