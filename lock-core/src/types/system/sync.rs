//! The mutex of the gate, under a name of its own: a test builds the gate over another one, and runs its
//! threads in every order (`tests/interleavings/`).

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
