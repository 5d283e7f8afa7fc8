//! Says on standard error that a lock is still waited for. On a terminal, each message overwrites the one before.

use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::store::WaitProgress;
use lock_core::store::text::visible;

use crate::end::{flush, print_line, print_passing};

/// Whether a message is on the terminal that has not been removed.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Says how a wait is going.
pub(crate) fn tell(progress: &WaitProgress) {
    let line = format!("lockctl: {}", visible(&progress.to_string()));
    if !stderr().is_terminal() {
        return print_line(line);
    }
    SHOWN.store(true, Ordering::Relaxed);
    // A line that wraps could not be overwritten.
    print_passing(line.chars().take(columns().saturating_sub(1)).collect());
}

/// Removes the last message, before anything else uses the terminal.
pub(crate) fn end() {
    if SHOWN.swap(false, Ordering::Relaxed) {
        print_passing(String::new());
        flush();
    }
}

fn columns() -> usize {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(stderr())
        && size.ws_col > 0
    {
        return size.ws_col.into();
    }
    80
}
