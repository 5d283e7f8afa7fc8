//! `release_foreign.lua`: takes a lock away from a client of another library.

use std::sync::LazyLock;

use crate::protocol::steps::script::{Eval, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("release_foreign.lua")]]));

/// Deletes a key that holds exactly this value.
pub(crate) fn release_foreign(lock: &str, value: &[u8]) -> Eval {
    Eval::new(&SCRIPT, [lock].into_iter()).with(|arguments| {
        arguments.arg(value);
    })
}
