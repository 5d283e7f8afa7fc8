//! The floor of the protocol: one command to acquire and one script to release.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, Script, Value};

use crate::Result;
use crate::contestant::access::Access;
use crate::contestant::contract::{Contestant, TTL_MS};

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
});

/// The longest pause before a retry on a held lock, ms.
const RETRY_MS: u64 = 2;

/// One multiplexed connection of redis-rs.
#[derive(Clone)]
pub(crate) struct Raw(MultiplexedConnection);

impl Raw {
    /// Connects. The response time-out of redis-rs is off, so this contestant is faster than its default.
    pub(crate) async fn connect(port: u16, nodelay: bool) -> Result<Self> {
        let mut info: ConnectionInfo = ("127.0.0.1", port).into_connection_info()?;
        if nodelay {
            info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(Self(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?))
    }
}

impl Contestant for Raw {
    type Held = (String, u64);

    async fn acquire(&self, key: &str, _access: Access) -> Result<(Self::Held, u64)> {
        let value = fastrand::u64(..);
        let mut connection = self.0.clone();
        loop {
            let mut take = redis::cmd("SET");
            take.arg(key).arg(value).arg("NX").arg("PX").arg(TTL_MS);
            if let Value::Okay = take.query_async(&mut connection).await? {
                return Ok(((key.to_owned(), value), 0));
            }
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..RETRY_MS * 1000))).await;
        }
    }

    async fn release(&self, (key, value): Self::Held) -> Result<()> {
        let mut connection = self.0.clone();
        Ok(RELEASE.key(key).arg(value).invoke_async(&mut connection).await?)
    }
}
