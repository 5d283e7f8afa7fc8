//! Says on standard error that a lock is still waited for. On a terminal, each message overwrites the one before, until
//! [`flush`](crate::end::flush) removes the last.

use std::io::stderr;

use lock_core::store::WaitProgress;
use lock_core::store::text::visible;

use crate::end::{print_line, print_passing};
use crate::screen;

/// Says how a wait is going.
pub(crate) fn tell(progress: &WaitProgress) {
    let line = format!("lockctl: {}", visible(&progress.to_string()));
    match screen::size(&stderr()) {
        // A line that wraps could not be overwritten.
        Some((_, columns)) => print_passing(screen::fitted(&line, columns - 1)),
        None => print_line(line),
    }
}
