//! Finds tasks that wait for each other, across processes, while they wait.
//!
//! A task may wait for a lock while it holds others. About once per second, it then publishes the lock that it waits
//! for beside each lock that it holds. Then it walks: which task holds the wanted lock, and for which lock does that
//! task wait? A walk that comes back to one of its own locks has found a cycle.
//!
//! Two walks in a row must find the same cycle, and every member must have published in between. Then it is a deadlock:
//! no member moves, so it never ends by itself. Each member finds it. Without a message, they agree on the victim: the
//! member whose lock has the greatest token, which is the youngest. The victim gives way after one more walk.
//!
//! The walk is that of Chandy, Misra and Haas (1983), with reads instead of probes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::claim::spec::LockSpec;
use crate::engine::context;
use crate::engine::hold::Hold;
use crate::engine::shared::{Caller, Engine};
use lock_store::contract::backend::{Blocked, BoxFuture};
use lock_store::contract::event::{Deadlock, DeadlockMember, Notice};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::options::Wait;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::jitter;

/// The bounds of the pause between two walks of a task that waits while it holds a lock.
const EVERY: (Duration, Duration) = (Duration::from_millis(850), Duration::from_millis(1_150));

/// How long one command of a walk may take. With a slower store, no deadlock is found.
const PATIENCE: Duration = Duration::from_millis(500);

/// The most locks that a walk visits.
const MAX_HOPS: usize = 8;

/// A task that waits for one lock while it holds others.
pub(crate) struct Nested {
    engine: Arc<Engine>,
    caller: Caller,
    holds: Vec<Arc<Hold>>,
    wanted: LockKey,
    /// How often it has published.
    stamp: u64,
}

/// One lock on a walk, and the note that its holder published.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hop {
    member: DeadlockMember,
    owner: OwnerId,
    token: FencingToken,
    stamp: u64,
}

impl Nested {
    /// Describes the wait for a lock, if the request waits and the task holds other locks.
    pub(crate) fn of(engine: &Arc<Engine>, spec: &LockSpec) -> Option<Self> {
        if spec.options.wait == Wait::None {
            return None;
        }
        let mut holds = Vec::new();
        context::each_held(engine.identity(), |hold| holds.push(Arc::clone(hold)));
        let (caller, wanted) = (spec.caller, spec.events.key.clone());
        (!holds.is_empty()).then(|| Self { engine: Arc::clone(engine), caller, holds, wanted, stamp: 0 })
    }

    /// Watches for a deadlock while the task waits. Returns only if the task is the victim.
    pub(crate) async fn victim(mut self) -> LockError {
        let mut before: Option<Vec<Hop>> = None;
        let mut reported = false;
        loop {
            let pause = jitter(EVERY.0, EVERY.1);
            self.engine.timer.sleep_until(self.engine.clock.now().after(pause)).await;
            self.publish().await;
            // A walk that failed or ended says nothing.
            let cycle = self.walk().await.unwrap_or_default();
            let (Some(now), Some(then)) = (&cycle, &before) else {
                (before, reported) = (cycle, false);
                continue;
            };
            if !is_same(then, now) {
                (before, reported) = (cycle, false);
                continue;
            }
            // A member that has not published since the walk before may have stopped waiting.
            if then.iter().zip(now).any(|(then, now)| then.stamp >= now.stamp) {
                continue;
            }
            let deadlock = deadlock(now);
            // The victim gives way after one more walk. The other members then find the deadlock too before it has ended.
            if reported && deadlock.victim {
                return LockError::deadlock(&deadlock);
            }
            if !reported {
                reported = true;
                tracing::warn!("{deadlock}");
                self.engine.observers.notice(&Notice::Deadlocked { deadlock: &deadlock });
            }
            before = cycle;
        }
    }

    async fn publish(&mut self) {
        self.stamp += 1;
        for hold in &self.holds {
            let blocked = Blocked::new(hold.lease.claim.owner, hold.token, self.stamp, self.wanted.clone());
            let key = hold.events.key.clone();
            let command = Arc::clone(&self.engine.backend).set_blocked(key.clone(), Some(blocked));
            // A note that could not be published is published again next time.
            let _ = self.ask(&key, command).await;
        }
    }

    /// Follows holders and the locks they wait for. Returns the cycle if this task is in it, with its own lock last.
    async fn walk(&self) -> Result<Option<Vec<Hop>>> {
        let mut cycle: Vec<Hop> = Vec::new();
        let mut key = self.wanted.clone();
        while cycle.len() < MAX_HOPS {
            let backend = &self.engine.backend;
            let holder = self.ask(&key, Arc::clone(backend).holder(key.clone())).await?;
            let Some((holder, owner)) = holder.and_then(|holder| holder.owner.map(|owner| (holder, owner))) else {
                return Ok(None);
            };
            let member = DeadlockMember::new(key.clone(), holder.info);
            if let Some(own) = self.holds.iter().find(|hold| hold.events.key == key && hold.lease.claim.owner == owner)
            {
                cycle.push(Hop { member, owner, token: own.token, stamp: self.stamp });
                return Ok(Some(cycle));
            }
            let blocked = self.ask(&key, Arc::clone(backend).blocked(key.clone())).await?;
            let Some(blocked) = blocked.filter(|blocked| blocked.owner == owner) else { return Ok(None) };
            cycle.push(Hop { member, owner, token: blocked.token, stamp: blocked.stamp });
            key = blocked.waits_for;
        }
        Ok(None)
    }

    async fn ask<T: Send + 'static>(&self, key: &LockKey, command: BoxFuture<'static, Result<T>>) -> Result<T> {
        let command = self.engine.route(self.caller, command);
        self.engine.bounded("deadlock", key, self.engine.clock.now().after(PATIENCE), command).await
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // The task no longer waits. A note that cannot be removed expires by itself.
        if self.stamp == 0 || self.engine.made_in.was_forked() {
            return;
        }
        for hold in &self.holds {
            let command = Arc::clone(&self.engine.backend).set_blocked(hold.events.key.clone(), None);
            self.engine.run_on_keeper(async move { drop(command.await) });
        }
    }
}

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nested").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// Adds to the error of a timed-out wait which locks this task holds: other tasks may wait for them.
pub(crate) fn naming_held(engine: &Engine, error: LockError) -> LockError {
    if error.kind() != LockErrorKind::Timeout {
        return error;
    }
    let mut held = Vec::new();
    context::each_held(engine.identity(), |hold| held.push(format!("{:?}", hold.events.key.as_str())));
    if held.is_empty() { error } else { error.while_holding(&held.join(", ")) }
}

/// Returns whether two walks have found the same holders.
fn is_same(then: &[Hop], now: &[Hop]) -> bool {
    let who = |hop: &Hop| (hop.member.key.clone(), hop.owner, hop.token);
    then.len() == now.len() && then.iter().map(who).eq(now.iter().map(who))
}

/// Describes a cycle to the task whose lock is last in it.
fn deadlock(cycle: &[Hop]) -> Deadlock {
    let youngest = cycle.iter().max_by_key(|hop| (hop.token, &hop.member.key));
    let victim = youngest.zip(cycle.last()).is_some_and(|(youngest, own)| youngest == own);
    Deadlock::new(cycle.iter().map(|hop| hop.member.clone()).collect(), victim)
}
