//! The example's `RLock` beside the real one: Redisson in a Java program of its own.

#[path = "../../src/bin/migration/rlock.rs"]
mod example;
#[path = "../../../stores/lock-redisson/tests/it/redisson.rs"]
#[allow(dead_code, reason = "the tests of the store use more of it")]
mod redisson;

use std::time::{Duration, Instant};

use lock_testing::{RedisServer, Reply, limit};

use self::example::{LEASE, RLock, RLockError};
use self::redisson::Redisson;

const LONG: Duration = Duration::from_secs(60);

async fn lock(server: &RedisServer, name: &str, lease: Duration) -> RLock {
    let redis = redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    RLock::new(redis, name, lease)
}

/// Waits until this many clients of the server have subscribed to the channel.
async fn subscribed(server: &RedisServer, channel: &str) {
    let subscribers = || match server.command(&["PUBSUB", "NUMSUB", channel]) {
        Reply::List(reply) => reply[1].int(),
        other => panic!("{other:?}"),
    };
    while subscribers() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_waiter_of_redisson_is_woken_when_the_example_gives_its_lock_back() {
    let server = RedisServer::start();
    let Some(mut redisson) = Redisson::start(&server.url(), LEASE) else { return };
    for (name, channel) in [("stock", "redisson_lock__channel:{stock}"), ("a:{b}", "redisson_lock__channel:a:{b}")] {
        let ours = lock(&server, name, LEASE).await;
        let given_back = ours.run(LONG, async {
            redisson.send(&format!(r#"{{"acquire": "{name}", "wait_ms": 60000}}"#));
            subscribed(&server, channel).await;
            Instant::now()
        });
        let given_back = given_back.await.unwrap();
        let answer = tokio::task::block_in_place(|| redisson.answer());
        assert!(answer.contains(r#""acquired": true"#), "{name}: {answer}");
        let took = given_back.elapsed();
        assert!(took < LEASE / 3, "{name}: a lease of 30 s was not waited for, but {took:?}");
        let busy = ours.run(Duration::ZERO, async {}).await;
        assert!(matches!(busy, Err(RLockError::Busy)), "{name}: {busy:?}");
        assert!(redisson.ask(r#"{"release": true}"#).contains(r#""released": true"#), "{name}");
        ours.run(LONG, async {}).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_lock_of_the_example_lasts_longer_than_its_lease_and_redisson_waits_for_it() {
    let server = RedisServer::start();
    let Some(mut redisson) = Redisson::start(&server.url(), LEASE) else { return };
    let lease = Duration::from_millis(600);
    let ours = lock(&server, "stock", lease).await;
    let refused = ours.run(LONG, async {
        // On a thread of its own: the renewal goes on beside the body.
        let asked = move || redisson.ask(r#"{"acquire": "stock", "wait_ms": 3000}"#);
        tokio::task::spawn_blocking(asked).await.unwrap()
    });
    assert!(refused.await.unwrap().contains(r#""acquired": false"#), "it is held for five leases");
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn a_body_stops_when_the_lock_of_the_example_is_lost() {
    let server = RedisServer::start();
    let ours = lock(&server, "stock", Duration::from_millis(300)).await;
    let stopped = ours.run(LONG, async {
        server.command(&["DEL", "stock"]);
        std::future::pending::<()>().await;
    });
    assert!(matches!(stopped.await, Err(RLockError::Lost)));
    // A server that hangs confirms nothing: the body stops when the lease would end.
    let hung = ours.run(LONG, async {
        server.pause();
        let _resumes = Resumes(&server);
        std::future::pending::<()>().await;
    });
    assert!(matches!(hung.await, Err(RLockError::Lost)));
}

/// Lets a server go on when it is dropped.
struct Resumes<'a>(&'a RedisServer);

impl Drop for Resumes<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}
