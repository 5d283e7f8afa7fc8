//! A mutex that ignores whether a thread panicked while it held it.
//!
//! Every caller leaves the protected value complete, so a panic does no harm. It wraps the standard library's mutex. A
//! mutex with its own table of waiting threads could stay locked in a forked child. A test builds the gate over another
//! mutex, which runs its threads in every order (`tests/interleavings/`).

pub use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Mutual exclusion of threads, without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
