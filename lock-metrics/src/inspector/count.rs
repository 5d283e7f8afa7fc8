//! Adds up the locks of a scan.

use lock_core::inspect::{EntryState, LockEntry};
use lock_core::lease::{command_of_site, of_site};

use crate::state::fleet::FleetLock;
use crate::words::labels::{LEASE, mode_of, site_of};
use crate::words::time::Moment;

impl FleetLock {
    /// Counts a lock that was found.
    pub(super) fn add(&mut self, entry: &LockEntry, now: Moment) {
        // It is not known to be held.
        if matches!(entry.state, EntryState::Minority | EntryState::Unknown) {
            return;
        }
        // If one queue could not be read, every sum with it is unknown.
        let waiters = entry.waiters.map(|waiters| u32::try_from(waiters).unwrap_or(u32::MAX));
        self.waiters = self.waiters.zip(waiters).map(|(known, more)| known.saturating_add(more));
        if entry.is_without_ttl() {
            self.without_ttl = self.without_ttl.saturating_add(1);
        }
        if let Some(age) = entry.pinned_for {
            self.note_pin(entry.pinned_by.as_deref().unwrap_or_default(), now.before(age));
        }
        // A released key that only stays taken for the rest of its `min_hold` has no holder.
        if entry.state == EntryState::Kept {
            return;
        }
        if let Some(mode) = entry.mode {
            let is_lease = of_site(entry.holder.site()).is_some();
            let held = &mut self.held[if is_lease { LEASE } else { mode_of(mode) }];
            *held = Some(held.unwrap_or(0).saturating_add(1));
        }
        if let Some(stuck_after) = command_of_site(entry.holder.site()) {
            let is_stuck = stuck_after.is_some_and(|limit| entry.held_for.is_some_and(|age| age > limit));
            let queued = if is_stuck { waiters.unwrap_or(0) } else { 0 };
            let [all, stuck, waiters] = self.commands;
            self.commands = [all + 1, stuck + u32::from(is_stuck), waiters.saturating_add(queued)];
        } else if entry.state == EntryState::Held && entry.holder.owner.is_none() {
            // A thread of Redisson.
            self.commands[0] += 1;
        }
        if let Some(age) = entry.held_for {
            let since = now.before(age);
            self.oldest_hold = self.oldest_hold.earlier(since);
            if let Some(waiters @ 1..) = waiters {
                self.note_waited(site_of(entry.holder.site()), since, waiters);
            }
        }
        if let Some(left) = entry.holder.ttl_left {
            self.min_ttl = Some(self.min_ttl.map_or(left, |shortest| shortest.min(left)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use lock_core::inspect::LockEntry;
    use lock_core::{FencingToken, Holder, HolderInfo, LockKey, OwnerId};

    use crate::state::fleet::FleetLock;
    use crate::words::time::Moment;

    fn entry(pinned: Option<u64>) -> LockEntry {
        let info = HolderInfo::new("web-3", 7, "shop::charge");
        let holder = Holder::new(info, OwnerId::random(), FencingToken::new(1), Some(Duration::from_secs(9)));
        let mut entry = LockEntry::new(LockKey::new("k").unwrap(), holder, UNIX_EPOCH);
        entry.pinned_for = pinned.map(Duration::from_secs);
        entry.pinned_by = pinned.map(|age| format!("session {age}"));
        entry
    }

    #[test]
    fn a_thread_of_redisson_holds_a_lock_that_no_process_reports() {
        let (mut lock, now, mut java) = (FleetLock::default(), Moment::now(), entry(None));
        java.holder.owner = None;
        lock.add(&java, now);
        lock.add(&entry(None), now);
        assert_eq!((lock.held[0], lock.commands), (Some(2), [1, 0, 0]));
    }

    #[test]
    fn the_oldest_pin_is_told_with_its_session() {
        let (mut lock, now) = (FleetLock::default(), Moment::now());
        lock.add(&entry(None), now);
        assert!(lock.oldest_pin.is_none());
        for age in [3, 90, 7] {
            lock.add(&entry(Some(age)), now);
        }
        let (session, since) = lock.oldest_pin.clone().unwrap();
        assert_eq!((session.as_str(), now.since(since)), ("session 90", Duration::from_secs(90)));
        assert!(lock.emptied().oldest_pin.is_none());
    }
}
