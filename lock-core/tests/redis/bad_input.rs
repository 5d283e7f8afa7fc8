//! Wrong keys, settings, credentials and servers give a typed error that says what to do, and no
//! lock.

use std::sync::Arc;

use lock_core::inspect::{FleetReader, ScanOptions};
use lock_core::{GrantPath, LockBackend, LockError, LockErrorKind, LockManager, RedisStore, ReleaseOutcome, Renew};
use lock_testing::{EventLog, FaultProxy, RedisServer, Reply, Stopwatch, limit};

use crate::support::{MS, SECOND, eventually, exists, locked_keys, locks, renewals, take, watched};

/// The rules that the documentation of `RedisStore` gives: the user, then the commands for holding, waiting, learning
/// of losses and reading the fleet.
fn documented_acl() -> [&'static str; 5] {
    let rules = include_str!("../../../stores/lock-redis/src/acl.txt").strip_prefix("ACL SETUSER app ").unwrap();
    let lines: Vec<&str> = rules.lines().map(str::trim).collect();
    lines.try_into().unwrap()
}

async fn refused(url: &str) -> LockError {
    let watch = Stopwatch::start();
    let error = LockManager::connect(url).await.unwrap_err();
    watch.assert_within(5 * SECOND, "a refusal");
    error
}

#[tokio::test]
#[limit]
async fn a_key_of_another_type_is_a_mistake_and_no_wait() {
    let server = RedisServer::start();
    let locks = locks(&server);
    server.command(&["HSET", "k", "field", "value"]);
    for request in [locks.lock("k"), locks.lock("k").without_waiting()] {
        let watch = Stopwatch::start();
        let error = request.await.unwrap_err();
        // It does not wait for something that cannot change.
        watch.assert_within(SECOND, "a key of another type");
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("such as a lock of Redisson; choose another key"), "{error}");
    }
    assert_eq!(locks.holder("k").await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    assert_eq!(server.command(&["HGET", "k", "field"]).text(), "value");
}

#[tokio::test]
#[limit]
async fn wrong_credentials_are_named_without_being_repeated() {
    let server = RedisServer::builder().with_password("c0rrect").start();
    let address = format!("127.0.0.1:{}", server.port());
    for (url, advice) in [
        (format!("redis://:wr0ng@{address}"), "user or password is wrong"),
        (format!("redis://wr0ng:wr0ng@{address}"), "user or password is wrong"),
        (format!("redis://{address}"), "asks for a password"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let texts: Vec<String> = chain.map(|error| format!("{error} {error:?}")).collect();
        assert!(texts[0].contains(advice), "{texts:?}");
        assert!(texts.iter().all(|text| !text.contains("wr0ng") && !text.contains("c0rrect")), "{texts:?}");
    }
    // A manager that was only built reports it at the first lock, not at `connect`.
    let url = format!("redis://:wr0ng@{address}");
    let locks = LockManager::builder(RedisStore::new(&url).unwrap()).build().unwrap();
    let watch = Stopwatch::start();
    let error = locks.lock("k").await.unwrap_err();
    watch.assert_within(SECOND, "a wrong password");
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(!format!("{locks:?} {error:?}").contains("wr0ng"));
    take(&self::locks(&server), "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn the_documented_acl_suffices_and_less_is_a_mistake() {
    let server = RedisServer::start();
    let set_user = |rules: &[&str]| {
        let rules = rules.iter().flat_map(|line| line.split(' '));
        let words: Vec<&str> = ["ACL", "SETUSER", "app", "reset"].into_iter().chain(rules).collect();
        assert_eq!(server.command(&words), Reply::Text("OK".to_owned()));
    };
    let url = format!("redis://app:password@127.0.0.1:{}", server.port());
    let [user, hold, wait, hear, read] = documented_acl();
    set_user(&[user, hold, wait]);
    let store = Arc::new(RedisStore::new(&url).unwrap());
    let locks = LockManager::builder_shared(Arc::clone(&store)).build().unwrap();
    waits_without_polling(&url).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = watched(&locks, "lock:a").with_min_hold(10 * MS).await.unwrap();
    renewals(&events, 3).await;
    guard.ensure_held().unwrap();
    assert!(!store.capabilities().push_loss, "nothing was heard");
    assert!(locks.holder("lock:a").await.unwrap().is_some());
    assert!(locks.lock("lock:a").try_acquire().await.unwrap().is_none());
    guard.extend(90 * SECOND).await.unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let error = locks.lock("elsewhere").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("docs/operations.md#permissions lists"), "{error}");
    eventually("a min_hold ends", || locked_keys(&server).is_empty()).await;

    // A holder needs each word for something.
    for needless in hold.split(' ') {
        let rules: Vec<&str> = hold.split(' ').filter(|word| *word != needless).collect();
        set_user(&[user, &rules.join(" ")]);
        server.command(&["SCRIPT", "FLUSH"]);
        let outcome = whole_life(&url).await;
        let error = outcome.expect_err(&format!("everything works without {needless}"));
        assert!(matches!(error.kind(), LockErrorKind::Misconfigured | LockErrorKind::Lost), "{needless}: {error}");
        server.command(&["FLUSHALL"]);
    }

    set_user(&[user, hold, wait, hear]);
    let store = Arc::new(RedisStore::new(&url).unwrap());
    let locks = LockManager::builder_shared(Arc::clone(&store)).observer(events.clone()).build().unwrap();
    let guard = watched(&locks, "lock:a").await.unwrap();
    renewals(&events, 3).await;
    let tells = !server.command(&["INFO", "server"]).text().contains("redis_version:6.");
    assert_eq!(store.capabilities().push_loss, tells, "losses are heard");
    assert!(server.command(&["CLIENT", "LIST"]).text().contains("name=lock-core:"));

    set_user(&[user, read]);
    let fleet = FleetReader::new(&url).unwrap();
    let found = fleet.scan(ScanOptions::new().with_prefix("lock:")).next().await.unwrap().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(fleet.waiters(guard.key()).await.unwrap().is_empty());
    set_user(&[user, hold]);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

/// Lets the lock pass from one process to another through the queue.
async fn waits_without_polling(url: &str) {
    let events = EventLog::default();
    let (one, two) = (LockManager::connect(url).await.unwrap(), LockManager::connect(url).await.unwrap());
    two.observe(events.clone());
    let granted = || events.paths().contains(&GrantPath::Granted);
    for _ in 0..50 {
        let guard = one.lock("lock:passed").await.unwrap();
        let (released, waited) = tokio::join!(
            async {
                tokio::time::sleep(20 * MS).await;
                guard.release().await
            },
            two.lock("lock:passed").acquire(),
        );
        assert_eq!(released, Ok(ReleaseOutcome::Released));
        waited.unwrap().release().await.unwrap();
        // The first rounds may come before the inbox is open.
        if granted() {
            return;
        }
    }
    panic!("no lock was ever assigned by a release: {:?}", events.paths());
}

/// Does everything that a holder does, on a server that knows no script.
async fn whole_life(url: &str) -> Result<(), LockError> {
    let locks = LockManager::connect(url).await?;
    let guard = locks.lock("lock:a").await?;
    guard.extend(90 * SECOND).await?;
    locks.holder("lock:a").await?;
    guard.release().await?;
    let again = locks.lock("lock:a").await?;
    again.release().await?;
    Ok(())
}

#[tokio::test]
#[limit]
async fn what_no_server_can_serve_is_refused_before_it_is_asked() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let misconfigured = [
        locks.lock("k").with_ttl(std::time::Duration::ZERO),
        locks.lock("k").with_ttl(999 * MS),
        locks.lock("k").with_ttl(49 * MS).with_renew(Renew::Off),
        locks.lock("k").with_ttl(std::time::Duration::MAX),
        locks.lock("k").with_ttl(SECOND).with_renew(Renew::Every(SECOND)),
        locks.lock("k").with_ttl(SECOND).with_renew(Renew::Every(std::time::Duration::ZERO)),
        locks.lock("k").with_min_hold(std::time::Duration::MAX),
        locks.lock("k").with_max_hold(std::time::Duration::ZERO),
    ];
    for request in misconfigured {
        let error = request.await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    }
    for key in [
        String::new(),
        "x".repeat(513),
        "{a}@waiters".to_owned(),
        "distributed-lock:clock".to_owned(),
        "a:@queue".to_owned(),
    ] {
        let error = locks.lock(key.clone()).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{key}: {error}");
    }
    assert_eq!(locked_keys(&server), [""; 0]);
    // The longest possible key, and one with every kind of byte, work and do not collide.
    let longest = "x".repeat(512);
    let odd = "a b\"\r\n\\é😀{}*?[]";
    for key in [longest.as_str(), odd] {
        let guard = take(&locks, key).await;
        assert!(exists(&server, key), "{key:?} lies at exactly the user's key");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn urls_that_name_no_store_say_what_to_write() {
    for (url, says) in [
        ("", "redis://"),
        ("localhost:6379", "redis://"),
        ("nats://localhost", "redis://"),
        ("postgres://localhost", "use lock_postgres as _;"),
        ("zookeeper://localhost", "use lock_zookeeper as _;"),
        ("kubernetes:///", "use lock_kubernetes as _;"),
        ("redis://", "cannot be read"),
        ("redis://localhost:notaport", "cannot be read"),
    ] {
        let error = refused(url).await;
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
    let error = refused("redis://no-such-host.invalid").await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
#[limit]
async fn a_server_that_is_no_redis_is_an_error_in_time() {
    // A listener that says nothing, one that hangs up, and one that speaks something else.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = refused(&format!("redis://{}", silent.local_addr().unwrap())).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");

    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.refuse(true);
    let error = refused(&proxy.url()).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");

    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", web.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refused(&url).await;
    assert!(!error.to_string().is_empty() && error.kind() != LockErrorKind::Lost, "{error}");
}
