//! Callers that block a thread, or use an executor of their own: the keeper sends their commands.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use lock_core::{LockError, LockErrorKind, LockManager};
use lock_testing::{Direction, EventLog, FaultProxy, RedisServer, limit};

use crate::support::{LONG, MS, SECOND, eventually, exists, locked_keys, locks, warm};

/// One way to ask for the lock, which gives up after a while.
type Ask = fn(&LockManager, Duration) -> LockError;

fn one_key(locks: &LockManager, wait: Duration) -> LockError {
    locks.lock("k").with_wait(wait).acquire_blocking().unwrap_err()
}

fn several_keys(locks: &LockManager, wait: Duration) -> LockError {
    locks.lock_all(["k", "l"]).with_wait(wait).acquire_blocking().unwrap_err()
}

/// An executor that knows nothing about tokio.
fn foreign_executor(locks: &LockManager, wait: Duration) -> LockError {
    let mut acquire = std::pin::pin!(locks.lock("k").with_wait(wait).acquire());
    loop {
        if let Poll::Ready(outcome) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return outcome.unwrap_err();
        }
        std::thread::sleep(MS);
    }
}

#[test]
#[limit]
fn who_gives_up_while_the_server_stands_still_takes_no_lock_for_nobody() {
    let asks: [(&str, Ask); 3] =
        [("one key", one_key), ("several keys", several_keys), ("a foreign executor", foreign_executor)];
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (name, ask) in asks {
        for stopped in [700 * MS, 1_500 * MS] {
            let here = runtime.block_on(warm(&server.url()));
            server.pause();
            let started = Instant::now();
            let error = ask(&here, 300 * MS);
            let given_up = matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout);
            assert!(given_up, "{name}: {error}");
            std::thread::sleep(stopped.saturating_sub(started.elapsed()));
            server.resume();
            // Others can take the lock throughout the time in which a repeat could arrive.
            let elsewhere = locks(&server);
            let until = Instant::now() + SECOND;
            while Instant::now() < until {
                let guard = elsewhere.lock("k").with_wait(2 * SECOND).acquire_blocking();
                let guard = guard.unwrap_or_else(|error| panic!("{name}, stopped for {stopped:?}: {error}"));
                guard.release_blocking().unwrap();
                std::thread::sleep(20 * MS);
            }
            assert!(locked_keys(&server).is_empty(), "{name}: {:?}", locked_keys(&server));
        }
    }
}

/// A caller that gives up while a claim is in flight leaves it to the next caller of the process, here a blocking one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn who_goes_on_with_the_claim_of_another_needs_no_runtime() {
    let server = RedisServer::start();
    let _replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    eventually("the replica follows", || server.command(&["INFO", "replication"]).text().contains("state=online"))
        .await;
    let proxy = FaultProxy::start(server.port());
    // A grant is confirmed, which is more than the answer that was on its way.
    let locks = warm(&format!("{}?acks=1", proxy.url())).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    for round in 0..3 {
        proxy.black_hole(Direction::ToClient);
        let first = tokio::spawn(locks.lock("k").with_ttl(LONG).with_wait(LONG).acquire());
        eventually("it is granted, and does not know", || exists(&server, "k")).await;
        let blocked = locks.clone();
        let next = std::thread::spawn(move || blocked.lock("k").with_ttl(LONG).with_wait(LONG).acquire_blocking());
        eventually("the next waits", || events.count("WaitStarted") == 2 * (round + 1)).await;
        tokio::time::sleep(50 * MS).await;
        first.abort();
        eventually("the first has given up", || events.count("Cancelled") == round + 1).await;
        proxy.resume();
        next.join().unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(locked_keys(&server), [""; 0]);
}
