//! The marks of finished versions.

use std::time::Duration;

use crate::memory::State;
use lock_store::contract::backend::{Claim, DoneMark, JobVersion};
use lock_store::types::key::LockKey;
use lock_store::types::owner::HolderInfo;
use lock_store::types::system::clock::Timestamp;

/// A mark.
#[derive(Debug)]
pub(super) struct Marked {
    by: HolderInfo,
    at: Timestamp,
    forgotten: Timestamp,
}

impl State {
    pub(super) fn done(&self, key: &LockKey, version: &JobVersion, now: Timestamp) -> Option<DoneMark> {
        let marked = self.done.get(key)?.get(version).filter(|marked| marked.forgotten > now)?;
        Some(DoneMark::new(version.clone(), marked.by.clone(), now.since(marked.at)))
    }

    /// Writes a mark if the claim has the lock exclusively.
    pub(super) fn mark_done(
        &mut self,
        claim: &Claim,
        version: &JobVersion,
        keep: Option<Duration>,
        now: Timestamp,
    ) -> bool {
        if !self.owns(claim, now) {
            return false;
        }
        let Some(slot) = self.locks.get(&claim.key) else { return false };
        let forgotten = now.after(keep.unwrap_or(DoneMark::KEPT));
        let marked = Marked { by: slot.info.clone(), at: now, forgotten };
        let marks = self.done.entry(claim.key.clone()).or_default();
        // A lock has few versions.
        marks.retain(|_, known| known.forgotten > now);
        marks.insert(version.clone(), marked);
        true
    }

    pub(super) fn forget_done(&mut self, key: &LockKey, version: &JobVersion, now: Timestamp) -> bool {
        let was_done = self.done(key, version, now).is_some();
        if let Some(marks) = self.done.get_mut(key) {
            marks.remove(version);
        }
        was_done
    }

    /// Lists the marks of all locks whose keys have this prefix.
    pub(super) fn all_done(&self, prefix: &str, now: Timestamp) -> Vec<(LockKey, DoneMark)> {
        let below = self.done.iter().filter(|(key, _)| key.as_str().starts_with(prefix));
        let each = below.flat_map(|(key, marks)| marks.keys().map(move |version| (key, version)));
        each.filter_map(|(key, version)| Some((key.clone(), self.done(key, version, now)?))).collect()
    }
}
