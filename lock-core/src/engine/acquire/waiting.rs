//! Tells about a wait while it lasts: after a second, after ten seconds, and then each minute.
//!
//! Each message costs one look at the store. The waiting caller polls that look beside its wait, so a wait that is
//! dropped takes its look along, and a look that hangs delays no grant. The connection of renewals carries no look.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::acquire::Acquire;
use crate::engine::claim::spec::{LockSpec, OnWaiting};
use crate::engine::claim::{ClaimAnswer, ClaimGuard, HolderHint, Success};
use crate::engine::shared::{Caller, Engine, Interrupted};
use lock_store::contract::backend::BoxFuture;
use lock_store::contract::event::{Purpose, WaitProgress};
use lock_store::types::error::{LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::Wait;
use lock_store::types::owner::{Holder, OwnerId};
use lock_store::types::system::clock::{Timestamp, jitter};

/// When the first two messages come, and the time between all later ones.
const FIRST: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(10);
const LATER: Duration = Duration::from_secs(60);

/// How long a look may take. After that the message says that nothing is known.
const LOOK: Duration = Duration::from_secs(1);

/// The time between two looks of this process, a little more than a hundredth of a second.
const APART: Duration = Duration::from_micros(10_100);

/// How far ahead looks are planned. With more waiters than that, some messages are left out.
const AHEAD: Duration = Duration::from_secs(1);

/// Awaits one stage of a wait. Meanwhile the message that is due is put together.
pub(super) async fn beside<T>(telling: &mut Option<BoxFuture<'static, ()>>, stage: impl Future<Output = T>) -> T {
    let mut stage = pin!(stage);
    if let Some(tell) = telling {
        tokio::select! {
            biased;
            done = &mut stage => return done,
            () = tell => {}
        }
        *telling = None;
    }
    stage.await
}

/// Returns when the first message is due.
pub(super) fn first(started: Timestamp, spec: &LockSpec) -> Timestamp {
    // A candidate for a role does not wait for a lock to become free.
    let waits = spec.options.wait != Wait::None && spec.events.purpose != Purpose::Leadership;
    if waits { started.after(FIRST) } else { Timestamp::NEVER }
}

impl Acquire {
    /// Asks the store for the lock, and tells about the wait meanwhile. `waited` says whether the lock was found taken.
    pub(super) async fn ask(
        &mut self,
        guard: &mut ClaimGuard,
        now: Timestamp,
        waited: bool,
    ) -> (Result<ClaimAnswer>, Timestamp) {
        // Nearly all first requests are answered at once. They are not watched, unless the caller wants to know.
        let watched = waited || self.spec.on_waiting.is_some();
        loop {
            let ask = beside(&mut self.telling, guard.ask(&self.spec, (now, self.until)));
            if !watched {
                return ask.await;
            }
            tokio::select! {
                biased;
                answer = ask => return answer,
                // The command stays in flight, and its answer is awaited again.
                () = self.handle.engine.timer.sleep_long(now, self.tell_at) => {}
            }
            self.tell(None, Some(guard.owner()));
        }
    }

    /// Waits for a grant until a time, and tells about the wait meanwhile.
    pub(super) async fn listen(
        &mut self,
        guard: &mut ClaimGuard,
        until: Timestamp,
    ) -> Result<Option<(Success, Timestamp)>, Interrupted> {
        loop {
            match beside(&mut self.telling, guard.listen(&self.spec, until.min(self.tell_at))).await {
                Err(Interrupted::TimedOut) if self.tell_at < until => self.tell(None, Some(guard.owner())),
                heard => return heard,
            }
        }
    }

    /// Begins to put a message together, and plans the next one. `hint` is what the callers of this process know about the
    /// holder, and `owner` the claim of this caller, if it has sent one.
    pub(super) fn tell(&mut self, hint: Option<HolderHint>, owner: Option<OwnerId>) {
        let (now, events) = (self.engine().clock.now(), &self.spec.events);
        let on_waiting = self.spec.on_waiting.clone();
        let traced = tracing::enabled!(target: "lock_core", tracing::Level::INFO);
        if !traced && on_waiting.is_none() && !events.origin.observers.exist() {
            self.tell_at = Timestamp::NEVER;
            return;
        }
        let here = match hint {
            Some(hint @ HolderHint::Here(_)) => hint.describe(now),
            _ => None,
        };
        // A holder of this process is known without a look.
        let turn = if here.is_some() { Some(now) } else { turn_to_look(next_look(self.engine()), now) };
        let Some(turn) = turn else {
            self.tell_at = now.after(jitter(AHEAD, AHEAD * 2));
            return;
        };
        let waited = now.since(self.started);
        self.tell_at = if waited < SECOND { self.started.after(SECOND) } else { now.after(LATER) };
        let (engine, events, caller) = (Arc::clone(self.engine()), events.clone(), self.spec.caller);
        let (started, until) = (self.started, self.until);
        self.telling = Some(Box::pin(async move {
            engine.timer.sleep_until(turn).await;
            let looked = match here {
                Some(holder) => Ok((Some(holder), None, None)),
                None => look(&engine, &events.key, caller, owner).await,
            };
            let now = engine.clock.now();
            let left = (until != Timestamp::NEVER).then(|| until.since(now));
            let mut progress = WaitProgress::new(events.key.clone(), events.label.clone(), now.since(started), left);
            (progress.site, progress.store) = (events.call_site.name, Arc::clone(&events.origin.store));
            match looked {
                Ok(found) => (progress.holder, progress.held_for, progress.before) = found,
                Err(error) => progress.unknown = Some(error),
            }
            tracing::info!(
                name: "lock.waiting",
                target: "lock_core",
                lock = progress.label.as_str(), key = progress.key.as_str(), site = progress.site,
                store = &*progress.store, waited_seconds = progress.waited.as_secs_f64(),
                before = progress.before, holder = progress.holder.as_ref().map(tracing::field::display),
                "{progress}"
            );
            events.origin.observers.waiting(&progress);
            if let Some(OnWaiting(call)) = on_waiting {
                // A message must not break the wait.
                let _ = catch_unwind(AssertUnwindSafe(|| call(&progress)));
            }
        }));
    }
}

/// The holder of a lock, how long it has had the lock, and how many claims stand before this one.
type Found = (Option<Holder>, Option<Duration>, Option<usize>);

/// Asks the store who holds a lock, and how many claims stand before this one.
async fn look(engine: &Arc<Engine>, key: &LockKey, caller: Caller, owner: Option<OwnerId>) -> Result<Found> {
    let (backend, of) = (Arc::clone(&engine.backend), key.clone());
    let asked = Box::pin(async move {
        let entry = match Arc::clone(&backend).entry(of.clone()).await {
            Ok(entry) => entry,
            // The store lists nothing, or not for this user.
            Err(error) if error.kind() == LockErrorKind::Misconfigured => {
                return Ok((backend.holder(of).await?, None, None));
            }
            Err(error) => return Err(error),
        };
        let before = match owner.filter(|_| entry.as_ref().is_some_and(|entry| entry.waiters != Some(0))) {
            None => None,
            // A store may name the holder and keep its queue to itself.
            Some(owner) => backend.waiters(of).await.ok().and_then(|waiters| {
                let place = waiters.iter().find(|waiter| waiter.owner == owner)?.position;
                Some(place.saturating_sub(1))
            }),
        };
        let held_for = entry.as_ref().and_then(|entry| entry.held_for);
        Ok((entry.map(|entry| entry.holder), held_for, before))
    });
    let until = engine.clock.now().after(LOOK);
    engine.bounded("holder", key, until, engine.route(caller, asked)).await
}

/// Where the turns to look are counted: for the whole process. A clock of a runtime, as tests have it, shares its times with no
/// other clock, so its turns are counted apart.
fn next_look(engine: &Engine) -> &AtomicU64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if engine.clock.is_system() { &NEXT } else { &engine.next_look }
}

/// Returns when the next look at a store may come. `None` if too many looks are planned already.
fn turn_to_look(next_look: &AtomicU64, now: Timestamp) -> Option<Timestamp> {
    let plan = |next: u64| {
        let next = Timestamp::from_nanos(next).max(now);
        (next <= now.after(AHEAD)).then_some(next)
    };
    let after = |next| plan(next).map(|at| at.after(APART).as_nanos());
    next_look.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok().and_then(plan)
}

#[cfg(test)]
mod tests;
