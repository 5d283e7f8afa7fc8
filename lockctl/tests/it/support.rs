//! Times that the servers of another crate's tests need.

use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
