//! Values that a stranger may have put in the place of a lock.

use lock_core::{LockBackend, LockKey, LockLabel, RedisStore};
use lock_store::{Attempt, Freed, Renewal, Ticket};
use lock_testing::{RedisServer, limit};

use crate::redis_store::{acquire, claim, granted, held, release, request, store};

fn bytes_sent(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "stats"]);
    let line = info.text().lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap()
}

#[tokio::test]
#[limit]
async fn a_huge_value_stays_on_the_server() {
    let server = RedisServer::start();
    let store = store(&server);
    server.command(&["SETRANGE", "lock:a", "67108863", "x"]);
    let claim_a = claim("lock:a");
    let mut queued = request(&claim_a);
    queued.ticket = Some(Ticket::new("somebody".into(), 1, std::time::Duration::from_secs(3)));
    let before = bytes_sent(&server);
    for _ in 0..10 {
        assert!(held(&store, &claim_a).await.info.is_none());
        assert!(matches!(store.try_acquire(&queued).await.unwrap(), Attempt::Queued { .. }));
        let both = [request(&claim_a), request(&claim("lock:b"))];
        store.try_acquire_all(&both).await.unwrap();
        assert!(store.holder(&claim_a.key).await.unwrap().is_some());
        assert_eq!(release(&store, &claim_a).await, Freed::NotHeld);
    }
    let sent = bytes_sent(&server) - before;
    assert!(sent < 100_000, "{sent} bytes of answers");
}

#[tokio::test]
#[limit]
async fn an_empty_value_is_somebody_and_nothing_is_nobody() {
    let server = RedisServer::start();
    let store = store(&server);
    server.command(&["SET", "lock:a", "", "PX", "60000"]);
    assert!(held(&store, &claim("lock:a")).await.ttl_left.is_some());
    assert!(store.holder(&LockKey::new("lock:a").unwrap()).await.unwrap().is_some());
    server.command(&["DEL", "lock:a"]);
    assert!(store.holder(&LockKey::new("lock:a").unwrap()).await.unwrap().is_none());
    granted(&store, &claim("lock:a")).await;
}

#[tokio::test]
#[limit]
async fn a_time_left_of_any_size_is_read() {
    let server = RedisServer::start();
    let store = store(&server);
    for at in ["9223372036854775807", "100000000000000000", "4611686018427387904"] {
        server.command(&["SET", "lock:a", "theirs"]);
        assert_eq!(server.command(&["PEXPIREAT", "lock:a", at]).int(), 1);
        let left = held(&store, &claim("lock:a")).await.ttl_left;
        assert!(left.is_some_and(|left| left.as_secs() > 1_000_000_000), "{at}: {left:?}");
        let read = store.holder(&claim("lock:a").key).await.unwrap().unwrap();
        assert!(read.ttl_left.is_some_and(|left| left.as_secs() > 1_000_000_000), "{at}: {read:?}");
    }
}

#[tokio::test]
#[limit]
async fn a_holder_tells_the_name_of_its_lock() {
    let server = RedisServer::start();
    let store: RedisStore = store(&server);
    let claim_a = claim("lock:a");
    let mut named = request(&claim_a);
    named.info = named.info.with_lock(LockLabel::from_static("lock:<letter>"));
    store.try_acquire(&named).await.unwrap();
    assert_eq!(held(&store, &claim("lock:a")).await.lock(), Some("lock:<letter>"));
    assert_eq!(store.holder(&claim_a.key).await.unwrap().unwrap().lock(), Some("lock:<letter>"));
    assert!(matches!(acquire(&store, &claim_a).await.unwrap(), Attempt::Granted { .. }));
    assert_eq!(store.renew(&[claim_a]).await.into_iter().next().unwrap().unwrap(), Renewal::Renewed);
}
