//! A replica that takes over without having heard of the last grants.

use lock_core::testing::{RedisServer, Reply, limit};
use lock_core::{Freed, LockBackend, Renewal};

use crate::redis_store::{claim, granted, release, store};
use crate::support::eventually;

/// A counter gives the token of the last grant, which the replica has not heard of, a second time.
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
    // Parted, before the lock passes on a few times more.
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
