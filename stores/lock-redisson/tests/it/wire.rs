//! The data in the server, and what is never done to it.

use lock_core::{LockBackend as _, LockErrorKind, LockKey, LockManager, LossReason, ReleaseOutcome, Renew};
use lock_redisson::RedissonStore;
use lock_store::{AcquireRequest, Attempt, Claim, Freed, HolderInfo, Release};
use lock_testing::{Direction, EventLog, FaultProxy, RedisServer, Reply, limit};

use crate::support::{JAVA, MS, SECOND, calls, eventually, exists, in_layout, java_takes, locks, pttl, scripts};

fn fields(server: &RedisServer, key: &str) -> Vec<(String, String)> {
    let Reply::List(all) = server.command(&["HGETALL", key]) else { panic!("no hash") };
    all.chunks(2).map(|pair| (pair[0].text().to_owned(), pair[1].text().to_owned())).collect()
}

fn keys(server: &RedisServer, pattern: &str) -> Vec<String> {
    let Reply::List(keys) = server.command(&["KEYS", pattern]) else { panic!("no keys") };
    keys.iter().map(|key| key.text().to_owned()).collect()
}

#[tokio::test]
#[limit]
async fn a_lock_is_a_hash_with_one_fresh_field_and_nothing_of_it_stays() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    let mut seen = Vec::new();
    for _ in 0..3 {
        let guard = locks.lock("order:1").await.unwrap();
        let found = fields(&server, "order:1");
        let [(field, count)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((field.len(), field.ends_with(":0"), count.as_str()), (38, true, "1"));
        assert!(!seen.contains(field), "a claim never has the field of another");
        seen.push(field.clone());
        let left = pttl(&server, "order:1");
        assert!((20_000..=30_000).contains(&left), "{left}");
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        assert!(!exists(&server, "order:1"));
    }
    eventually("latches are removed", || keys(&server, "*order:1*").is_empty()).await;
}

#[tokio::test]
#[limit]
async fn an_acquire_without_an_answer_is_looked_up_and_counts_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = locks(&proxy.url());
    drop(locks.lock("k").await.unwrap());
    eventually("its latch is removed", || keys(&server, "*{k}*").is_empty()).await;
    // The answer to the removal has passed the proxy, too.
    let _other = locks.lock("other").await.unwrap();
    let before = scripts(&server);
    proxy.drop_replies(1);
    let guard = locks.lock("k").await.unwrap();
    assert!(scripts(&server) >= before + 2, "it was asked twice");
    let found = fields(&server, "k");
    assert!(matches!(found.as_slice(), [(_, count)] if count == "1"), "{found:?}");
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn a_release_without_an_answer_is_known_again_by_its_latch() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let store = RedissonStore::new(&proxy.url()).unwrap();
    let take = async || {
        let claim = Claim::new(LockKey::new("k").unwrap(), 30 * SECOND);
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("host", 1, "here"));
        request.execute_within = 30 * SECOND;
        assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Granted { .. })));
        Release::new(claim)
    };
    // So that the server knows the script.
    assert_eq!(store.release(&take().await).await, Ok(Freed::Released));
    let release = take().await;
    proxy.drop_replies(1);
    assert!(store.release(&release).await.is_err_and(|error| error.is_ambiguous()));
    assert!(!exists(&server, "k"), "it was executed");
    assert_eq!(store.release(&release).await, Ok(Freed::Released), "it is the same unlock");
    assert_eq!(store.release(&release).await, Ok(Freed::NotHeld), "this is another one");
}

#[tokio::test]
#[limit]
async fn a_renewal_never_shortens_a_lease_nor_ends_one_without_an_end() {
    let server = RedisServer::start();
    let (locks, events) = (locks(&server.url()), EventLog::default());
    locks.observe(events.clone());
    let guard = locks.lock("k").with_renew(Renew::Every(100 * MS)).await.unwrap();
    let renewed = async || {
        let before = events.count("Renewed");
        eventually("it is renewed", || events.count("Renewed") >= before + 2).await;
    };
    server.command(&["PEXPIRE", "k", "5000"]);
    renewed().await;
    assert!(pttl(&server, "k") > 20_000, "it is raised");
    server.command(&["PEXPIRE", "k", "600000"]);
    renewed().await;
    assert!(pttl(&server, "k") > 500_000);
    server.command(&["PERSIST", "k"]);
    renewed().await;
    assert_eq!(pttl(&server, "k"), -1);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn a_lock_that_was_taken_away_is_lost_at_the_next_renewal_and_its_release_spares_the_next_holder() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    for steals in [&["DEL", "k"][..], &["SET", "k", "other"]] {
        server.command(&["DEL", "k"]);
        let guard = locks.lock("k").with_renew(Renew::Every(100 * MS)).await.unwrap();
        server.command(steals);
        let reason = tokio::time::timeout(20 * SECOND, guard.lost()).await.unwrap();
        assert_eq!(reason, LossReason::Stolen);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    }
    assert_eq!(server.command(&["GET", "k"]).text(), "other");
    let error = locks.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "a string is no lock of Redisson: {error}");
}

#[tokio::test]
#[limit]
async fn what_cannot_be_shared_with_redisson_is_refused_with_a_sentence() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    for name in ["a{", "{}", "a}"] {
        let error = locks.lock(name).await.unwrap_err();
        assert!(error.to_string().contains("one slot of a cluster"), "{error}");
    }
    let refused = [
        locks.read("k").await.err().map(|error| error.to_string()),
        locks.semaphore("k", 3).acquire().await.err().map(|error| error.to_string()),
        locks.lease("k").holder("ci-1").acquire().await.err().map(|error| error.to_string()),
    ];
    for (refused, says) in refused.into_iter().zip(["exclusive", "exclusive", "layout=redisson"]) {
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(says), "{refused:?} does not say {says}");
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), 0, "nothing was written");
}

#[tokio::test]
#[limit]
async fn the_url_says_how_releases_are_published_and_never_more() {
    for (url, says) in [
        ("redis://h?redisson_publish=sharded", "in a cluster sharded"),
        ("redis+cluster://h?redisson_publish=both", "in a cluster sharded"),
        ("redis://h?layout=other", "layout=redisson"),
        ("redis://h?ttl=3s", "unknown parameter"),
        ("memory://", "own process only"),
    ] {
        let error = RedissonStore::new(url).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{url}: {error}");
    }
    let error = LockManager::builder_for("redis://u:s3cret@h?layout=other").err().unwrap().to_string();
    assert!(error.contains("add lock-redisson") && !error.contains("s3cret"), "{error}");
    assert!(LockManager::builder_for("redis+cluster://h?layout=redisson&redisson_publish=sharded").is_ok());
    assert!(!RedissonStore::new("redis://h").is_ok_and(|store| store.capabilities().queue));
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn an_acquire_that_arrives_too_late_takes_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = locks(&proxy.url());
    drop(locks.lock("warm").await.unwrap());
    eventually("it is free", || !exists(&server, "warm")).await;
    let (asked, taken) = (scripts(&server), calls(&server, "hincrby"));
    proxy.delay(Direction::ToServer, 600 * MS);
    // A sixth of the ttl is all the time that a command has.
    let error = locks.lock("k").with_ttl(2 * SECOND).without_waiting().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    eventually("it arrives", || scripts(&server) > asked).await;
    assert_eq!(calls(&server, "hincrby"), taken, "whoever asked has gone");
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn a_lock_of_redisson_is_busy_and_names_its_holder() {
    let server = RedisServer::start();
    let locks = locks(&server.url());
    java_takes(&server, "k", 60 * SECOND);
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    let error = locks.lock("k").without_waiting().await.unwrap_err();
    let holder = error.holder().unwrap();
    let info = holder.info.as_ref().unwrap();
    assert_eq!((&*info.site, &*info.host, info.pid), ("Redisson", &JAVA[..36], 42));
    assert_eq!(fields(&server, "k"), [(JAVA.to_owned(), "1".to_owned())], "nothing of it was changed");
    // Any other hash is taken too.
    server.command(&["HSET", "prices", "apple", "1"]);
    assert!(locks.lock("prices").try_acquire().await.unwrap().is_none());
    assert!(LockManager::connect(&in_layout(&server.url())).await.is_ok());
}
