//! Something else lies where a lock has its data: the error names that key, and its type.

use std::time::Duration;

use lock_core::inspect::FleetReader;
use lock_core::{HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, LockManager, Mode, RedisStore};
use lock_store::{
    AcquireRequest, BlockedNotes, Claim, DoneMarks, JobRecords, JobVersion, Release, SharedClaims, Ticket,
};
use lock_testing::{RedisCluster, RedisServer, Reply, limit};

/// Asks a store for everything that it does with one lock, and returns what it was refused.
async fn refusals(store: &RedisStore, key: &LockKey, held: bool) -> Vec<LockError> {
    let mut refused = Vec::new();
    let mut note = |error: Option<LockError>| refused.extend(error);
    for mode in [Mode::Exclusive, Mode::READ, Mode::permits(1, 3).unwrap()] {
        let claim = Claim::new(key.clone(), Duration::from_secs(60)).with_mode(mode);
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("host-1", 42, "app::charge"));
        if held {
            request.ticket = Some(Ticket::new("nobody".into(), 1, Duration::from_secs(3)));
        }
        note(store.try_acquire(&request).await.err());
        note(store.try_acquire_all(std::slice::from_ref(&request)).await.err());
        note(store.renew(std::slice::from_ref(&claim)).await.remove(0).err());
        note(store.release(&Release::new(claim)).await.err());
    }
    note(store.holder(key).await.err());
    note(store.holders(key).await.err());
    note(store.blocked(key).await.err());
    note(store.last_run(key).await.err());
    refused
}

async fn refusals_of_fleet(url: &str, key: &LockKey) -> Vec<LockError> {
    let fleet = FleetReader::new(url).unwrap();
    let owner = Claim::new(key.clone(), Duration::from_secs(60)).owner;
    let all = [
        fleet.entry(key).await.err(),
        fleet.waiters(key).await.err(),
        fleet.holders(key).await.err(),
        fleet.job(key).await.err(),
        fleet.release(key, owner, "test", "test").await.err(),
        fleet.release_foreign(key, b"x", "test", "test").await.err(),
    ];
    all.into_iter().flatten().collect()
}

#[tokio::test]
#[limit]
async fn the_key_of_another_type_is_named_with_its_type() {
    let server = RedisServer::start();
    let phase = format!("shared{}1|7-0-0|1|h|1|s|", "0".repeat(25));
    for (name, advice) in [
        ("k", "belongs to another program; choose another key"),
        ("{k}@queue", "the lock \"k\" has a zset, the queue; delete that key"),
        ("{k}@waiters", "the lock \"k\" has a hash"),
        ("{k}@blocked", "the lock \"k\" has a string"),
        ("{k}@job", "the last run of its job"),
        ("distributed-lock:clock", "the clock"),
    ] {
        // Free, held by somebody, or shared.
        for value in ["", "somebody", &phase] {
            server.command(&["FLUSHALL"]);
            if !value.is_empty() {
                server.command(&["SET", "k", value, "PX", "60000"]);
            }
            server.command(&["DEL", name]);
            server.command(&["RPUSH", name, "x"]);
            let (store, key) = (RedisStore::new(&server.url()).unwrap(), LockKey::new("k").unwrap());
            let mut refused = refusals(&store, &key, !value.is_empty()).await;
            refused.extend(refusals_of_fleet(&server.url(), &key).await);
            for error in &refused {
                let text = error.to_string();
                assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{name} {value}: {text}");
                assert!(text.contains(&format!("{name:?} holds a list")) && text.contains(advice), "{name}: {text}");
            }
            let reads_it = if name == "{k}@waiters" {
                !value.is_empty()
            } else {
                value.is_empty() || name != "distributed-lock:clock"
            };
            assert!(!refused.is_empty() || !reads_it, "{name} {value}");
            assert_eq!(server.command(&["LLEN", name]), Reply::Int(1), "what somebody else wrote is theirs");
        }
    }
}

/// A foreign value in place of a mark is neither *done* nor *not done*, and stays as it is.
#[tokio::test]
#[limit]
async fn what_lies_in_place_of_a_mark_is_named() {
    let server = RedisServer::start();
    let (store, key) = (RedisStore::new(&server.url()).unwrap(), LockKey::new("k").unwrap());
    let (name, version) = ("{k}@done:v42", JobVersion::new("v42").unwrap());
    let claim = Claim::new(key.clone(), Duration::from_secs(60));
    let granted = store.try_acquire(&AcquireRequest::new(claim.clone(), HolderInfo::new("h", 1, "s"))).await;
    granted.unwrap();
    for (write, says) in [
        (&["RPUSH", name, "x"][..], "\"{k}@done:v42\" holds a list, where the lock \"k\" has a string"),
        (&["SET", name, "done"], "\"{k}@done:v42\" holds a string that is no mark"),
        (&["SET", name, "1|2|3|nobody"], "\"{k}@done:v42\" holds a string that is no mark"),
        (&["SET", name, ""], "\"{k}@done:v42\" holds a string that is no mark"),
    ] {
        server.command(&["DEL", name]);
        server.command(write);
        let before = server.command(&["DUMP", name]);
        for error in [
            store.done(&key, &version).await.unwrap_err(),
            store.mark_done(&claim, &version, None).await.unwrap_err(),
            store.forget_done(&key, &version).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(server.command(&["DUMP", name]), before, "what somebody else wrote is theirs");
        assert_eq!(
            FleetReader::new(&server.url()).unwrap().entry(&key).await.unwrap().unwrap().holder.owner,
            Some(claim.owner)
        );
    }
    let error = LockManager::connect(&server.url()).await.unwrap().lock(name).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
}

#[tokio::test]
#[limit]
async fn the_key_of_another_type_is_named_in_a_cluster() {
    let cluster = RedisCluster::start(2);
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    for (master, server) in cluster.masters().iter().enumerate() {
        let key = cluster.key_on(master, "lock:");
        let name = format!("{{{key}}}@queue");
        server.command(&["RPUSH", &name, "x"]);
        let error = locks.read(key.as_str()).without_waiting().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&format!("{name:?} holds a list")), "{error}");
    }
}

/// It may do everything but ask for a type.
#[tokio::test]
#[limit]
async fn without_the_right_to_ask_the_key_is_not_blamed() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "app", "on", ">password", "~*", "&*", "+@all", "-type"];
    assert_eq!(server.command(&user), Reply::Text("OK".to_owned()));
    server.command(&["RPUSH", "{k}@queue", "x"]);
    let store = RedisStore::new(&format!("redis://app:password@127.0.0.1:{}", server.port())).unwrap();
    let refused = refusals(&store, &LockKey::new("k").unwrap(), false).await;
    assert!(!refused.is_empty());
    for error in refused {
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("holds another type than this library writes there"), "{error}");
    }
}

#[tokio::test]
#[limit]
async fn a_downgrade_beside_a_key_of_another_type_is_refused_at_once_and_changes_nothing() {
    for name in ["{k}@queue", "{k}@waiters"] {
        let server = RedisServer::start();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let writer = locks.write("k").with_ttl(Duration::from_secs(600)).await.unwrap();
        server.command(&["RPUSH", name, "x"]);
        let value = server.command(&["GET", "k"]);
        let error = writer.downgrade().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&format!("{name:?} holds a list")), "{error}");
        assert_eq!(server.command(&["GET", "k"]), value);
    }
}
