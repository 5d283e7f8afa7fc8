//! The first attempt without a script must never leave anything behind, whatever the server refuses.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockBackend, LockErrorKind, RedisStore};
use lock_store::{Attempt, Freed, Ticket};
use lock_testing::{RedisServer, Reply, limit};

use crate::redis_store::{acquire, claim, granted, release, request, store, token};

fn user(server: &RedisServer, rules: &str) -> RedisStore {
    let words = format!("ACL SETUSER app on >pw ~* &* +@all {rules}");
    assert_eq!(server.command(&words.split(' ').collect::<Vec<_>>()), Reply::Text("OK".to_owned()));
    RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap()
}

fn executed(server: &RedisServer, command: &str) -> bool {
    let stats = server.command(&["INFO", "commandstats"]);
    stats.text().lines().any(|line| line.starts_with(&format!("cmdstat_{command}:calls=")))
}

/// Without MULTI the server executes each command that was meant for the transaction: every lock is taken.
#[tokio::test]
#[limit]
async fn a_server_that_refuses_transactions_serves_by_the_script() {
    let server = RedisServer::start();
    let store = user(&server, "-multi");
    let mut newest = granted(&store, &claim("lock:warm")).await;
    for key in ["lock:a", "lock:b"] {
        let claim = claim(key);
        let token = granted(&store, &claim).await;
        assert!(token > newest);
        newest = token;
        assert_eq!(release(&store, &claim).await, Freed::Released);
        assert_eq!(server.command(&["EXISTS", key]), Reply::Int(0));
    }
}

#[tokio::test]
#[limit]
async fn without_tokens_there_are_no_locks() {
    let server = RedisServer::start();
    let store = user(&server, "-xadd");
    let error = acquire(&store, &claim("lock:a")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    let mut scripted = request(&claim("lock:b"));
    scripted.repeated = true;
    assert_eq!(store.try_acquire(&scripted).await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

/// A connection that the server cannot be asked to close carries nothing that could be executed too late.
#[tokio::test]
#[limit]
async fn without_permission_to_close_connections_the_script_looks_at_the_time_since_redis_7() {
    let server = RedisServer::start();
    for rules in ["-client|kill", "-client|info"] {
        let store = user(&server, rules);
        granted(&store, &claim(rules)).await;
        assert!(!executed(&server, "multi"), "{rules}");
    }
    granted(&store(&server), &claim("lock:a")).await;
    assert!(executed(&server, "multi"));
}

/// The server is stopped, the caller gives up, and its runtime no longer runs. The bytes are in the
/// server's socket, and are executed when the server resumes.
#[test]
#[limit]
fn an_attempt_of_a_runtime_that_stopped_takes_no_lock_once_its_claim_has_ended() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    for driven in [false, true] {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (application, keeper) = (runtime(), runtime());
        keeper.block_on(async { assert_eq!(release(&store, &claim("warm")).await, Freed::NotHeld) });
        application.block_on(async { assert_eq!(release(&store, &claim("warm")).await, Freed::NotHeld) });
        server.pause();
        let late = claim("lock:late");
        application.block_on(async {
            let attempt = acquire(&store, &late);
            assert!(tokio::time::timeout(Duration::from_millis(50), attempt).await.is_err());
        });
        // Its sockets close now, or stay open with nothing reading them.
        let stopped = driven.then_some(application);
        server.resume();
        keeper.block_on(async { store.withdraw(&late).await.unwrap() });
        assert_eq!(server.command(&["EXISTS", "lock:late"]), Reply::Int(0), "driven: {driven}");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(server.command(&["EXISTS", "lock:late"]), Reply::Int(0), "driven: {driven}");
        drop(stopped);
    }
}

/// A lease that ended without a release may be taken by one newcomer. Its own release serves the queue.
#[tokio::test]
#[limit]
async fn one_newcomer_may_pass_a_queue_whose_lock_ended_by_itself() {
    let server = RedisServer::start();
    let (holders, waiters, newcomers) = (store(&server), store(&server), store(&server));
    let [held, waiting, newcomer] = [(); 3].map(|()| claim("lock:a"));
    granted(&holders, &held).await;
    let mut queued = request(&waiting);
    queued.ticket = Some(Ticket::new("polls".into(), 1, Duration::from_secs(30)));
    for _ in 0..2 {
        assert!(matches!(waiters.try_acquire(&queued).await.unwrap(), Attempt::Queued { .. }));
        queued.repeated = true;
    }
    server.command(&["DEL", "lock:a"]);
    granted(&newcomers, &newcomer).await;
    assert_eq!(release(&newcomers, &newcomer).await, Freed::Released);
    // This waiter does not listen, so it is passed over once, and granted when it asks.
    token(waiters.try_acquire(&queued).await.unwrap());
    assert_eq!(server.command(&["EXISTS", "{lock:a}@queue", "{lock:a}@waiters"]), Reply::Int(0));
}

/// A waiter's entry never outlives its place in the queue.
#[tokio::test]
#[limit]
async fn what_is_known_of_waiters_goes_with_their_queue() {
    let server = RedisServer::start();
    let plain = store(&server);
    let waiters = || {
        let Reply::List(owners) = server.command(&["HKEYS", "{lock:a}@waiters"]) else { panic!("no list") };
        owners.iter().map(|owner| owner.text().to_owned()).collect::<Vec<_>>()
    };
    let wait = async |store: &RedisStore, claim: &lock_store::Claim| {
        let mut queued = request(claim);
        (queued.ticket, queued.repeated) = (Some(Ticket::new("gone".into(), 1, Duration::from_secs(30))), true);
        assert!(matches!(store.try_acquire(&queued).await.unwrap(), Attempt::Queued { .. }));
    };
    granted(&plain, &claim("lock:a")).await;
    let [first, second, third] = [(); 3].map(|()| claim("lock:a"));
    wait(&plain, &first).await;
    // Another program deletes the queue, and its only waiter never comes again.
    server.command(&["DEL", "{lock:a}@queue"]);
    wait(&plain, &second).await;
    assert_eq!(waiters(), [second.owner.to_hex()]);
    // For a while nobody is allowed to remove an entry.
    let denied = user(&server, "-hdel");
    denied.withdraw(&second).await.unwrap();
    assert_eq!(waiters(), [second.owner.to_hex()]);
    wait(&plain, &third).await;
    assert_eq!(waiters(), [third.owner.to_hex()]);
}
