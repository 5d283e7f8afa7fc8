//! The first lock on a relative of Redis. No profile was run on the service itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{LockBackend, LockErrorKind, LockKey, LockManager, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, HolderInfo, Release};
use lock_testing::{Direction, FaultProxy, RedisRelative, RedisServer, limit};

fn request(key: &str) -> AcquireRequest {
    let claim = Claim::new(LockKey::new(key).unwrap(), Duration::from_secs(30));
    let mut request = AcquireRequest::new(claim, HolderInfo::new("host", 1, "here"));
    request.execute_within = Duration::from_secs(30);
    request
}

#[tokio::test]
#[limit]
async fn a_definite_refusal_is_answered_at_once_and_says_what_to_set() {
    for (relative, says, not) in [
        (RedisRelative::TairCluster, "set its parameter script_check_enable to 0", "6.2"),
        (RedisRelative::TairDisk, "scripts", "6.2"),
        (RedisRelative::Dragonfly, "--default_lua_flags=allow-undeclared-keys", "6.2"),
        (RedisRelative::Garnet, "streams (XADD)", "6.2"),
    ] {
        let server = RedisServer::start();
        let proxy = FaultProxy::start_as(relative, server.port());
        let store = RedisStore::new(&proxy.url()).unwrap();
        store.ping().await.unwrap();
        let before = proxy.bytes(Direction::ToClient);
        for request in [request("lock:a"), request("lock:a")] {
            let error = store.try_acquire(&request).await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{relative:?}: {error}");
            assert!(!error.is_ambiguous(), "{relative:?}: {error}");
            assert!(error.to_string().contains(says) && !error.to_string().contains(not), "{relative:?}: {error}");
        }
        assert!(proxy.bytes(Direction::ToClient) - before < 4_000, "{relative:?}: one answer for each");
        assert_eq!(server.command(&["EXISTS", "lock:a"]).int(), 0, "{relative:?}");
        // A caller does not spend its time-out on what cannot succeed.
        let locks = LockManager::connect(&proxy.url()).await.unwrap();
        let error = locks.lock("lock:a").await.unwrap_err();
        assert!(
            error.kind() == LockErrorKind::Misconfigured && error.to_string().contains(says),
            "{relative:?}: {error}"
        );
    }
}

/// `connect` runs the first four checks of the doctor: the greeting, SET NX PX, a transaction with a stream, and a script.
#[tokio::test]
#[limit]
async fn connect_names_what_a_service_refuses() {
    for (relative, says) in [
        (RedisRelative::TairCluster, Some("set its parameter script_check_enable to 0")),
        (RedisRelative::TairClusterUnchecked, None),
        (RedisRelative::TairDisk, Some("scripts")),
        (RedisRelative::Dragonfly, Some("--default_lua_flags=allow-undeclared-keys")),
        (RedisRelative::Garnet, Some("streams (XADD)")),
        (RedisRelative::ElastiCacheServerless, None),
        (RedisRelative::MemoryDb, None),
    ] {
        let server = RedisServer::start();
        let proxy = FaultProxy::start_as(relative, server.port());
        let connected = LockManager::builder_for(&proxy.url()).unwrap().strict().connect().await;
        let error = connected.err().map(|error| error.to_string());
        assert_eq!(error.is_some(), says.is_some(), "{relative:?}: {error:?}");
        assert!(error.unwrap_or_default().contains(says.unwrap_or_default()), "{relative:?}");
        assert_eq!(server.command(&["EXISTS", "lock:distributed-lock:check"]).int(), 0, "{relative:?}");
    }
}

#[tokio::test]
#[limit]
async fn a_relative_that_lacks_only_what_speeds_up_serves_locks() {
    for relative in [RedisRelative::TairClusterUnchecked, RedisRelative::ElastiCacheServerless, RedisRelative::MemoryDb]
    {
        let server = RedisServer::start();
        let proxy = FaultProxy::start_as(relative, server.port());
        let store = RedisStore::new(&proxy.url()).unwrap();
        let (first, second) = (request("lock:a"), request("lock:a"));
        assert!(matches!(store.try_acquire(&first).await, Ok(Attempt::Granted { .. })), "{relative:?}");
        assert!(matches!(store.try_acquire(&second).await, Ok(Attempt::Held { .. })), "{relative:?}");
        store.release(&Release::new(first.claim)).await.unwrap();
        assert!(matches!(store.try_acquire(&second).await, Ok(Attempt::Granted { .. })), "{relative:?}");
        // Waiters that no message reaches poll.
        let locks = LockManager::connect(&proxy.url()).await.unwrap();
        let inside = AtomicUsize::new(0);
        let turn = async |_: usize| {
            let _guard = locks.lock("lock:b").await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{relative:?}");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        tokio::join!(turn(1), turn(2), turn(3));
    }
}
