//! The calls that wait for a connection, and the order in which they leave.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use lock_core::LockKey;
use lock_store::{AcquireRequest, Attempt, Freed, Release};
use tokio::sync::Notify;

use crate::calls::call::{Asked, Batch, Call, Sent};

/// How many claims one statement carries at most.
const TOGETHER: usize = 32;

/// How many of the other calls are in flight at once. A table that another transaction keeps locked delays them, and the connections
/// that are left serve acquires and releases.
const OTHERS: usize = 2;

/// How many keys are remembered as blocked. If there are more, all are forgotten, and found again by the next calls for them.
const BLOCKED: usize = 1000;

/// Which calls may leave while a batch is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Acquires, releases and renewals: as many batches as there are connections.
    Free,
    /// One of the [`OTHERS`].
    Other,
    /// One batch at a time.
    Slow,
}

/// The calls that wait, for the workers that send them.
#[derive(Default)]
pub(crate) struct Waiting {
    acquires: VecDeque<Asked<AcquireRequest, lock_core::Result<Attempt>>>,
    releases: VecDeque<Asked<Release, lock_core::Result<Freed>>>,
    others: VecDeque<Box<Call>>,
    others_in_flight: usize,
    /// Calls that may wait for a locked row. Only one worker at a time sends them, each alone, so the others serve everything else.
    slow: VecDeque<Box<Call>>,
    slow_leaves: bool,
    /// Keys whose rows a transaction of somebody else kept locked when they were last asked for.
    blocked: HashSet<LockKey>,
    /// Workers that have nothing to send, and whether each has a connection. The last is woken first: it has a connection if one of them
    /// has, and its session has seen these statements a moment ago.
    idle: Vec<(Arc<Notify>, bool)>,
    /// Whether the last batch that left were releases.
    released: bool,
    ended: bool,
    left: bool,
}

impl Waiting {
    /// Takes in a call, and returns the worker to wake. Gives the call back if all have left.
    pub(crate) fn push(&mut self, call: Call) -> Result<Option<Arc<Notify>>, Box<Call>> {
        if self.left {
            return Err(Box::new(call));
        }
        self.queue(call);
        Ok(self.wake())
    }

    fn queue(&mut self, call: Call) {
        match call {
            call if self.is_blocked(&call) => self.slow.push_back(Box::new(call)),
            Call::Acquire(asked) => self.acquires.push_back(asked),
            Call::Release(asked) => self.releases.push_back(asked),
            // A renewal comes here while its own connection is opened. It waits for none of these.
            renewal @ Call::Renew(_) => self.others.push_front(Box::new(renewal)),
            other => self.others.push_back(Box::new(other)),
        }
    }

    fn wake(&mut self) -> Option<Arc<Notify>> {
        if self.can_leave() { self.idle.pop().map(|(worker, _)| worker) } else { None }
    }

    /// Returns an idle worker with a connection, to wake it for calls that another worker cannot send.
    pub(crate) fn wake_connected(&mut self) -> Option<Arc<Notify>> {
        self.idle.pop_if(|(_, connected)| *connected).map(|(worker, _)| worker)
    }

    fn can_leave(&self) -> bool {
        let slow = !self.slow.is_empty() && !self.slow_leaves;
        slow || !(self.acquires.is_empty() && self.releases.is_empty()) || self.other_can_leave()
    }

    fn other_can_leave(&self) -> bool {
        self.others.front().is_some_and(|call| self.others_in_flight < OTHERS || matches!(**call, Call::Renew(_)))
    }

    fn is_blocked(&self, call: &Call) -> bool {
        !self.blocked.is_empty() && call.keys().iter().any(|key| self.blocked.contains(*key))
    }

    /// Returns whether there is work for a worker, or `None` if it has to wait for a call: then it is woken.
    pub(crate) fn has_work(&mut self, worker: &Arc<Notify>, connected: bool) -> Option<bool> {
        if self.can_leave() || self.ended {
            return Some(self.can_leave());
        }
        let place = if connected { self.idle.len() } else { 0 };
        self.idle.insert(place, (Arc::clone(worker), connected));
        None
    }

    /// Returns whether a call that waits may make the tables if they are missing. `None` if no call waits.
    pub(crate) fn may_make(&self) -> Option<bool> {
        let one_may = self.others.iter().chain(&self.slow).any(|call| call.may_make());
        self.can_leave().then_some(one_may || !self.acquires.is_empty() || !self.releases.is_empty())
    }

    /// Takes what leaves next, and its lane: renewals and questions, which are few; what may wait for a row; and else acquires and releases
    /// by turns.
    pub(crate) fn take(&mut self) -> Option<(Batch, Lane)> {
        while self.other_can_leave()
            && let Some(call) = self.others.pop_front()
        {
            if matches!(*call, Call::Renew(_)) {
                return Some((Batch::One(call), Lane::Free));
            }
            if !self.is_blocked(&call) {
                self.others_in_flight += 1;
                return Some((Batch::One(call), Lane::Other));
            }
            self.slow.push_back(call);
        }
        if !self.slow_leaves
            && let Some(batch) = self.take_slow()
        {
            self.slow_leaves = true;
            return Some((batch, Lane::Slow));
        }
        // An acquire whose caller has gone was not sent, so it is not executed.
        self.acquires.retain(|asked| !asked.answer.is_closed());
        self.released = match (self.acquires.is_empty(), self.releases.is_empty()) {
            (true, true) => return None,
            (false, false) => !self.released,
            (no_acquires, _) => no_acquires,
        };
        let batch = if self.released {
            let some = self.releases.len().min(TOGETHER);
            Batch::Releases(self.releases.drain(..some).collect())
        } else {
            let some = self.acquires.len().min(TOGETHER);
            Batch::Acquires(self.acquires.drain(..some).collect())
        };
        Some((batch, Lane::Free))
    }

    /// Takes one of the slow calls, first of those whose keys have not been found to be blocked. Releases of one key leave together.
    fn take_slow(&mut self) -> Option<Batch> {
        self.slow.retain(|call| !matches!(&**call, Call::Acquire(asked) if asked.answer.is_closed()));
        let first = self.slow.iter().position(|call| !self.is_blocked(call)).unwrap_or(0);
        let first = match *self.slow.remove(first)? {
            Call::Release(first) => first,
            other => return Some(Batch::One(Box::new(other))),
        };
        let mut together = vec![first];
        for call in std::mem::take(&mut self.slow) {
            match *call {
                Call::Release(other) if other.question.claim.key == together[0].question.claim.key => {
                    together.push(other);
                }
                other => self.slow.push_back(Box::new(other)),
            }
        }
        Some(Batch::Releases(together))
    }

    /// Notes what became of a batch. Returns the worker to wake.
    pub(crate) fn sent(&mut self, lane: Lane, sent: Sent) -> Option<Arc<Notify>> {
        match lane {
            Lane::Free => {}
            Lane::Other => self.others_in_flight -= 1,
            Lane::Slow => self.slow_leaves = false,
        }
        for key in &sent.free {
            self.blocked.remove(key);
        }
        self.slow.extend(sent.again.into_iter().map(Box::new));
        if !sent.blocked.is_empty() {
            if self.blocked.len() >= BLOCKED {
                self.blocked.clear();
            }
            self.blocked.extend(sent.blocked);
            let (acquires, releases) = (std::mem::take(&mut self.acquires), std::mem::take(&mut self.releases));
            for call in acquires.into_iter().map(Call::Acquire).chain(releases.into_iter().map(Call::Release)) {
                self.queue(call);
            }
        }
        self.wake()
    }

    /// Takes all calls that an error concerns: those that may make the tables too, if that was tried.
    pub(crate) fn take_all(&mut self, may_make: bool) -> Vec<Batch> {
        let (refused, kept): (Vec<_>, Vec<_>) = self.others.drain(..).partition(|call| may_make || !call.may_make());
        self.others = kept.into();
        let mut all: Vec<Batch> = refused.into_iter().map(Batch::One).collect();
        if may_make {
            all.push(Batch::Acquires(self.acquires.drain(..).collect()));
            all.push(Batch::Releases(self.releases.drain(..).collect()));
            if !self.slow_leaves {
                all.extend(self.slow.drain(..).map(Batch::One));
            }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.acquires.is_empty() && self.releases.is_empty() && self.others.is_empty() && self.slow.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes all calls that were not sent, and takes in no more.
    pub(crate) fn leave(&mut self) -> Vec<Call> {
        self.left = true;
        let (acquires, releases) =
            (self.acquires.drain(..).map(Call::Acquire), self.releases.drain(..).map(Call::Release));
        let others = self.others.drain(..).chain(self.slow.drain(..)).map(|call| *call);
        acquires.chain(releases).chain(others).collect()
    }

    /// Takes in no more calls after those that wait. Returns the workers to wake.
    pub(crate) fn end(&mut self) -> Vec<Arc<Notify>> {
        self.ended = true;
        std::mem::take(&mut self.idle).into_iter().map(|(worker, _)| worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use lock_core::LockKey;

    use super::{BLOCKED, Lane, Waiting};
    use crate::calls::call::Sent;

    #[test]
    fn the_keys_that_are_remembered_as_blocked_are_bounded() {
        let mut waiting = Waiting::default();
        for number in 0..5 * BLOCKED {
            let key = LockKey::new(format!("key {number}")).unwrap();
            waiting.sent(Lane::Free, Sent { blocked: vec![key.clone()], ..Sent::default() });
            assert!(waiting.blocked.contains(&key) && waiting.blocked.len() <= BLOCKED, "{}", waiting.blocked.len());
        }
    }
}
