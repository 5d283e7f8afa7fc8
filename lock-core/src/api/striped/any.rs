//! Takes any stripe that is free.

use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lock::{LockRequest, unless_busy};
use crate::api::outcome::FromLockError;
use crate::api::protect;
use crate::api::stripe::key_of;
use crate::api::striped::Striped;
use crate::engine::context;
use crate::engine::shared::{Caller, FAIR_TIME};
use lock_store::contract::event::Purpose;
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::{LockKey, LockLabel};
use lock_store::types::naming::RequestedKeys;
use lock_store::types::options::{LockOptions, Wait, setters};
use lock_store::types::system::blocking::{block_on, yielding};
use lock_store::types::system::clock::Timestamp;

/// How often a request that queues for one stripe tries the others: the stripe's holder may have died.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A request for any one stripe. Made by [`Striped::any`], which has the example of [`AnyStripe`]. Awaiting it is the
/// same as [`acquire`](Self::acquire).
#[must_use = "nothing is locked until the request is awaited"]
#[derive(Debug)]
pub struct AnyStripe {
    striped: Striped,
    except: Vec<u32>,
    options: LockOptions,
    label: Option<LockLabel>,
    called_from: &'static Location<'static>,
}

setters!(AnyStripe, options);

impl AnyStripe {
    #[track_caller]
    pub(super) fn of(striped: &Striped) -> Self {
        let options = striped.manager.options().clone();
        Self { striped: striped.clone(), except: Vec::new(), options, label: None, called_from: Location::caller() }
    }

    /// Excludes some stripes, for example segments that are empty.
    pub fn except<'a>(mut self, stripes: impl IntoIterator<Item = &'a u32>) -> Self {
        self.except.extend(stripes);
        self
    }

    /// Names the family of locks in metrics. Default: the template of the name, otherwise the call site.
    pub fn with_label(mut self, label: impl Into<LockLabel>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Acquires a stripe. Waits as long as the request allows. [`LockGuard::stripe`] tells which stripe it is.
    ///
    /// # Errors
    ///
    /// Like [`LockRequest::acquire`]; [`LockErrorKind::InvalidKey`] if every stripe is excluded.
    ///
    /// # Cancel safety
    ///
    /// Safe, like [`LockRequest::acquire`].
    pub async fn acquire(self) -> Result<LockGuard> {
        yielding(self.choose(Caller::Async).await).await
    }

    /// Acquires a stripe if one is free now. It is not an error if all are taken.
    ///
    /// # Errors
    ///
    /// Like [`acquire`](Self::acquire), without `Timeout` and `Busy`.
    ///
    /// # Cancel safety
    ///
    /// Safe, like [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>> {
        unless_busy(self.without_waiting().acquire().await)
    }

    /// Acquires a stripe and blocks this thread. For synchronous code.
    ///
    /// # Errors
    ///
    /// Like [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<LockGuard> {
        if !self.striped.manager.engine().serves_blocking_callers() {
            return Err(LockError::driven_here("acquire().await"));
        }
        block_on(self.choose(Caller::Blocking))
    }

    /// Runs `body` under a stripe, like [`LockRequest::run`].
    ///
    /// ```no_run
    /// # use lock_core::{LockError, LockManager};
    /// # fn demo(locks: LockManager) {
    /// tokio::spawn(async move {
    ///     let stock = locks.striped("stock:42", 16);
    ///     stock.any().run(async move |guard| Ok::<_, LockError>(guard.stripe())).await
    /// });
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run<R: FromLockError>(self, body: impl AsyncFnOnce(&LockGuard) -> R) -> R {
        match self.acquire().await {
            Ok(guard) => protect::run(guard, body).await.unwrap_or_else(R::from_lock_error),
            Err(error) => R::from_lock_error(error),
        }
    }

    async fn choose(self, caller: Caller) -> Result<LockGuard> {
        let keys = self.candidates()?;
        let engine = self.striped.manager.engine();
        let started = engine.clock.now();
        // One budget for all stages. The tries may use half of it, so at least half is left for the queue.
        let tries_end = match self.options.wait.limit() {
            None => Timestamp::NEVER,
            Some(Duration::ZERO) => started.after(self.options.command_timeout()),
            Some(limit) => started.after(limit / 2),
        };
        let tried = self.try_each(&keys, caller, tries_end).await;
        let refused = match (tried, self.options.wait) {
            (Ok(guard), _) => return Ok(guard),
            (Err(error), Wait::None) => return Err(error),
            // A caller that waits for the lock also waits for an unreachable store.
            (Err(error), _) if !error.is_transient() => return Err(error),
            (Err(error), _) => error,
        };
        let stripes: Vec<u32> = keys.iter().filter_map(LockKey::stripe).collect();
        let (segments, count) = (&self.striped.segments, self.striped.count);
        let home = segments.home(&stripes, count, engine.clock.now()).ok_or_else(LockError::no_stripes)?;
        let _waiting = segments.of(home, count).wait();
        let wait = match self.options.wait {
            Wait::AtMost(limit) => Wait::AtMost(limit.saturating_sub(engine.clock.now().since(started))),
            other => other,
        };
        let queued = self.request(key_of(&self.name()?, home)?, wait);
        let others = async {
            loop {
                engine.timer.sleep_until(engine.clock.now().after(LOOK_AGAIN)).await;
                match self.try_each(&keys, caller, Timestamp::NEVER).await {
                    Err(error) if error.is_transient() => {}
                    other => return other,
                }
            }
        };
        let taken = tokio::select! {
            biased;
            taken = queued.start(caller)? => taken,
            taken = others => taken,
        };
        match taken {
            Ok(guard) => {
                self.note(&guard, engine.clock.now());
                Ok(guard)
            }
            // The tries had used up the budget. The store answered them, but had no time left for this request.
            Err(error)
                if error.kind() == LockErrorKind::Unavailable
                    && refused.kind() == LockErrorKind::Busy
                    && is_hurried(wait) =>
            {
                let waited = engine.clock.now().since(started);
                Err(LockError::timeout(waited, refused.holder().cloned()).with_key(&self.name()?))
            }
            // The caller waited for its own try, which the store has not answered yet.
            Err(error) if error.kind() == LockErrorKind::Timeout && error.holder().is_none() && is_away(&refused) => {
                Err(refused)
            }
            Err(error) => Err(error),
        }
    }

    fn name(&self) -> Result<LockKey> {
        self.striped.name.clone()
    }

    /// Lists the keys to choose from, without the stripes that the task already holds.
    fn candidates(&self) -> Result<Vec<LockKey>> {
        let name = self.name()?;
        let left = (0..self.striped.count).filter(|stripe| !self.except.contains(stripe));
        let keys = left.map(|stripe| key_of(&name, stripe)).collect::<Result<Vec<_>>>()?;
        let Some(first) = keys.first().cloned() else { return Err(LockError::no_stripes().with_key(&name)) };
        let identity = self.striped.manager.engine().identity();
        let free: Vec<_> = keys.into_iter().filter(|key| context::holds(identity, key).is_none()).collect();
        if free.is_empty() {
            return Err(LockError::would_deadlock(&first).with_key(&first));
        }
        Ok(free)
    }

    /// Tries the stripes that may be free, one after the other, until a time.
    async fn try_each(&self, keys: &[LockKey], caller: Caller, until: Timestamp) -> Result<LockGuard> {
        let (segments, count) = (&self.striped.segments, self.striped.count);
        let engine = self.striped.manager.engine();
        let gate = &self.striped.manager.handle().gate;
        let stripes: Vec<u32> = keys.iter().filter_map(LockKey::stripe).collect();
        // A single attempt asks about all stripes. A caller that waits skips those that were busy a moment ago.
        let now = if self.options.wait == Wait::None { Timestamp::NEVER } else { engine.clock.now() };
        // If this process has taken all stripes, the store is not asked about any.
        let mut refused = LockError::busy(None).with_key(&self.name()?);
        for stripe in segments.to_try(&stripes, count, now) {
            let Some(key) = keys.iter().find(|key| key.stripe() == Some(stripe)) else { continue };
            if gate.is_open(key) {
                continue;
            }
            let asked_at = engine.clock.now();
            let tried = tokio::select! {
                biased;
                tried = self.request(key.clone(), Wait::None).start(caller)? => tried,
                () = engine.timer.sleep_until(until) => {
                    return Err(self.out_of_time(key, engine.clock.now().since(asked_at), refused));
                }
            };
            match tried {
                Ok(guard) => {
                    self.note(&guard, engine.clock.now());
                    return Ok(guard);
                }
                Err(error) if error.kind() == LockErrorKind::Busy => {
                    segments.of(stripe, count).busy(engine.clock.now());
                    refused = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// Returns the error of tries that ended before all stripes were tried. `waited` is how long the last one got no
    /// answer.
    fn out_of_time(&self, key: &LockKey, waited: Duration, refused: LockError) -> LockError {
        if waited >= FAIR_TIME {
            return self.striped.manager.engine().no_answer(key, waited).with_key(key);
        }
        if self.options.wait == Wait::None {
            // It is unknown whether one of the others is free.
            return LockError::unavailable(format!(
                "not all of the {} stripes could be tried in time; use fewer, or wait for one",
                self.striped.count,
            ))
            .with_key(key);
        }
        refused
    }

    fn note(&self, guard: &LockGuard, now: Timestamp) {
        if let Some(stripe) = guard.stripe() {
            self.striped.segments.of(stripe, self.striped.count).had(now);
        }
    }

    fn request(&self, key: LockKey, wait: Wait) -> LockRequest {
        let options = self.options.clone().with_wait(wait);
        let keys = Ok(RequestedKeys::One(key));
        let request = LockRequest::new(self.striped.manager.clone(), keys).on_behalf_of(self.called_from, options);
        let request = request.with_purpose(Purpose::Stripe { of: self.striped.count });
        match &self.label {
            Some(label) => request.with_label(label.clone()),
            None => request,
        }
    }
}

/// Returns whether the store could not be asked.
fn is_away(refused: &LockError) -> bool {
    refused.kind() == LockErrorKind::Unavailable
}

/// Returns whether the wait is so short that a missing answer is not the store's fault.
fn is_hurried(wait: Wait) -> bool {
    matches!(wait, Wait::AtMost(left) if left < FAIR_TIME)
}

impl IntoFuture for AnyStripe {
    type Output = Result<LockGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.choose(Caller::Async))
    }
}
