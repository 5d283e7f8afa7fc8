//! A replica takes over without having received the last grants.

use lock_core::testing::{FaultProxy, RedisServer, Reply, limit};
use lock_core::{Freed, LockBackend, OwnerId, ReleaseOutcome, Renewal};

use crate::redis_store::{claim, granted, release, store};
use crate::support::{SECOND, eventually, locks, locks_at, pttl, take, watched};

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
    let before = pttl(&new, "held");
    eventually("the lock is renewed where it is now", || pttl(&new, "held") > before).await;
    let waiter = tokio::spawn({
        let locks = locks_at(&address.url());
        async move { locks.lock("held").await.unwrap().release().await }
    });
    eventually("it waits", || new.command(&["ZCARD", "{held}@queue"]) == Reply::Int(1)).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    waiter.await.unwrap().unwrap();
}
