//! Forked processes: connections and watchdog stay with the parent.

use forkguard::Guard;

/// The process in which something was made. Costs no system call to compare with.
#[derive(Clone, Debug)]
pub(crate) struct MadeIn(Guard);

impl MadeIn {
    /// Remembers the process that runs now.
    pub(crate) fn this_process() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this is a fork of the process in which it was made.
    pub(crate) fn was_forked(&self) -> bool {
        self.0.clone().detected_fork()
    }
}
