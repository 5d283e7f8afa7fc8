//! Forked processes: connections and watchdog stay with the parent.

use forkguard::Guard;

/// The process in which a value was made. Comparing it needs no system call.
#[derive(Clone, Debug)]
pub struct MadeIn(Guard);

impl MadeIn {
    /// Remembers the current process.
    #[must_use]
    pub fn this_process() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this process is a fork of the process in which it was made.
    #[must_use]
    #[inline]
    pub fn was_forked(&self) -> bool {
        self.0.clone().detected_fork()
    }
}
