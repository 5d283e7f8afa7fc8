//! A replica takes over without having received the last grants.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use lock_core::{LockBackend, LockError, LockManager, LockOptions, OwnerId, RedisStore, ReleaseOutcome};
use lock_store::{Freed, Release, Renewal};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, limit};

use crate::redis_store::{acquire, claim, granted, release, store, token};
use crate::support::{SECOND, eventually, locks, locks_at, pttl, take, watched};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A counter would give the token of the last grant, which the replica has not received, a second
/// time.
#[tokio::test]
#[limit]
async fn tokens_grow_over_a_failover_that_loses_grants() {
    let (mut master, replica) = (RedisServer::start(), RedisServer::start());
    let (old, new) = (store(&master), store(&replica));
    let known = claim("k");
    let first = granted(&old, &known).await;
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let synced = || replica.command(&["EXISTS", "k"]) == Reply::Int(1);
    eventually("the replica has heard of the first grant", synced).await;
    // Separated before the lock passes on a few more times.
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(release(&old, &known).await, Freed::Released);
    let mut newest = first;
    for _ in 0..5 {
        let lost = claim("k");
        let token = granted(&old, &lost).await;
        assert!(token > newest);
        newest = token;
        assert_eq!(release(&old, &lost).await, Freed::Released);
    }
    let lost = claim("k");
    let last = granted(&old, &lost).await;
    master.kill();

    // The lock of the first grant is back, until its holder releases it again or its lease ends.
    assert_eq!(new.renew(std::slice::from_ref(&lost)).await, [Ok(Renewal::Lost)], "who holds it is told so");
    assert_eq!(release(&new, &known).await, Freed::Released);
    let after = granted(&new, &claim("k")).await;
    assert!(after > last, "{after} after {last}: a fence would let the old holder write");
}

/// A virtual address moves to the replica, and connections to the old master stay open. The old master is a replica
/// now, and delivers grants to processes that still listen there.
#[tokio::test]
#[limit]
async fn a_grant_that_only_a_replica_delivers_is_none() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let address = FaultProxy::start(old.port());
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let holder = locks(&old);
    let held = take(&holder, "k").await;
    let waiter = locks_at(&address.url());
    let mut waiting = Box::pin(tokio::spawn(async move { waiter.lock("k").await }));
    let queued = || new.command(&["ZCARD", "{k}@queue"]) == Reply::Int(1);
    eventually("the replica has heard of the waiter", queued).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    address.lead_to(new.port());
    let follows = || old.command(&["INFO", "replication"]).text().contains("master_link_status:up");
    eventually("the server that was master follows", follows).await;

    // Its release finds a waiter that cannot be notified, and so does the next caller, who finds the lock free.
    let mut ended = claim("k");
    ended.owner = OwnerId::from_hex(&new.command(&["GET", "k"]).text()[..32]).unwrap();
    assert_eq!(release(&store(&new), &ended).await, Freed::Released);
    let next = take(&locks(&new), "k").await;
    let granted = tokio::time::timeout(SECOND, &mut waiting).await;
    assert!(granted.is_err(), "two hold the lock: {granted:?}");
    next.ensure_held().unwrap();
    next.release().await.unwrap();
    drop((waiting, held));
}

/// The address stays the same, and nothing ever closes the old connections.
#[tokio::test]
#[limit]
async fn connections_to_a_server_that_is_no_master_any_more_are_left() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let address = FaultProxy::start(old.port());
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let locks = locks_at(&address.url());
    let held = watched(&locks, "held").await.unwrap();
    let heard = || new.command(&["EXISTS", "held"]) == Reply::Int(1);
    eventually("the replica has heard of the lock", heard).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    address.lead_to(new.port());

    for key in ["one", "two"] {
        take(&locks, key).await.release().await.unwrap();
    }
    // The watchdog and the listening connection have moved too.
    let mut last = pttl(&new, "held");
    let rises = || {
        let left = pttl(&new, "held");
        left > std::mem::replace(&mut last, left)
    };
    eventually("the lock is renewed where it is now", rises).await;
    let waiter = tokio::spawn({
        let locks = locks_at(&address.url());
        async move { locks.lock("held").await.unwrap().release().await }
    });
    eventually("it waits", || new.command(&["ZCARD", "{held}@queue"]) == Reply::Int(1)).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    waiter.await.unwrap().unwrap();
}

/// A replica that begins to follow another master has nothing, and needs no write to say that nothing is held.
#[tokio::test]
#[limit]
async fn what_a_replica_does_not_know_is_neither_freed_nor_lost() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let address = FaultProxy::start(old.port());
    let stores = [(); 2].map(|()| RedisStore::new(&address.url()).unwrap());
    let [renewed, freed] = ["renewed", "freed"].map(claim);
    granted(&stores[0], &renewed).await;
    granted(&stores[1], &freed).await;
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let heard = || new.command(&["EXISTS", "renewed", "freed"]) == Reply::Int(2);
    eventually("the replica has heard of the locks", heard).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    address.lead_to(new.port());
    // As while it receives the data of the new master.
    old.command(&["FLUSHALL"]);
    old.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let until_known = async |ask: &mut dyn FnMut() -> BoxFuture<'static, Result<bool, LockError>>| loop {
        match ask().await {
            Ok(known) => return known,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    let [one, two] = stores.map(Arc::new);
    let renew = &mut || -> BoxFuture<'static, _> {
        let (one, claim) = (Arc::clone(&one), renewed.clone());
        Box::pin(async move { one.renew(&[claim]).await.remove(0).map(|renewal| renewal == Renewal::Renewed) })
    };
    assert!(until_known(renew).await, "it is held on the new master");
    let free = &mut || -> BoxFuture<'static, _> {
        let (two, release) = (Arc::clone(&two), Release::new(freed.clone()));
        Box::pin(async move { two.release(&release).await.map(|freed| freed == Freed::Released) })
    };
    assert!(until_known(free).await, "it was held on the new master");
    assert_eq!(new.command(&["EXISTS", "renewed", "freed"]), Reply::Int(1));
}

/// The last release reached only the server that was replaced. A user that may not touch the queue frees the lock alone.
#[tokio::test]
#[limit]
async fn what_was_freed_on_a_server_that_is_replaced_behind_its_address_is_freed_again() {
    for queue in ["~{lock:*", "&*"] {
        let (old, new) = (RedisServer::start(), RedisServer::start());
        let address = FaultProxy::start(old.port());
        let rules = ["ACL", "SETUSER", "app", "on", ">pw", "~lock:*", "~distributed-lock:*", "&*", "+@all", queue];
        for server in [&old, &new] {
            server.command(&rules);
        }
        let exists = || new.command(&["EXISTS", "lock:k"]);
        new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
        let locks = locks_at(&address.url().replace("//", "//app:pw@"));
        let guard = locks.lock("lock:k").with_ttl(600 * SECOND).await.unwrap();
        eventually("the replica has heard of it", || exists() == Reply::Int(1)).await;
        new.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        address.lead_to(new.port());
        assert_eq!(exists(), Reply::Int(1), "nobody has told it");
        // The old server refuses it. With its queue forbidden, so does the new one.
        drop(locks.lock("lock:another").await);
        eventually(&format!("it is freed again with {queue}"), || exists() == Reply::Int(0)).await;
    }
}

/// It leads to the server that was master when it was begun.
#[test]
#[limit]
fn a_connection_that_was_begun_before_its_server_was_left_is_left_too() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let address = FaultProxy::start(old.port());
    let store = Arc::new(RedisStore::new(&address.url()).unwrap());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let here = runtime();
    here.block_on(granted(&store, &claim("warm")));
    // Data that is written meanwhile arrives that much later.
    address.delay(Direction::ToServer, 3 * SECOND);
    let before = address.connections();
    let late = std::thread::spawn({
        let store = Arc::clone(&store);
        move || runtime().block_on(acquire(&store, &claim("late")))
    });
    here.block_on(eventually("it is being opened", || address.connections() > before));
    std::thread::sleep(SECOND / 5);
    address.resume();
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    address.lead_to(new.port());
    // Refused, so what leads to this server is left.
    here.block_on(async { acquire(&store, &claim("refused")).await.unwrap_err() });
    token(late.join().unwrap().unwrap());
    assert_eq!(new.command(&["EXISTS", "late"]), Reply::Int(1));
}

/// Both answer at one address: what one of them executed, a replica of the other cannot confirm.
#[tokio::test]
#[limit]
async fn a_confirmation_by_a_server_of_another_history_is_none() {
    let (first, second) = (RedisServer::start(), RedisServer::builder().with("repl-diskless-sync-delay", "0").start());
    let replica = RedisServer::builder().with("replicaof", &format!("127.0.0.1 {}", second.port())).start();
    let follows = || replica.command(&["INFO", "replication"]).text().contains("master_link_status:up");
    eventually("the replica follows", follows).await;
    let address = FaultProxy::start(first.port());
    let options = LockOptions::default().with_ttl(30 * SECOND).with_wait(30 * SECOND);
    let store = RedisStore::new(&format!("{}?acks=1", address.url())).unwrap();
    // Connected, but not yet asked to confirm anything, as `connect` would: the connection for that leads to the second.
    store.ping().await.unwrap();
    let locks = LockManager::builder(store).options(options).build().unwrap();
    address.lead_to(second.port());
    let guard = take(&locks, "k").await;
    assert_eq!(replica.command(&["EXISTS", "k"]), Reply::Int(1), "it was granted, so the replica has it");
    guard.release().await.unwrap();
}

/// An attempt that is held up in the network on one connection, while its claim ends on another.
#[test]
#[limit]
fn an_attempt_that_arrives_after_its_claim_has_ended_takes_nothing() {
    let server = RedisServer::start();
    let address = FaultProxy::start(server.port());
    let store = Arc::new(RedisStore::new(&address.url()).unwrap());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [one, two] = [runtime(), runtime()];
    for runtime in [&one, &two] {
        let warm = claim("warm");
        runtime.block_on(granted(&store, &warm));
        assert_eq!(runtime.block_on(release(&store, &warm)), Freed::Released);
    }
    let ended = claim("k");
    // Data that is written meanwhile arrives that much later.
    address.delay(Direction::ToServer, 3 * SECOND);
    let given_up = one.block_on(async { tokio::time::timeout(SECOND / 5, acquire(&store, &ended)).await });
    assert!(given_up.is_err(), "{given_up:?}");
    address.resume();
    assert_eq!(two.block_on(release(&store, &ended)), Freed::NotHeld);
    // When it would have arrived.
    std::thread::sleep(4 * SECOND);
    assert_eq!(server.command(&["EXISTS", "k"]), Reply::Int(0), "nobody holds it, and nobody would free it");
}
