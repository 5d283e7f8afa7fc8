use std::time::Duration;

use crate::RedisStore;
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, LockBackend as _, Release, Ticket};
use lock_store::types::key::LockKey;
use lock_store::types::owner::HolderInfo;
use lock_testing::{RedisServer, limit};

/// They are made for every lock: what is rarely needed waits on the heap.
#[test]
#[limit]
fn the_futures_of_one_server_stay_small() {
    let store = RedisStore::new("redis://127.0.0.1:1/").unwrap();
    let claim = Claim::new(LockKey::new("k").unwrap(), Duration::from_secs(1));
    let request = AcquireRequest::new(claim.clone(), HolderInfo::new("h", 1, "s"));
    let release = Release::new(claim.clone());
    for (what, size, most) in [
        ("try_acquire", size_of_val(&store.try_acquire(&request)), 400),
        ("requeue", size_of_val(&store.requeue(&release, &request)), 416),
        ("release", size_of_val(&store.release(&release)), 240),
        ("withdraw", size_of_val(&store.withdraw(&claim)), 392),
        ("holder", size_of_val(&store.holder(&claim.key)), 680),
    ] {
        assert!(size <= most, "{what}: {size} bytes instead of {most}");
    }
}

/// One key that the user may not touch refuses the script of several sleepers as a whole. Each of them is then confirmed by itself.
#[tokio::test]
#[limit]
async fn places_that_are_refused_together_are_confirmed_one_by_one() {
    let server = RedisServer::start();
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "&*",
        "+@all",
        "resetkeys",
        "~lock:*",
        "~{lock:*",
        "~distributed-lock:*",
    ];
    server.command(&[&rules[..], &["~denied:*", "~{denied:*"]].concat());
    let url = server.url().replace("//", "//app:pw@");
    let (holder, waits) = (RedisStore::new(&url).unwrap(), RedisStore::new(&url).unwrap());
    let minute = Duration::from_secs(60);
    let request = |key: &str| {
        let claim = Claim::new(LockKey::new(key).unwrap(), minute);
        AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"))
    };
    let mut requests = ["lock:a", "denied:b", "lock:c"].map(request);
    for asks in &mut requests {
        assert!(matches!(holder.try_acquire(&request(asks.claim.key.as_str())).await, Ok(Attempt::Granted { .. })));
        let mut ticket = Ticket::new("nobody".into(), 1, minute);
        ticket.sleep = Some(minute);
        asks.ticket = Some(ticket);
        // It is known to be held now, so the script is tried first.
        assert!(matches!(waits.try_acquire(asks).await, Ok(Attempt::Queued { .. } | Attempt::Asleep { .. })));
        asks.asleep = true;
    }
    server.command(&rules);
    let [one, two, three] = &requests;
    let (one, two, three) = tokio::join!(waits.try_acquire(one), waits.try_acquire(two), waits.try_acquire(three));
    for sound in [one, three] {
        assert!(matches!(sound, Ok(Attempt::Queued { .. } | Attempt::Asleep { .. })), "{sound:?}");
    }
    assert!(two.is_err(), "{two:?}");
}
