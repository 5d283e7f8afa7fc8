//! Queues with one bug each. As with the mutants of the lock: the harness must catch every one.
//!
//! Bugs of the store sit in a store. Rules that belong to the machinery are broken by the network in
//! front of it, which sees the messages that they are about and can undo their effect. Rules whose loss
//! other rules make up for, so that hardly any run would show it, are tested one by one in `grants.rs`.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use lock_core::{Clock, Holder, LockBackend, LockError, LockKey, MemoryStore, OwnerId};
use lock_store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_testing::{Violation, limit};

use super::network::Flaw;
use super::{Mode, breaks_the_contract, simulate};

/// The fault in the queue of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// A withdrawal does not free a lock that was granted meanwhile.
    WithdrawKeepsGrant,
    /// A release frees the lock and notifies no waiter.
    ReleaseTellsNobody,
    /// An acquire that finds the lock free stops at the first in the queue, dead or not.
    StopsAtDeadHead,
    /// A requeue enters after the walk, which has found nobody.
    EntersAfterWalk,
}

const BUGS: [Bug; 4] = [Bug::WithdrawKeepsGrant, Bug::ReleaseTellsNobody, Bug::StopsAtDeadHead, Bug::EntersAfterWalk];

/// The memory store with a bug in its queue.
#[derive(Debug)]
struct Mutant {
    store: MemoryStore,
    bug: Bug,
    /// The claims that wait for each key, in order of arrival.
    waiting: Mutex<HashMap<LockKey, VecDeque<OwnerId>>>,
}

impl Mutant {
    fn new(store: MemoryStore, bug: Bug) -> Self {
        Self { store, bug, waiting: Mutex::default() }
    }

    async fn owner(&self, key: &LockKey) -> Option<OwnerId> {
        self.store.holder(key).await.ok()??.owner
    }

    fn left(&self, key: &LockKey, owner: OwnerId) {
        if let Some(waiting) = self.waiting.lock().unwrap().get_mut(key) {
            waiting.retain(|other| *other != owner);
        }
    }
}

impl LockBackend for Mutant {
    fn kind(&self) -> &'static str {
        "mutant"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.store.drive(inbox).await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, LockError> {
        let (key, owner) = (&request.claim.key, request.claim.owner);
        let holder = self.store.holder(key).await?;
        if let Some(holder) = holder.as_ref().and_then(|holder| holder.owner) {
            self.left(key, holder);
        }
        let first = self.waiting.lock().unwrap().get(key).and_then(|waiting| waiting.front().copied());
        if self.bug == Bug::StopsAtDeadHead && holder.is_none() && first.is_some_and(|first| first != owner) {
            return Ok(Attempt::Held { holder: Holder::foreign(None) });
        }
        let answer = self.store.try_acquire(request).await;
        match answer {
            Ok(Attempt::Queued { .. }) => {
                let mut waiting = self.waiting.lock().unwrap();
                let waiting = waiting.entry(key.clone()).or_default();
                if !waiting.contains(&owner) {
                    waiting.push_back(owner);
                }
            }
            _ => self.left(key, owner),
        }
        answer
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt, LockError> {
        self.left(&release.claim.key, release.claim.owner);
        if self.bug == Bug::EntersAfterWalk
            && let Some(holder) = self.store.holder(&release.claim.key).await?
        {
            self.store.release(release).await?;
            if self.owner(&release.claim.key).await.is_none() {
                return Ok(Attempt::Queued { holder });
            }
        }
        self.store.requeue(release, request).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal, LockError>> {
        self.store.renew(one_lane).await
    }

    async fn release(&self, release: &Release) -> Result<Freed, LockError> {
        let claim = &release.claim;
        self.left(&claim.key, claim.owner);
        // A min_hold is kept, so that only the bug itself can show.
        let at_once = self.bug == Bug::ReleaseTellsNobody && release.keep_for.is_zero();
        if at_once && self.owner(&claim.key).await == Some(claim.owner) {
            self.store.steal(&claim.key);
            return Ok(Freed::Released);
        }
        self.store.release(release).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed, LockError> {
        self.left(&claim.key, claim.owner);
        if self.bug == Bug::WithdrawKeepsGrant && self.owner(&claim.key).await == Some(claim.owner) {
            return Ok(Freed::NotHeld);
        }
        self.store.withdraw(claim).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>, LockError> {
        self.store.holder(key).await
    }
}

/// The faults that the simulation finds within a number of seeds, and the seeds.
fn caught<B: LockBackend>(
    modes: &[Mode],
    seeds: u64,
    flaw: Option<Flaw>,
    make: impl Fn(MemoryStore) -> B + Copy,
) -> Option<(&'static str, Mode, u64)> {
    let each = modes.iter().flat_map(|mode| (0..seeds).map(|seed| (*mode, seed)));
    each.into_iter().find_map(|(mode, seed)| {
        let outcome = simulate(seed, mode, flaw, make);
        let (most_idle, most_bypass) = mode.bounds();
        let named = |violation: &Violation| match violation {
            Violation::Overlap { .. } => "two holders",
            Violation::TokenOrder { .. } => "token order",
            _ => "something else",
        };
        let what = outcome.violations.first().map(named);
        let what = what.or((outcome.left > 0).then_some("keys or entries left"));
        let what = what.or((outcome.idle > most_idle).then_some("a free lock, and somebody waits"));
        what.or((outcome.bypass > most_bypass).then_some("unfair")).map(|what| (what, mode, seed))
    })
}

// Computes all the time, so its limit is that of a slow processor beside other tests.
#[test]
#[limit(600)]
fn every_bug_of_the_queue_is_caught() {
    let mut escaped = Vec::new();
    for bug in BUGS {
        let (contract, modes) =
            (breaks_the_contract(|store| Mutant::new(store, bug)), [Mode::Calm, Mode::Short, Mode::Long]);
        let simulation = if contract { None } else { caught(&modes, 600, None, |memory| Mutant::new(memory, bug)) };
        println!("figure: mutant {bug:?}: contract {contract}, simulation {simulation:?}");
        if !contract && simulation.is_none() {
            escaped.push(bug);
        }
    }
    assert_eq!(escaped, []);
}

#[test]
#[limit(300)]
fn every_rule_of_the_machinery_is_needed() {
    let mut escaped = Vec::new();
    for flaw in [Flaw::LateCommands, Flaw::CountedFromReceipt, Flaw::OneEnding] {
        let simulation = caught(&[Mode::Long, Mode::Short], 200, Some(flaw), |memory| memory);
        println!("figure: without the rule against {flaw:?}: {simulation:?}");
        if simulation.is_none() {
            escaped.push(flaw);
        }
    }
    assert_eq!(escaped, []);
}
