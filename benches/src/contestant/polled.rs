//! A semaphore that is polled: a sorted set of permits by their expiry, and a random pause between two tries.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::{Contestant, TTL_MS};

static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
         local now = time[1] * 1000 + math.floor(time[2] / 1000)
         redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
         if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
         redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
         redis.call('PEXPIRE', KEYS[1], ARGV[3])
         return 1",
    )
});

/// The pause before another try, ms: what DistributedLock for .NET does unless it is told otherwise.
const PAUSE_MS: std::ops::Range<u64> = 10..800;

/// One multiplexed connection of redis-rs.
#[derive(Clone)]
pub(crate) struct Polled(MultiplexedConnection);

impl Polled {
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(("127.0.0.1", port))?;
        Ok(Self(client.get_multiplexed_async_connection_with_config(&config).await?))
    }
}

impl Contestant for Polled {
    type Held = (String, u64);

    async fn acquire(&self, key: &str, access: Access) -> Result<(Self::Held, u64)> {
        let permit = fastrand::u64(..);
        let mut connection = self.0.clone();
        loop {
            let mut take = TAKE.key(key);
            if take.arg(permit).arg(access.inside()).arg(TTL_MS).invoke_async(&mut connection).await? {
                return Ok(((key.to_owned(), permit), 0));
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE_MS))).await;
        }
    }

    async fn release(&self, (key, permit): Self::Held) -> Result<()> {
        let mut connection = self.0.clone();
        Ok(redis::cmd("ZREM").arg(key).arg(permit).query_async(&mut connection).await?)
    }
}
