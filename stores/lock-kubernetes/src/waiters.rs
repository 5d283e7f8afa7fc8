//! The waiters of this process. A release wakes one of them, and the waiters of other processes back off by their places.
//!
//! Every process sees a release at the same time, and only one update can win. A waiter of some time has announced itself in the Lease,
//! so each process knows how many came before its own. Before that, a process whose update lost waits a little longer the next time. A
//! process that has just had the lock lets the others go first.

use std::collections::HashMap;
use std::time::Duration;

use lock_store::types::system::clock::jitter;
use lock_store::types::system::sync::Mutex;
use lock_store::{HolderInfo, LockKey, OwnerId, Timestamp};
use tokio::sync::Notify;

/// How much later a process wakes its waiter, at most, whose last updates lost.
const WINDOW: Duration = Duration::from_millis(20);

/// How much later a waiter is woken than the one before it.
const STEP: Duration = Duration::from_millis(50);

/// When waiters are woken again that have not asked.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a process that has released a lock lets the others go first.
const YIELD: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(30));

/// For how long a lock counts as contended after another claim was seen to have it.
const CONTENDED: Duration = Duration::from_secs(10);

/// After what time a waiter announces itself, and how often it does so again.
const ANNOUNCE: Duration = Duration::from_secs(1);
const ANEW: Duration = Duration::from_secs(600);

/// How many locks are remembered without a waiter.
const MOST: usize = 1024;

/// A claim that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) owner: OwnerId,
    pub(crate) info: HolderInfo,
    /// Since when, by the server's clock.
    pub(crate) since: i64,
    was_told: bool,
    announces: Timestamp,
    is_announced: bool,
}

/// The waiters of one lock.
#[derive(Debug, Default)]
struct Line {
    waiters: Vec<Waiter>,
    /// How often in a row an update has lost.
    lost: u32,
    /// When the next of them is woken.
    due: Option<Timestamp>,
    /// Until when the others go first.
    yields: Option<Timestamp>,
    /// When another claim was last seen to have the lock.
    others: Option<Timestamp>,
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) struct Due {
    /// The waiters that are woken.
    pub(crate) told: Vec<OwnerId>,
    /// The waiters that announce themselves, by the names of their Leases.
    pub(crate) announced: Vec<(String, Waiter)>,
    /// When there is more to do.
    pub(crate) next: Timestamp,
}

/// All waiters of this process, by the names of their Leases.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    lines: Mutex<HashMap<String, Line>>,
    /// Notified when a plan has changed.
    pub(crate) changed: Notify,
}

impl Waiters {
    /// Adds a waiter. It keeps its place if it is there already.
    pub(crate) fn enter(&self, name: &str, owner: OwnerId, info: &HolderInfo, (since, now): (i64, Timestamp)) {
        self.with(name, |line| {
            if !line.waiters.iter().any(|waiter| waiter.owner == owner) {
                let (info, announces) = (info.clone(), now.after(ANNOUNCE));
                line.waiters.push(Waiter { owner, info, since, was_told: false, announces, is_announced: false });
            }
        });
        self.changed.notify_one();
    }

    /// Removes a waiter. Returns it if it was there, and whether it has announced itself.
    pub(crate) fn leave(&self, name: &str, owner: OwnerId) -> Option<bool> {
        let mut lines = self.lines.lock();
        let line = lines.get_mut(name)?;
        let at = line.waiters.iter().position(|waiter| waiter.owner == owner)?;
        let waiter = line.waiters.remove(at);
        if line.waiters.is_empty() {
            line.due = None;
        }
        Some(waiter.is_announced)
    }

    /// Returns whether a claim waits.
    pub(crate) fn has(&self, key: &LockKey, owner: OwnerId) -> bool {
        self.of(&crate::names::lease_of(key)).is_some_and(|(waiting, _)| waiting.contains(&owner))
    }

    /// Returns the owners of the waiters of a lock, and since when the first of them waits.
    pub(crate) fn of(&self, name: &str) -> Option<(Vec<OwnerId>, i64)> {
        let lines = self.lines.lock();
        let waiters = &lines.get(name)?.waiters;
        Some((waiters.iter().map(|waiter| waiter.owner).collect(), waiters.first()?.since))
    }

    /// Plans to wake waiters from a time on: now if the lock is free, or else when its lease is due to end. `ahead` waiters of other
    /// processes are woken before them.
    pub(crate) fn plan(&self, name: &str, from: Timestamp, ahead: usize) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(name).filter(|line| !line.waiters.is_empty()) else { return };
        line.waiters.iter_mut().for_each(|waiter| waiter.was_told = false);
        let behind = STEP.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        let window = WINDOW * line.lost.min(4);
        let due = from.after(behind + jitter(Duration::ZERO, window));
        line.due = Some(line.yields.map_or(due, |yields| due.max(yields)));
        drop(lines);
        self.changed.notify_one();
    }

    /// Takes out what is to be done now, and says when there is more.
    pub(crate) fn due(&self, now: Timestamp) -> Due {
        let mut due = Due { told: Vec::new(), announced: Vec::new(), next: Timestamp::NEVER };
        for (name, line) in self.lines.lock().iter_mut() {
            if line.due.is_some_and(|due| due <= now) {
                if line.waiters.iter().all(|waiter| waiter.was_told) {
                    line.waiters.iter_mut().for_each(|waiter| waiter.was_told = false);
                }
                if let Some(waiter) = line.waiters.iter_mut().find(|waiter| !waiter.was_told) {
                    waiter.was_told = true;
                    due.told.push(waiter.owner);
                }
                let all = line.waiters.iter().all(|waiter| waiter.was_told);
                line.due = (!line.waiters.is_empty()).then(|| now.after(if all { AGAIN } else { STEP }));
            }
            for waiter in &mut line.waiters {
                if waiter.announces <= now {
                    (waiter.announces, waiter.is_announced) = (now.after(ANEW), true);
                    due.announced.push((name.clone(), waiter.clone()));
                }
                due.next = due.next.min(waiter.announces);
            }
            due.next = line.due.map_or(due.next, |at| due.next.min(at));
        }
        due
    }

    /// Notes that an update lost against another one.
    pub(crate) fn lost(&self, name: &str, now: Timestamp) {
        self.with(name, |line| (line.lost, line.others) = (line.lost.saturating_add(1), Some(now)));
    }

    /// Notes that an update won.
    pub(crate) fn won(&self, name: &str) {
        if let Some(line) = self.lines.lock().get_mut(name) {
            line.lost = 0;
        }
    }

    /// Notes that another claim has a lock.
    pub(crate) fn saw_another(&self, name: &str, now: Timestamp) {
        self.with(name, |line| line.others = Some(now));
    }

    /// Notes that this process has released a lock. If others want it, they go first.
    pub(crate) fn released(&self, name: &str, now: Timestamp) {
        if let Some(line) = self.lines.lock().get_mut(name) {
            let is_wanted = line.others.is_some_and(|others| now.since(others) < CONTENDED);
            line.yields = is_wanted.then(|| now.after(jitter(YIELD.0, YIELD.1)));
        }
    }

    /// Returns whether others go first for a moment.
    pub(crate) fn yields(&self, name: &str, now: Timestamp) -> bool {
        self.lines.lock().get(name).and_then(|line| line.yields).is_some_and(|yields| yields > now)
    }

    /// Returns whether another claim was seen to have a lock a short time ago.
    pub(crate) fn is_contended(&self, name: &str, now: Timestamp) -> bool {
        self.lines.lock().get(name).and_then(|line| line.others).is_some_and(|others| now.since(others) < CONTENDED)
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Line)) {
        let mut lines = self.lines.lock();
        if lines.len() >= MOST && !lines.contains_key(name) {
            lines.retain(|_, line| !line.waiters.is_empty());
        }
        change(lines.entry(name.to_owned()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_store::{HolderInfo, OwnerId, Timestamp};

    use super::{AGAIN, ANEW, ANNOUNCE, STEP, WINDOW, Waiters};

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn enter(waiters: &Waiters) -> OwnerId {
        let owner = OwnerId::random();
        waiters.enter("a", owner, &HolderInfo::new("h", 1, "s"), (7, START));
        owner
    }

    fn told(waiters: &Waiters, now: Timestamp) -> Vec<OwnerId> {
        waiters.due(now).told
    }

    #[test]
    fn a_release_wakes_one_waiter_and_the_next_one_only_if_the_lock_stays_free() {
        let waiters = Waiters::default();
        let [one, two] = [enter(&waiters), enter(&waiters)];
        assert_eq!(told(&waiters, START), []);
        waiters.plan("a", START, 0);
        assert_eq!(told(&waiters, START), [one]);
        // The lock was taken.
        waiters.plan("a", START.after(Duration::from_secs(9)), 0);
        assert_eq!(told(&waiters, START.after(STEP)), []);
        waiters.plan("a", START, 0);
        assert_eq!(told(&waiters, START), [one]);
        assert_eq!(told(&waiters, START.after(STEP)), [two]);
        assert_eq!(told(&waiters, START.after(STEP + AGAIN)), [one], "it may not have heard");
        assert_eq!((waiters.leave("a", one), waiters.leave("a", one)), (Some(true), None));
        assert_eq!(waiters.of("a"), Some((vec![two], 7)));
    }

    #[test]
    fn a_waiter_is_woken_later_than_those_of_other_processes_before_it() {
        let waiters = Waiters::default();
        let one = enter(&waiters);
        waiters.plan("a", START, 3);
        assert_eq!((told(&waiters, START.after(STEP * 2)), told(&waiters, START.after(STEP * 3))), (vec![], vec![one]));
    }

    #[test]
    fn a_waiter_announces_itself_after_a_while_and_rarely_again() {
        let waiters = Waiters::default();
        let one = enter(&waiters);
        let owners = |now| waiters.due(now).announced.into_iter().map(|(_, waiter)| waiter.owner).collect::<Vec<_>>();
        assert_eq!((owners(START), waiters.due(START).next), (vec![], START.after(ANNOUNCE)));
        assert_eq!((owners(START.after(ANNOUNCE)), owners(START.after(ANNOUNCE * 2))), (vec![one], vec![]));
        assert_eq!(owners(START.after(ANNOUNCE + ANEW)), [one]);
    }

    #[test]
    fn a_process_whose_updates_lost_waits_longer_until_one_wins() {
        let waiters = Waiters::default();
        enter(&waiters);
        let latest = |waiters: &Waiters| {
            let times = (0..100).map(|_| {
                waiters.plan("a", START, 0);
                waiters.due(START.before(Duration::from_secs(1))).next.since(START)
            });
            times.max().unwrap()
        };
        assert_eq!(latest(&waiters), Duration::ZERO);
        (0..9).for_each(|_| waiters.lost("a", START));
        let longest = latest(&waiters);
        assert!(longest > WINDOW && longest <= WINDOW * 4, "{longest:?}");
        waiters.won("a");
        assert_eq!(latest(&waiters), Duration::ZERO);
    }

    #[test]
    fn a_process_that_has_just_had_the_lock_lets_the_others_go_first() {
        let waiters = Waiters::default();
        let one = enter(&waiters);
        waiters.released("a", START);
        assert!(!waiters.yields("a", START), "no other claim wants it");
        waiters.saw_another("a", START);
        assert!(waiters.is_contended("a", START));
        waiters.released("a", START);
        assert!(waiters.yields("a", START));
        waiters.plan("a", START, 0);
        assert_eq!(told(&waiters, START), []);
        assert_eq!(told(&waiters, START.after(STEP)), [one]);
        assert!(!waiters.is_contended("a", START.after(Duration::from_secs(11))));
    }
}
