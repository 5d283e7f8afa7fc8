//! From a call of the contract to its answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::names;
use crate::scripts::{ACQUIRE, FORGET, READ, RELEASE, RENEW, Told, step};
use crate::seen::{Seen, about};
use crate::store::RedissonStore;
use lock_redis::layout::{Draw, REVOKED, Step};
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Freed, LockBackend as _, Release, Renewal};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::together::all;

/// How long the server remembers that an unlock was done. As long as Redisson with its default settings.
const LATCH_KEPT: Duration = Duration::from_secs(20);

fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}

fn unreadable(lock: &LockKey) -> LockError {
    LockError::unavailable("the server's answer cannot be read; it may or may not have been executed").with_key(lock)
}

impl RedissonStore {
    /// Runs a script that has a deadline, and again if its answer only brought the server's time.
    async fn in_time<'a>(
        &self,
        claim: &'a Claim,
        within: Duration,
        make: impl Fn(String) -> Step<'a, Told> + Send + Sync,
    ) -> Result<Told> {
        let (clock, lock) = (Clock::system(), &claim.key);
        let end = clock.now().after(within);
        loop {
            let now = clock.now();
            let left = end.since(now);
            if left.is_zero() {
                let text = format!("the server was reached only after {within:?}; it is stalled, or the ttl too short");
                return Err(LockError::not_executed(text).with_key(lock));
            }
            let deadline = self.times.deadline(self.redis.lane(lock), now, left);
            let mut step = make(deadline.to_string());
            (step.claim, step.within) = (Some(claim), left);
            let told = self.redis.step(step).await?;
            // Where it is now, after a redirection.
            self.times.note(self.redis.lane(lock), told.now, clock.now());
            if told.word() != b"s" {
                return Ok(told);
            }
        }
    }

    /// Takes a lock if it is free, or if this claim has it.
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let claim = &request.claim;
        let lock = &claim.key;
        names::check(lock)?;
        if claim.mode.is_shared() {
            return Err(claim.mode.unknown_to_store());
        }
        let make = |deadline: String| {
            let keys = vec![lock.as_str().to_owned(), names::about(lock)];
            let floor = Draw::of(request.floor).to_string();
            let (field, ttl, owner) = (names::field(claim.owner), millis(claim.ttl), claim.owner.to_hex());
            let words = vec![deadline, field, ttl, floor, owner, about(claim.ttl, &request.info)];
            step("acquire", lock, &ACQUIRE, keys, words)
        };
        let told = self.in_time(claim, request.execute_within, make).await?;
        match told.word() {
            b"g" => {
                let token = told.text(1).and_then(|drawn| Draw::read(drawn.as_bytes())?.token());
                token.map(|token| Attempt::Granted { token, lease: None }).ok_or_else(|| unreadable(lock))
            }
            b"h" => {
                let seen = Seen::read(&told, lock, &self.channels).ok_or_else(|| unreadable(lock))?;
                Ok(Attempt::Held { holder: seen.holder() })
            }
            b"c" => Err(LockError::misconfigured(
                "the newest token known lies more than an hour ahead of the server's time; check the server's clock",
            )
            .with_key(lock)),
            _ => Err(unreadable(lock)),
        }
    }

    pub(crate) async fn extend(&self, claim: &Claim) -> Result<Renewal> {
        let lock = &claim.key;
        let make = |deadline: String| {
            let keys = vec![lock.as_str().to_owned(), names::about(lock)];
            let words = vec![deadline, names::field(claim.owner), millis(claim.ttl)];
            let mut step = step("renew", lock, &RENEW, keys, words);
            step.renews = true;
            step
        };
        let told = self.in_time(claim, command_timeout(claim.ttl), make).await?;
        match told.word() {
            b"r" => Ok(Renewal::Renewed),
            b"" => Ok(Renewal::Lost),
            _ => Err(unreadable(lock)),
        }
    }

    /// Frees what a claim has. A repeat of an unanswered unlock is known again by its latch.
    pub(crate) async fn free(&self, release: &Release) -> Result<Freed> {
        let claim = &release.claim;
        let (lock, owner) = (&claim.key, claim.owner);
        self.channels.leave(&names::channel(lock), owner);
        let number = self.unlocks.number(owner);
        let keep = if release.keep_for.is_zero() { "0".to_owned() } else { millis(release.keep_for) };
        let by = [names::field(owner), keep, names::kept(owner), String::new()];
        let freed = self.unlock(lock, by, number, command_timeout(claim.ttl)).await?;
        self.unlocks.answered(owner, (freed == Freed::Released).then(|| (lock.clone(), number)));
        Ok(freed)
    }

    /// Frees a lock that has a field, or keeps it for so long by another field, and sends a message to its holder. A release that
    /// nobody hears of is logged once.
    pub(crate) async fn unlock(&self, lock: &LockKey, by: [String; 4], id: OwnerId, within: Duration) -> Result<Freed> {
        let [field, keep, kept, message] = by;
        let keys = vec![lock.as_str().to_owned(), names::channel(lock), names::latch(lock, id), names::about(lock)];
        let verb = self.channels.verb.publish().to_owned();
        let words = vec![field, verb, millis(LATCH_KEPT), keep, kept, REVOKED.to_owned(), message];
        let mut step = step("release", lock, &RELEASE, keys, words);
        step.within = within;
        match self.redis.step(step).await?.word() {
            b"" => return Ok(Freed::NotHeld),
            b"1" => {}
            b"2" if self.warned.swap(true, Ordering::Relaxed) => {}
            b"2" => tracing::warn!(
                key = lock.as_str(),
                "the server refuses to publish a release, so waiters of Redisson sleep on; permit redisson_lock__channel:*"
            ),
            _ => return Err(unreadable(lock)),
        }
        Ok(Freed::Released)
    }

    /// Reads who has a lock. `None` if it is free.
    pub(crate) async fn seen(&self, lock: &LockKey) -> Result<Option<Seen>> {
        names::check(lock)?;
        let keys = vec![lock.as_str().to_owned(), names::about(lock)];
        let told = self.redis.step(step("look at the holder", lock, &READ, keys, Vec::new())).await?;
        if told.rest.is_empty() {
            return Ok(None);
        }
        Seen::read(&told, lock, &self.channels).map(Some).ok_or_else(|| unreadable(lock))
    }

    /// Removes the latches of unlocks that were answered, as Redisson does. Never returns.
    pub(crate) async fn forget_latches(&self) {
        loop {
            self.unlocks.added.notified().await;
            let spent = std::mem::take(&mut *self.unlocks.spent.lock());
            let forget = |(lock, number): (LockKey, OwnerId)| async move {
                let keys = vec![names::latch(&lock, number)];
                // A latch that stays ends by itself.
                let _ = self.redis.step(step("forget an unlock", &lock, &FORGET, keys, Vec::new())).await;
            };
            all(spent.into_iter().map(forget)).await;
        }
    }
}
