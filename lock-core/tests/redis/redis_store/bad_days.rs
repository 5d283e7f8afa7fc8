//! Servers that refuse, stall, forget, or are configured wrongly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockBackend, LockError, LockErrorKind, LockEvent, LockObserver, Notice, RedisStore};
use lock_store::{Freed, Release, Renewal};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, Report, Reports, inbox, limit};

use crate::redis_store::{acquire, claim, granted, held, release, request, store, token};
use crate::support::eventually;

#[tokio::test]
#[limit]
async fn an_acquire_that_comes_too_late_is_refused() {
    let server = RedisServer::start();
    let store = store(&server);
    granted(&store, &claim("warm")).await;
    server.pause();
    let late = claim("lock:late");
    let mut hasty = request(&late);
    hasty.execute_within = Duration::from_millis(50);
    {
        let mut pending = std::pin::pin!(store.try_acquire(&hasty));
        // The deadline counts from the first poll. Then the caller gives up and is gone, but its bytes
        // are still in the server's socket.
        let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(pending.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "a server that is stopped has answered");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.resume();
    // Sent on the same connection, and so executed after the late command.
    store.withdraw(&late).await.unwrap();
    assert!(store.holder(&late.key).await.unwrap().is_none(), "an orphan was left");
    assert_eq!(server.command(&["EXISTS", "lock:late"]), Reply::Int(0));
}

#[tokio::test]
#[limit]
async fn a_caller_that_waits_out_the_stall_is_served_with_a_fresh_deadline() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    granted(&store, &claim("warm")).await;
    server.pause();
    let mut hasty = request(&claim("lock:a"));
    // Long enough for a slow machine at the second attempt.
    hasty.execute_within = Duration::from_secs(1);
    let pending = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.try_acquire(&hasty).await }
    });
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    server.resume();
    token(pending.await.unwrap().unwrap());
}

#[tokio::test]
#[limit]
async fn a_network_slower_than_the_deadline_ends_in_not_executed() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let store = RedisStore::new(&proxy.url()).unwrap();
    granted(&store, &claim("warm")).await;
    proxy.delay(Direction::ToServer, Duration::from_millis(60));
    let mut hasty = request(&claim("lock:a"));
    hasty.execute_within = Duration::from_millis(5);
    // Sent by the script, which checks the time.
    hasty.repeated = true;
    let error = store.try_acquire(&hasty).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("deadline of 5ms"), "{error}");
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(0));
}

#[tokio::test]
#[limit]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = RedisServer::start();
    let store = store(&server);
    for _ in 0..3 {
        let claim = claim("lock:a");
        granted(&store, &claim).await;
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.renew(std::slice::from_ref(&claim)).await, [Ok(Renewal::Renewed)]);
        server.command(&["SCRIPT", "FLUSH"]);
        assert!(store.holder(&claim.key).await.unwrap().is_some());
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(release(&store, &claim).await, Freed::Released);
    }
}

#[tokio::test]
#[limit]
async fn a_full_memory_refuses_new_locks_and_frees_old_ones() {
    let server = RedisServer::builder().with_maxmemory("0", "noeviction").start();
    let store = store(&server);
    let [plain, kept, renewed] = ["lock:plain", "lock:kept", "lock:renewed"].map(claim);
    for claim in [&plain, &kept, &renewed] {
        granted(&store, claim).await;
    }
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = acquire(&store, &claim("lock:new")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("(OOM: ") && error.to_string().contains("maxmemory"), "{error}");
    assert_eq!(store.renew(&[renewed]).await, [Ok(Renewal::Renewed)]);
    assert_eq!(release(&store, &plain).await, Freed::Released);
    let mut early = Release::new(kept.clone());
    early.keep_for = Duration::from_secs(20);
    assert_eq!(store.release(&early).await.unwrap(), Freed::Released);
    assert!((1..=20_000).contains(&server.command(&["PTTL", "lock:kept"]).int()));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    for gone in ["lock:new", "lock:plain"] {
        assert_eq!(server.command(&["EXISTS", gone]), Reply::Int(0), "{gone}");
    }
}

#[tokio::test]
#[limit]
async fn a_replica_refuses_and_says_why() {
    let master = RedisServer::start();
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    granted(&store, &claim_a).await;
    let port = master.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    let error = acquire(&store, &claim("lock:b")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("READONLY"), "{error}");
    drop(master);
}

#[tokio::test]
#[limit]
async fn too_few_replicas_and_failed_saves_refuse_everything_but_lose_nothing_since_redis_7() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    granted(&store, &claim_a).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let errors: Vec<LockError> = vec![
        acquire(&store, &claim("lock:b")).await.unwrap_err(),
        store.renew(std::slice::from_ref(&claim_a)).await.remove(0).unwrap_err(),
        store.release(&Release::new(claim_a.clone())).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_transient() && error.to_string().contains("NOREPLICAS"), "{error}");
    }
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(release(&store, &claim_a).await, Freed::Released);
}

#[tokio::test]
#[limit]
async fn wrong_credentials_are_a_mistake_and_are_not_repeated() {
    let server = RedisServer::builder().with_password("hunter2").start();
    granted(&store(&server), &claim("lock:a")).await;
    let port = server.port();
    for url in [
        format!("redis://:wr0ng@127.0.0.1:{port}"),
        format!("redis://wr0ng:wr0ng@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let store = RedisStore::new(&url).unwrap();
        let error = acquire(&store, &claim("lock:a")).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        for text in [error.to_string(), format!("{error:?}"), format!("{store:?}")] {
            assert!(!text.contains("wr0ng") && text.contains(&port.to_string()), "{text}");
        }
        assert_eq!(store.connections(), 0);
    }
}

#[tokio::test]
#[limit]
async fn a_database_that_does_not_exist_is_a_mistake() {
    let server = RedisServer::start();
    let store = RedisStore::new(&format!("{}/99", server.url())).unwrap();
    let error = acquire(&store, &claim("lock:a")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("database"), "{error}");
    let store = RedisStore::new(&format!("{}/3", server.url())).unwrap();
    granted(&store, &claim("lock:a")).await;
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(0), "it lies in database 3");
}

#[tokio::test]
#[limit]
async fn a_lost_reply_is_unknown_and_a_repeat_finds_the_lock_taken_by_itself() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let store = RedisStore::new(&proxy.url()).unwrap();
    let warm = claim("warm");
    granted(&store, &warm).await;
    // Now the server knows both scripts, so the lost replies are theirs.
    release(&store, &warm).await;
    let claim_a = claim("lock:a");
    proxy.drop_replies(1);
    let error = acquire(&store, &claim_a).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("may or may not"), "{error}");
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(1));
    granted(&store, &claim_a).await;
    assert_eq!(held(&store, &claim("lock:a")).await.owner, Some(claim_a.owner));
    assert_eq!(release(&store, &claim_a).await, Freed::Released);
    granted(&store, &claim_a).await;
    proxy.drop_replies(1);
    store.release(&Release::new(claim_a.clone())).await.unwrap_err();
    assert_eq!(release(&store, &claim_a).await, Freed::NotHeld, "it had been executed");
}

#[tokio::test]
#[limit]
async fn a_connection_cut_at_every_byte_never_confuses_the_store() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let store = RedisStore::new(&proxy.url()).unwrap();
    granted(&store, &claim("warm")).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in (0..140).step_by(3) {
            let claim_a = claim("lock:a");
            proxy.cut_after(direction, bytes);
            let first = acquire(&store, &claim_a).await;
            proxy.resume();
            // Perhaps only the next call on the connection notices that it has ended.
            let again = loop {
                match acquire(&store, &claim_a).await {
                    Err(error) => assert!(error.is_transient(), "{error}"),
                    Ok(attempt) => break token(attempt),
                }
            };
            if let Ok(first) = first {
                assert!(token(first) < again);
            }
            assert_eq!(release(&store, &claim_a).await, Freed::Released, "{direction:?} {bytes}");
        }
    }
}

/// Keeps every notice as text.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl LockObserver for Seen {
    fn on_event(&self, _event: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        let text = match notice {
            Notice::Connection { up: true, .. } => "up".to_owned(),
            Notice::Connection { up: false, .. } => "down".to_owned(),
            Notice::EvictionPolicy { policy, .. } => (*policy).to_owned(),
            Notice::Failover { .. } => "failover".to_owned(),
            // Asked for in passing.
            Notice::Replication { .. } | Notice::Server { .. } | Notice::FailoverExposure { .. } => return,
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(text);
    }
}

#[tokio::test]
#[limit]
async fn the_keeper_reconnects_and_says_so() {
    let mut server = RedisServer::builder().with_maxmemory("100mb", "volatile-lru").start();
    let store = Arc::new(store(&server));
    let seen = Seen::default();
    let (inbox, mut reports) = inbox(seen.clone());
    let keeper = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.drive(inbox).await }
    });
    let told = |count: usize| {
        let seen = seen.clone();
        async move {
            while seen.0.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            seen.0.lock().unwrap().clone()
        }
    };
    assert_eq!(told(2).await, ["up", "volatile-lru"]);
    assert_eq!(reports.try_next(), None, "the first connection is not a reconnection");
    server.kill();
    assert_eq!(told(3).await[2..], ["down"]);
    server.restart();
    assert_eq!(reports.next().await, Some(Report::Reconnected));
    // Without its data it is as good as another server.
    assert_eq!(told(6).await[3..], ["up", "failover", "volatile-lru"]);
    granted(&store, &claim("lock:a")).await;
    assert_eq!(store.connections(), 1, "the keeper and the caller share this runtime");
    keeper.abort();
}

/// Drives a store, and returns what it reports.
fn driven(store: RedisStore, seen: &Seen) -> (tokio::task::JoinHandle<LockError>, Reports) {
    let (inbox, reports) = inbox(seen.clone());
    (tokio::spawn(async move { store.drive(inbox).await }), reports)
}

/// Callers that were refused pause until they are told: also of the first connection, if the keeper had none before.
#[tokio::test]
#[limit]
async fn the_first_connection_after_refusals_is_told_by_the_keeper() {
    // The user may not listen, so nobody else tells.
    let mut server = RedisServer::builder().with("user", "app on >pw ~* &* +@all -subscribe").start();
    server.kill();
    let store = RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap();
    let seen = Seen::default();
    let (keeper, mut reports) = driven(store, &seen);
    eventually("it is told that the server is away", || *seen.0.lock().unwrap() == ["down"]).await;
    assert_eq!(reports.try_next(), None);
    server.restart();
    assert_eq!(reports.next().await, Some(Report::Reconnected));
    keeper.abort();
}

/// Earlier grants are not heard, and it is unknown whether there were any.
#[tokio::test]
#[limit]
async fn whoever_can_listen_at_last_says_that_it_did_not_before() {
    let server = RedisServer::builder().with("user", "app on >pw ~* &* +@all -subscribe").start();
    let store = RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap();
    let seen = Seen::default();
    let (keeper, mut reports) = driven(store, &seen);
    let refused = || format!("{:?}", server.command(&["ACL", "LOG"])).contains("subscribe");
    eventually("listening is refused", || refused() && !seen.0.lock().unwrap().is_empty()).await;
    assert_eq!((seen.0.lock().unwrap()[0].as_str(), reports.try_next()), ("up", None));
    server.command(&["ACL", "SETUSER", "app", "+subscribe"]);
    assert_eq!(reports.next().await, Some(Report::Reconnected));
    assert!(!seen.0.lock().unwrap().contains(&"down".to_owned()), "the keeper's connection has lived on");
    keeper.abort();
}

#[tokio::test]
#[limit]
async fn the_keeper_ends_only_for_mistakes() {
    let server = RedisServer::builder().with_password("hunter2").start();
    let store = RedisStore::new(&format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let seen = Seen::default();
    let (inbox, _reports) = inbox(seen.clone());
    let error = store.drive(inbox).await;
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(seen.0.lock().unwrap().is_empty(), "it was never up");
}
