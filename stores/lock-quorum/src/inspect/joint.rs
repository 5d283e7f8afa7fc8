//! One lock of a quorum, put together from what its members have. Pure.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use crate::inspect::Entries;
use lock_store::contract::backend::{EntryState, LockEntry};

/// Returns the lock as its members together have it: the holder that most members name, with the lease that a majority has,
/// since the first of them granted it. A member that lost the claim and got it back has it as if it were new. `None` if no
/// member that answered has it.
pub(super) fn entry(entries: &Arc<Entries>) -> Option<LockEntry> {
    let had: Vec<&LockEntry> = entries.known().flatten().collect();
    let same = |one: &LockEntry| had.iter().copied().filter(|other| other.has_holder_of(one)).collect::<Vec<_>>();
    let most = had.iter().map(|one| same(one)).max_by_key(Vec::len)?;
    let silent = entries.nodes.len() - entries.known().count();
    let mut whole = most.iter().max_by_key(|entry| entry.held_for).copied()?.clone();
    match most.len() {
        count if count >= entries.majority => {}
        count if count + silent >= entries.majority => whole.state = EntryState::Unknown,
        _ => whole.state = EntryState::Minority,
    }
    whole.holder.ttl_left = lease_left(&most, entries.majority);
    (whole.waiters, whole.members) = (None, Some(Arc::clone(entries)));
    Some(whole)
}

/// Returns for how much longer a majority has it, or all of a minority. `None` for ever.
fn lease_left(most: &[&LockEntry], majority: usize) -> Option<Duration> {
    let mut left: Vec<Duration> = most.iter().map(|entry| entry.holder.ttl_left.unwrap_or(Duration::MAX)).collect();
    left.sort_unstable_by_key(|left| Reverse(*left));
    let decides = left.len().min(majority);
    left.get(decides.checked_sub(1)?).copied().filter(|left| *left != Duration::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use lock_testing::limit;

    use super::entry;
    use lock_store::contract::backend::{EntryState, LockEntry, NodeReport, SyncReport};
    use lock_store::types::error::{LockError, Result};
    use lock_store::types::fencing::FencingToken;
    use lock_store::types::key::LockKey;
    use lock_store::types::owner::{Holder, HolderInfo, OwnerId};

    fn by(owner: OwnerId, left: u64, held_for: u64) -> Result<Option<LockEntry>> {
        let left = Some(Duration::from_secs(left));
        let mut holder = Holder::new(HolderInfo::new("h", 1, "s"), owner, FencingToken::new(1), left);
        holder.since = Some(UNIX_EPOCH);
        let now = UNIX_EPOCH + Duration::from_secs(held_for);
        let mut entry = LockEntry::new(LockKey::new("k").unwrap(), holder, now);
        entry.waiters = Some(2);
        Ok(Some(entry))
    }

    fn seen(answers: &[Result<Option<LockEntry>>]) -> Option<LockEntry> {
        let nodes = answers.iter().enumerate().map(|(at, answer)| NodeReport::new(at.to_string(), answer.clone()));
        entry(&Arc::new(SyncReport::new(nodes.collect(), answers.len() / 2 + 1)))
    }

    #[test]
    #[limit]
    fn a_majority_decides_and_a_member_without_an_answer_may_have_it() {
        let (one, other) = (OwnerId::random(), OwnerId::random());
        let (free, away) = (|| Ok(None), || Err(LockError::unavailable("away")));
        let has = |owner| by(owner, 9, 1);
        for (answers, state) in [
            (vec![has(one), has(one), free()], Some(EntryState::Held)),
            (vec![has(one), away(), has(one)], Some(EntryState::Held)),
            (vec![has(one), free(), free()], Some(EntryState::Minority)),
            (vec![has(one), has(other), free()], Some(EntryState::Minority)),
            (vec![has(one), free(), away()], Some(EntryState::Unknown)),
            (vec![has(one), has(other), away()], Some(EntryState::Unknown)),
            (vec![has(one), away(), away(), free(), free()], Some(EntryState::Unknown)),
            (vec![has(one), away(), free(), free(), free()], Some(EntryState::Minority)),
            (vec![free(), away(), free()], None),
        ] {
            assert_eq!(seen(&answers).map(|entry| entry.state), state, "{answers:?}");
        }
    }

    #[test]
    #[limit]
    fn the_lease_is_that_of_a_majority_and_its_age_that_of_the_first_grant() {
        let one = OwnerId::random();
        let held = seen(&[by(one, 9, 20), by(one, 3, 50), by(one, 7, 1)]).unwrap();
        assert_eq!(held.holder.ttl_left, Some(Duration::from_secs(7)), "until then two of three have it");
        assert_eq!(held.held_for, Some(Duration::from_secs(50)));
        assert_eq!(held.waiters, None, "members keep queues for other callers only");
        let mut for_ever = by(one, 9, 1).unwrap().unwrap();
        for_ever.holder.ttl_left = None;
        let held = seen(&[Ok(Some(for_ever.clone())), Ok(Some(for_ever)), by(one, 3, 1)]).unwrap();
        assert!(held.is_without_ttl(), "{held:?}");
    }
}
