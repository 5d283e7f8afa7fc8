//! The Leases as this process has seen them, and since when.
//!
//! A Lease may be taken over only after this process has seen it unchanged for its whole duration, by its own clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_store::types::system::sync::Mutex;
use lock_store::{OwnerId, Timestamp};

use crate::record::{Holding, Record};
use crate::server_time::ServerTime;

/// How many Leases are remembered.
const MOST: usize = 4096;

/// A Lease, as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// `None` if there is none of this name.
    pub(crate) record: Option<Arc<Record>>,
    /// When this state was seen first: received, so its holder wrote it before.
    pub(crate) since: Timestamp,
    /// When the newest answer or event with this state was asked for.
    confirmed: Timestamp,
}

/// The standing of a claim at a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The claim itself has the lock.
    Own,
    Free,
    /// The lock is taken until then, if nobody renews it.
    Taken(Timestamp),
}

impl Seen {
    /// Returns what a claim may do, as far as this process has seen.
    pub(crate) fn standing(&self, owner: Option<OwnerId>, now: Timestamp, time: &ServerTime) -> Standing {
        let Some(record) = &self.record else { return Standing::Free };
        let (holding, over) = (record.holding(), self.since.after(record.lasts()));
        let over = match holding {
            Holding::Free => return Standing::Free,
            Holding::Claim(holder) if Some(holder) == owner => return Standing::Own,
            // Two ways to know that it is over: the server's clock, and the time that has passed here.
            Holding::Kept(until) => over.min(now.after(crate::data::between(time.least(now), until))),
            Holding::Claim(_) | Holding::Foreign(_) => over,
        };
        if over <= now { Standing::Free } else { Standing::Taken(over) }
    }

    /// Returns whether a waiter may rely on it without asking the server. The watch tells of every change, unless it is cut.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        let lasts = self.record.as_ref().map_or(Duration::ZERO, |record| record.lasts());
        now.since(self.confirmed) < (lasts / 2).clamp(Duration::from_millis(500), Duration::from_secs(10))
    }
}

/// All Leases that this process has asked for.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<String, Seen>>);

impl Known {
    pub(crate) fn get(&self, name: &str) -> Option<Seen> {
        self.0.lock().get(name).cloned()
    }

    /// Notes the answer to a request that was sent at `asked`. Returns what is known now, which may be newer.
    pub(crate) fn note(&self, name: &str, record: Option<Arc<Record>>, asked: Timestamp, now: Timestamp) -> Seen {
        let mut known = self.0.lock();
        if known.len() >= MOST && !known.contains_key(name) {
            let oldest = known.iter().min_by_key(|(_, seen)| seen.confirmed).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| known.remove(&oldest));
        }
        if let Some(seen) = known.get_mut(name) {
            let (before, version) = (version(&seen.record), record.as_ref().map(|record| record.version));
            if before == version {
                seen.confirmed = seen.confirmed.max(asked);
                return seen.clone();
            }
            // An event may have overtaken this answer.
            if seen.confirmed > asked && before > version {
                return seen.clone();
            }
        }
        let since = since(known.get(name), record.as_deref(), now);
        let seen = Seen { record, since, confirmed: asked };
        known.insert(name.to_owned(), seen.clone());
        seen
    }

    /// Notes an event of a watch that began at `began`. Returns whether the Lease is of interest here.
    ///
    /// An event of an older state than is known comes late, unless the server itself went back in time before the watch began.
    pub(crate) fn hear(&self, record: Record, is_deleted: bool, began: Timestamp, now: Timestamp) -> bool {
        let mut known = self.0.lock();
        let Some(seen) = known.get_mut(record.name()) else { return false };
        let before = version(&seen.record);
        if before == Some(record.version) && !is_deleted {
            seen.confirmed = now;
            return true;
        }
        if before.is_some_and(|before| before > record.version) && seen.confirmed > began {
            return true;
        }
        let record = (!is_deleted).then_some(record);
        let since = since(Some(&*seen), record.as_ref(), now);
        *seen = Seen { record: record.map(Arc::new), since, confirmed: now };
        true
    }
}

/// Returns since when a state is seen, which may be that of an older version.
fn since(before: Option<&Seen>, record: Option<&Record>, now: Timestamp) -> Timestamp {
    let known = before.and_then(|before| Some((before.record.as_ref()?, before.since)));
    match (known, record) {
        (Some((before, since)), Some(record)) if record.is_unchanged_since(before) => since,
        _ => now,
    }
}

fn version(record: &Option<Arc<Record>>) -> Option<u64> {
    record.as_ref().map(|record| record.version)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lock_store::{Claim, FencingToken, HolderInfo, LockKey, Timestamp};

    use super::{Known, Standing};
    use crate::record::Record;
    use crate::server_time::ServerTime;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(0).after(Duration::from_secs(seconds))
    }

    fn held(claim: &Claim, version: u64) -> Arc<Record> {
        let mut lease =
            Record::blank(&claim.key).granted(claim, &HolderInfo::new("h", 1, "s"), FencingToken::new(0), 0).unwrap();
        lease.metadata.resource_version = Some(version.to_string());
        Arc::new(Record::of(lease).unwrap())
    }

    fn claim() -> Claim {
        Claim::new(LockKey::new("report").unwrap(), Duration::from_secs(10))
    }

    #[test]
    fn a_lease_is_taken_over_only_after_it_was_seen_unchanged_for_its_whole_time() {
        let (known, time, one, two) = (Known::default(), ServerTime::default(), claim(), claim());
        let seen = known.note("report", Some(held(&one, 5)), at(1), at(2));
        let of = |now| seen.standing(Some(two.owner), now, &time);
        assert_eq!(
            (of(at(2)), of(at(11)), of(at(12))),
            (Standing::Taken(at(12)), Standing::Taken(at(12)), Standing::Free)
        );
        assert_eq!(seen.standing(Some(one.owner), at(3), &time), Standing::Own);
        let again = known.note("report", Some(held(&one, 5)), at(8), at(9));
        assert_eq!(again.standing(None, at(12), &time), Standing::Free, "reading it again does not begin anew");
        let noted = known.note("report", Some(held(&one, 6)), at(9), at(10));
        assert_eq!(noted.standing(None, at(12), &time), Standing::Free, "its holder has not written this");
        let mut lease = held(&one, 6).renewed(Duration::from_secs(10), 1);
        lease.metadata.resource_version = Some("7".to_owned());
        let renewed = known.note("report", Some(Arc::new(Record::of(lease).unwrap())), at(10), at(11));
        assert_eq!(renewed.standing(None, at(12), &time), Standing::Taken(at(21)));
    }

    #[test]
    fn a_kept_lock_is_free_by_the_servers_clock_or_by_the_time_that_has_passed() {
        let (known, time, one) = (Known::default(), ServerTime::default(), claim());
        time.note(at(0), at(0), 1_000);
        let mut lease = held(&one, 5).kept(1_004_000, Duration::from_secs(60), 0);
        lease.metadata.resource_version = Some("6".to_owned());
        let seen = known.note("report", Some(Arc::new(Record::of(lease).unwrap())), at(0), at(0));
        assert_eq!(seen.standing(Some(one.owner), at(3), &time), Standing::Taken(at(4)), "also for its last owner");
        assert_eq!(seen.standing(None, at(4), &time), Standing::Free);
        time.note(at(5), at(5), 0);
        assert_eq!(seen.standing(None, at(59), &time), Standing::Taken(at(60)), "the clock was set back");
        assert_eq!(seen.standing(None, at(60), &time), Standing::Free);
    }

    #[test]
    fn an_answer_that_an_event_has_overtaken_is_not_believed() {
        let (known, one, two) = (Known::default(), claim(), claim());
        assert!(!known.hear(Record::clone(&held(&one, 4)), false, at(0), at(1)), "this process has not asked for it");
        known.note("report", None, at(1), at(2));
        assert!(known.hear(Record::clone(&held(&two, 7)), false, at(0), at(3)));
        let seen = known.note("report", Some(held(&one, 6)), at(2), at(4));
        assert_eq!(seen.record.unwrap().owner(), Some(two.owner));
        known.hear(Record::clone(&held(&one, 6)), false, at(0), at(5));
        assert_eq!(known.get("report").unwrap().record.unwrap().version, 7, "this event is late");
        known.hear(Record::clone(&held(&one, 3)), false, at(6), at(7));
        assert_eq!(known.get("report").unwrap().record.unwrap().version, 3, "the server went back in time");
        known.hear(Record::clone(&held(&one, 9)), true, at(6), at(8));
        assert!(known.get("report").unwrap().record.is_none());
    }
}
