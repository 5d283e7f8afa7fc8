//! Forked processes: connections and watchdog stay with the parent.

use forkguard::Guard;

/// The process in which a value was made. Comparing it needs no system call.
#[derive(Clone, Debug)]
pub(crate) struct MadeIn(Guard);

impl MadeIn {
    /// Remembers the current process.
    pub(crate) fn this_process() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this process is a fork of the process in which it was made.
    pub(crate) fn was_forked(&self) -> bool {
        self.0.clone().detected_fork()
    }
}
