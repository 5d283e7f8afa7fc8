//! Redisson's `RLock`, as the clients of version 4 write it on one server: a hash with one field for its holder, a watchdog,
//! and a message that wakes the waiters.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

/// Redisson's default `lockWatchdogTimeout`.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// How long a reply may take: a server that hangs must not keep the caller for good.
const REPLY: Duration = Duration::from_secs(2);

const ACQUIRE: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
    redis.call('HSET', KEYS[1], ARGV[1], 1)
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// It never shortens the lease.
const RENEW: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    return 1";

/// A waiter of Redisson sleeps until this message, or until the lease that it has read would end.
const RELEASE: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], '0')
    return 1";

/// A lock of Redisson.
pub(crate) struct RLock {
    redis: MultiplexedConnection,
    name: String,
    channel: String,
    lease: Duration,
}

/// Why the body was not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RLockError {
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    #[error("the server of the old lock did not answer in time")]
    Silent(#[from] tokio::time::error::Elapsed),
    #[error("the old lock was not free in time")]
    Busy,
    #[error("the old lock was lost before the work under it ended")]
    Lost,
}

impl RLock {
    pub(crate) fn new(redis: MultiplexedConnection, name: &str, lease: Duration) -> Self {
        // As Redisson does, which leaves a name that has a hash tag of its own as it is.
        let channel = match name.contains('{') {
            true => format!("redisson_lock__channel:{name}"),
            false => format!("redisson_lock__channel:{{{name}}}"),
        };
        Self { redis, name: name.to_owned(), channel, lease }
    }

    /// Runs the body while it holds the lock, which it renews. Stops the body if the lock is lost.
    pub(crate) async fn run<T>(&self, wait: Duration, body: impl Future<Output = T>) -> Result<T, RLockError> {
        // A holder of its own for each claim, so that no claim is taken for the re-entry of another.
        let owner = format!("{:032x}:1", random());
        let until = Instant::now() + wait;
        let held_until = loop {
            let held_until = Instant::now() + self.lease;
            if self.call(ACQUIRE, &owner).await? {
                break held_until;
            }
            if Instant::now() >= until {
                return Err(RLockError::Busy);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let done = tokio::select! {
            done = body => Ok(done),
            () = self.renew_until_lost(&owner, held_until) => Err(RLockError::Lost),
        };
        // A lock that is gone by now was lost before the body ended.
        if self.call(RELEASE, &owner).await? { done } else { Err(RLockError::Lost) }
    }

    /// Renews every third of the lease. Returns when the lock is lost, or when no reply has confirmed it for a whole lease.
    async fn renew_until_lost(&self, owner: &str, mut held_until: Instant) {
        loop {
            let renews_at = Instant::now() + self.lease / 3;
            tokio::time::sleep_until(renews_at.min(held_until)).await;
            let sent = Instant::now();
            match tokio::time::timeout_at(held_until, self.call(RENEW, owner)).await {
                Ok(Ok(true)) => held_until = sent + self.lease,
                // Without an answer the lease may still last: the next third tells.
                Ok(Err(_)) | Err(_) if Instant::now() < held_until => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn call(&self, script: &str, owner: &str) -> Result<bool, RLockError> {
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(2).arg(&self.name).arg(&self.channel).arg(owner).arg(lease);
        Ok(tokio::time::timeout(REPLY, eval.query_async(&mut self.redis.clone())).await??)
    }
}

/// Enough to tell claims apart.
fn random() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    u128::from(RandomState::new().hash_one(0)) << 64 | u128::from(RandomState::new().hash_one(1))
}
