//! One of the processes of Rust.

use std::io::Read as _;

use lock_core::LockManager;
use lock_testing::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::LEASE;
use crate::support::{SECOND, in_layout};

/// Writes the number, and counts the write of one kind.
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])";

pub(crate) fn write(server: &RedisServer, number: u64, kind: &str) {
    server.command(&["EVAL", WRITE, "2", "counter", kind, &number.to_string()]);
}

type Failure = Box<dyn std::error::Error>;

/// Adds to the counter until it is killed. A failure is tried again: a busy machine loses locks, and answers late.
pub(crate) fn work(url: &str) {
    // Ends with the test, however that ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        loop {
            if let Err(error) = add_on(url).await {
                eprintln!("process {} tries again: {error}", std::process::id());
            }
        }
    });
}

async fn add_on(url: &str) -> Result<(), Failure> {
    let locks = LockManager::connect(&in_layout(url)).await?;
    let client = redis::Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    loop {
        let guard = locks.lock("k").with_ttl(LEASE).with_wait(20 * SECOND).await?;
        let read = read(&mut redis).await?;
        // A lease that is nearly over may be over when the server executes the write.
        if guard.remaining() > LEASE / 4 {
            let mut write = redis::cmd("EVAL");
            write.arg(WRITE).arg(2).arg("counter").arg("rust").arg(read + 1);
            let _: u64 = write.query_async(&mut redis).await?;
        }
        guard.release().await?;
    }
}

async fn read(redis: &mut MultiplexedConnection) -> redis::RedisResult<u64> {
    Ok(redis::cmd("GET").arg("counter").query_async::<Option<u64>>(redis).await?.unwrap_or(0))
}
