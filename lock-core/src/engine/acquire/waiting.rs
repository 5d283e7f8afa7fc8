//! Tells about a wait while it lasts: after a second, after ten seconds, and then each minute.
//!
//! Each message costs one look at the store. The waiting caller polls that look beside its wait, so a wait that is
//! dropped takes its look along, and a look that hangs delays no grant. The connection of renewals carries no look.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::Acquire;
use crate::engine::claim::spec::OnWaiting;
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
pub(super) const FIRST: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(10);
const LATER: Duration = Duration::from_secs(60);

/// How long a look may take. After that the message says that nothing is known.
const LOOK: Duration = Duration::from_secs(1);

/// The time between two looks of this process. A look reads the whole queue of its lock.
const APART: Duration = Duration::from_millis(100);

/// The next message about a wait.
pub(super) struct Telling {
    /// When it is due.
    pub(super) at: Timestamp,
    /// Whether a turn of this process is reserved for it.
    may_look: bool,
    /// The message that is being put together.
    message: Option<BoxFuture<'static, ()>>,
}

impl Default for Telling {
    fn default() -> Self {
        Self { at: Timestamp::NEVER, may_look: false, message: None }
    }
}

/// Awaits one stage of a wait. Meanwhile the message that is due is put together.
pub(super) async fn beside<T>(telling: &mut Telling, mut stage: impl Future<Output = T> + Unpin) -> T {
    if let Some(tell) = &mut telling.message {
        tokio::select! {
            biased;
            done = &mut stage => return done,
            () = tell => {}
        }
        telling.message = None;
    }
    stage.await
}

impl Acquire {
    /// Returns how long it has taken until now.
    pub(super) fn waited(&self) -> Duration {
        self.engine().clock.now().since(self.started)
    }

    /// Asks the store for the lock, and tells about the wait meanwhile. `waited` says whether the lock was found taken.
    pub(super) async fn ask(
        &mut self,
        guard: &mut ClaimGuard,
        now: Timestamp,
        waited: bool,
    ) -> (Result<ClaimAnswer>, Timestamp) {
        // Nearly all first requests are answered at once. They are not watched, unless the caller wants to know.
        if !waited && self.spec.on_waiting.is_none() {
            return guard.ask(&self.spec, (now, self.until)).await;
        }
        loop {
            let tell_at = self.telling.at;
            {
                let asked = pin!(guard.ask(&self.spec, (now, self.until)));
                tokio::select! {
                    biased;
                    answer = beside(&mut self.telling, asked) => return answer,
                    // The command stays in flight, and its answer is awaited again.
                    () = self.handle.engine.timer.sleep_long(now, tell_at) => {}
                }
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
            let tell_at = self.telling.at;
            let heard = beside(&mut self.telling, pin!(guard.listen(&self.spec, until.min(tell_at)))).await;
            match heard {
                Err(Interrupted::TimedOut) if tell_at < until => self.tell(None, Some(guard.owner())),
                heard => return heard,
            }
        }
    }

    /// Begins to put a message together, and plans the next one. `hint` is what the callers of this process know about the
    /// holder, and `owner` the claim of this caller, if it has sent one.
    pub(super) fn tell(&mut self, hint: Option<HolderHint>, owner: Option<OwnerId>) {
        let (now, on_waiting, events) =
            (self.engine().clock.now(), self.spec.on_waiting.clone(), self.spec.events.clone());
        let heard = on_waiting.is_some()
            || events.origin.observers.hear_waits()
            || tracing::enabled!(target: "lock_core", tracing::Level::INFO);
        // A candidate for a role does not wait for a lock to become free. An observer may be added later.
        let may_tell = self.spec.options.wait != Wait::None && events.purpose != Purpose::Leadership;
        if !(may_tell && heard) {
            return self.telling.at = if may_tell { now.after(jitter(LATER / 2, LATER)) } else { Timestamp::NEVER };
        }
        // A holder of this process is known without a look.
        let here = hint.filter(|hint| matches!(hint, HolderHint::Here(_))).and_then(|hint| hint.describe(now));
        if here.is_none() && !std::mem::take(&mut self.telling.may_look) {
            // In a crowd of waiters some messages come late, and others are left out. A waiter that asked for its turn again and again
            // would cost more than the looks.
            match self.engine().clock.reserve_turn(APART, LATER) {
                Some(turn) if turn <= now => {}
                Some(turn) => return (self.telling.at, self.telling.may_look) = (turn, true),
                None => return self.telling.at = now.after(jitter(LATER / 2, LATER)),
            }
        }
        let (engine, caller, started, until) = (Arc::clone(self.engine()), self.spec.caller, self.started, self.until);
        self.telling.at = if now.since(started) < SECOND { started.after(SECOND) } else { now.after(LATER) };
        self.telling.message = Some(Box::pin(async move {
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

/// Asks the store who holds a lock, how long it has had the lock, and how many claims stand before this one.
async fn look(
    engine: &Arc<Engine>,
    key: &LockKey,
    caller: Caller,
    owner: Option<OwnerId>,
) -> Result<(Option<Holder>, Option<Duration>, Option<usize>)> {
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
        let waiters = match &entry {
            // A store may name the holder and keep its queue to itself.
            Some(entry) if owner.is_some() && entry.waiters != Some(0) => backend.waiters(of).await.unwrap_or_default(),
            _ => Vec::new(),
        };
        let own = waiters.iter().find(|waiter| Some(waiter.owner) == owner);
        let held_for = entry.as_ref().and_then(|entry| entry.held_for);
        Ok((entry.map(|entry| entry.holder), held_for, own.map(|waiter| waiter.position.saturating_sub(1))))
    });
    let until = engine.clock.now().after(LOOK);
    engine.bounded("holder", key, until, engine.route(caller, asked)).await
}

#[cfg(test)]
mod tests;
