//! Stripes: which stripe an id belongs to, and how many stripes a name has in this process.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use crate::engine::fnv::Fnv;
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::sync::Mutex;

/// The most stripes of one name.
pub(crate) const MAX_STRIPES: u32 = 4096;

/// How many names are remembered. A program with more names makes them up at run time; the last ones still count.
const MAX_NAMES: usize = 10_000;

/// Returns the stripe of an id: the 64-bit FNV-1a hash of its text, modulo the number of stripes. It is part of the
/// protocol between processes, so it never changes.
pub(crate) fn stripe_of(id: impl Display, count: u32) -> u32 {
    let mut hash = Fnv::new();
    // This writer never fails. If a `Display` fails, the text that it wrote so far counts.
    let _ = write!(hash, "{id}");
    // Less than `count`.
    u32::try_from(hash.0 % u64::from(count.max(1))).unwrap_or(0)
}

/// Names one stripe.
pub(crate) fn key_of(name: &LockKey, stripe: u32) -> Result<LockKey> {
    Ok(name.clone().with_suffix(&format!("#{stripe}"))?.with_stripe(stripe))
}

/// How many stripes each name has in this process. It detects two different numbers for one name.
#[derive(Debug, Default)]
pub(crate) struct Stripings(Mutex<HashMap<LockKey, u32>>);

impl Stripings {
    /// Notes the number of stripes of a name.
    ///
    /// # Errors
    ///
    /// `Misconfigured` if the name has another number here, or if the number is out of bounds.
    pub(crate) fn register(&self, name: &LockKey, count: u32) -> Result<()> {
        if !(1..=MAX_STRIPES).contains(&count) {
            return Err(LockError::misconfigured(format!(
                "{count} stripes are out of bounds; use between 1 and {MAX_STRIPES}"
            ))
            .with_key(name));
        }
        let mut counts = self.0.lock();
        let known = counts.get(name).copied();
        match known {
            Some(known) if known == count => Ok(()),
            Some(known) => Err(LockError::misconfigured(format!(
                "it has {known} stripes elsewhere in this process and {count} here, so one id would be two locks; use one \
                 number everywhere, with formerly({known}) while processes of the earlier version still run"
            ))
            .with_key(name)),
            None => {
                if counts.len() == MAX_NAMES {
                    counts.clear();
                }
                counts.insert(name.clone(), count);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
