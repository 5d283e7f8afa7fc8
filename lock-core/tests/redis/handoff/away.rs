//! Turns that come when nobody can take them: the process is stopped or dead, or the server cannot say so.

use lock_core::ReleaseOutcome;
use lock_testing::{FaultProxy, RedisServer, Reply, Stopwatch, limit};

use crate::support::{SECOND, Scratch, Worker, eventually, locks, take, warm};

/// Returns how many claims are in the queue of `k`.
fn queued(server: &RedisServer) -> i64 {
    server.command(&["ZCARD", "{k}@queue"]).int()
}

/// A process that waits for `k` in the queue, on leases of three seconds.
async fn waiter(server: &RedisServer, scratch: &Scratch) -> Worker {
    let (url, history) = (server.url(), scratch.path("history"));
    let mut worker = Worker::start("hold", &[("url", &url), ("history", &history), ("ttl_ms", "3000")]);
    assert_eq!(worker.next().await, "ready");
    worker.send("acquire k").await;
    eventually("it waits", || queued(server) == 1).await;
    worker
}

#[tokio::test]
#[limit]
async fn who_is_away_when_its_turn_comes_costs_the_others_one_grant() {
    for killed in [false, true] {
        let (server, scratch) = (RedisServer::start(), Scratch::new());
        let (one, two) = (locks(&server), locks(&server));
        for locks in [&one, &two] {
            locks.observe(scratch.recorder());
        }
        let guard = take(&one, "k").await;
        let mut away = waiter(&server, &scratch).await;
        let next = tokio::spawn({
            let two = two.clone();
            async move { two.lock("k").await.unwrap() }
        });
        eventually("two wait", || queued(&server) == 2).await;
        away.stop();
        scratch.recorder().release(guard.key(), guard.token());
        let released = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let pid = away.pid();
        let holder = one.holder("k").await.unwrap().expect("the lock passes on in the release");
        assert_eq!(holder.info.map(|info| info.pid), Some(pid), "its connection lives, so it is granted");
        if killed {
            away.kill().await;
            scratch.recorder().killed(pid);
        }
        let second = next.await.unwrap();
        // The grant runs out, and waiters check once a second.
        released.assert_within(3 * SECOND + SECOND, "the turn after one that nobody took");
        if !killed {
            // The process wakes to a grant that is over, does not believe it, and still gets a
            // turn.
            away.resume();
            tokio::time::sleep(SECOND).await;
            second.ensure_held().unwrap();
        }
        scratch.recorder().release(second.key(), second.token());
        assert_eq!(second.release().await, Ok(ReleaseOutcome::Released));
        if !killed {
            assert!(away.next().await.starts_with("held "));
            assert_eq!(away.order("release").await, "Released");
            away.ended().await;
        }
        assert_eq!(scratch.verdict().violations, [], "killed: {killed}");
    }
}

#[tokio::test]
#[limit]
async fn a_server_without_memory_frees_the_lock_or_passes_it_on() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let guard = take(&one, "k").await;
    let old = one.holder("k").await.unwrap().unwrap().owner;
    let next = tokio::spawn(async move { two.lock("k").await.unwrap() });
    eventually("it waits", || queued(&server) == 1).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    // Whether the server has room for the next write depends on what the same script wrote before.
    let holder = one.holder("k").await.unwrap();
    assert!(holder.is_none_or(|holder| holder.owner != old), "it is still the old holder's");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let next = next.await.unwrap();
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(server.command(&["EXISTS", "{k}@queue"]), Reply::Int(0));
}

/// The message is lost on its way, or no process is listening.
#[tokio::test]
#[limit]
async fn a_grant_that_is_not_heard_costs_one_confirmation() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let (one, two) = (locks(&server), warm(&proxy.url()).await);
    for round in 0..10 {
        let guard = take(&one, "k").await;
        let next = tokio::spawn({
            let two = two.clone();
            async move { two.lock("k").await.unwrap() }
        });
        eventually("it waits", || queued(&server) == 1).await;
        if round % 2 == 0 {
            proxy.drop_replies(1);
        } else {
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        let released = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let next = next.await.unwrap();
        released.assert_within(SECOND, "a turn that was not heard of");
        proxy.resume();
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    }
}
