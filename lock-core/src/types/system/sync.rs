//! A mutex that does not care whether a thread panicked while it held it.
//!
//! What it protects is left whole by every caller, so there is nothing to recover from. It is the standard library's
//! inside: a mutex with a table of waiting threads of its own may be left locked in a forked child. The gate is built
//! over another one in a test, which runs its threads in every order (`tests/interleavings/`).

pub(crate) use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Mutual exclusion of threads, without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
