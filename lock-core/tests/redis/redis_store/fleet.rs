//! Reading the locks of every process.

mod cluster;

use std::time::{Duration, SystemTime};

use lock_core::inspect::{EntryState, FleetReader, LockEntry, ScanOptions};
use lock_core::{LockErrorKind, LockKey, LockManager, OwnerId};
use lock_store::Freed;
use lock_testing::{RedisServer, Reply, limit};

use crate::support::lost;

async fn scan(fleet: &FleetReader, options: ScanOptions) -> (Vec<LockEntry>, bool) {
    let mut scan = fleet.scan(options);
    let mut entries = Vec::new();
    while let Some(batch) = scan.next().await.unwrap() {
        entries.extend(batch);
    }
    entries.sort_by(|one, two| one.key.cmp(&two.key));
    (entries, scan.is_truncated())
}

fn keys(entries: &[LockEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

fn key(text: &str) -> LockKey {
    LockKey::new(text).unwrap()
}

#[tokio::test]
#[limit]
async fn locks_are_found_among_everything_else() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 10000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    server.command(&["HSET", "lock:hash", "a", "b"]);
    server.command(&["SET", "lock:classic", "nonce", "PX", "60000"]);
    server.command(&["SET", "lock:eternal", "nonce"]);
    server.command(&["SET", "lock:classic:@queue", "9"]);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let before = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let _one = locks.lock("lock:user:1").with_site("shop::charge").acquire().await.unwrap();
    let _two = locks.lock("job:{a}").acquire().await.unwrap();
    let kept = locks.lock("lock:kept").with_min_hold(Duration::from_secs(25)).acquire().await.unwrap();
    kept.release().await.unwrap();

    let fleet = FleetReader::new(&server.url()).unwrap();
    let (entries, truncated) = scan(&fleet, ScanOptions::new()).await;
    assert_eq!((keys(&entries), truncated), (vec!["job:{a}", "lock:kept", "lock:user:1"], false));
    let states: Vec<EntryState> = entries.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [EntryState::Held, EntryState::Kept, EntryState::Held]);
    let held = &entries[2];
    assert_eq!((held.holder.site(), held.waiters), ("shop::charge", Some(0)));
    assert!(held.held_for.unwrap() < Duration::from_secs(60), "{held:?}");
    let granted = held.granted_at.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(granted + Duration::from_secs(1) > before && granted < before + Duration::from_secs(60));
    assert!(held.holder.ttl_left.unwrap() > Duration::from_secs(20));

    let (entries, _) = scan(&fleet, ScanOptions::new().with_foreign_prefix("lock:")).await;
    assert_eq!(keys(&entries), ["job:{a}", "lock:classic", "lock:eternal", "lock:kept", "lock:user:1"]);
    assert_eq!((entries[1].state, entries[1].is_without_ttl()), (EntryState::Foreign, false));
    assert!(entries[2].is_without_ttl());
    let (entries, _) = scan(&fleet, ScanOptions::new().with_prefix("job:{")).await;
    assert_eq!(keys(&entries), ["job:{a}"]);
    let (entries, _) = scan(&fleet, ScanOptions::new().with_prefix("*")).await;
    assert!(entries.is_empty(), "a prefix is no pattern: {entries:?}");
    locks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
#[limit]
async fn a_budget_ends_a_scan() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 5000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    let fleet = FleetReader::new(&server.url()).unwrap();
    let (_, truncated) = scan(&fleet, ScanOptions::new().with_max_keys(1000)).await;
    assert!(truncated);
    let (_, truncated) = scan(&fleet, ScanOptions::new().with_max_keys(1_000_000).with_pause(Duration::ZERO)).await;
    assert!(!truncated);
}

#[tokio::test]
#[limit]
async fn reading_needs_few_permissions_and_one_look_at_what_the_server_is() {
    let server = RedisServer::start();
    server.command(&["EVAL", "for i = 1, 1000 do redis.call('SET', 'cache:' .. i, 'x') end", "0"]);
    server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+scan", "+getrange", "+pttl", "+zcount", "+time"]);
    let fleet = FleetReader::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap();
    fleet.ping().await.unwrap();
    let greetings = || {
        let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hello:calls=")).unwrap();
        line.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let before = greetings();
    let mut scan = fleet.scan(ScanOptions::new());
    let mut steps = 0;
    while scan.next().await.unwrap().is_some() {
        steps += 1;
    }
    assert!(steps >= 10, "{steps}");
    assert_eq!((greetings() - before, scan.servers()), (1, vec![fleet.node()]));
}

#[tokio::test]
#[limit]
async fn a_single_lock_is_read_or_explained() {
    let server = RedisServer::start();
    server.command(&["HSET", "hash", "a", "b"]);
    server.command(&["SET", "classic", &"x".repeat(1_000_000)]);
    let fleet = FleetReader::new(&server.url()).unwrap();
    assert!(fleet.entry(&key("free")).await.unwrap().is_none());
    assert_eq!(fleet.entry(&key("classic")).await.unwrap().unwrap().state, EntryState::Foreign);
    let error = fleet.entry(&key("hash")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    let error = fleet.entry(&key("x:@queue")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(fleet.waiters(&key("free")).await.unwrap().is_empty());
    assert_eq!(format!("{fleet:?}"), format!("FleetReader(127.0.0.1:{})", server.port()));
}

#[tokio::test]
#[limit]
async fn only_the_owner_that_was_shown_is_released() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("lock:user:1").with_ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let fleet = FleetReader::new(&server.url()).unwrap();
    let owner = fleet.entry(guard.key()).await.unwrap().unwrap().holder.owner.unwrap();
    let freed = fleet.release(guard.key(), OwnerId::random(), "ana", "wrong").await.unwrap();
    assert_eq!((freed, guard.ensure_held()), (Freed::NotHeld, Ok(())));
    until_it_listens(&server).await;
    let freed = fleet.release(guard.key(), owner, "ana", "stuck since noon").await.unwrap();
    assert_eq!(freed, Freed::Released);
    assert_eq!(server.command(&["EXISTS", "lock:user:1"]), Reply::Int(0));
    let reason = lost(&guard).await;
    assert_eq!(reason, lock_core::LossReason::Revoked);
    let next = locks.lock("lock:user:1").acquire().await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(fleet.release(guard.key(), owner, "ana", "again").await.unwrap(), Freed::NotHeld);
    locks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
#[limit]
async fn a_holder_whose_lease_is_never_renewed_hears_of_an_operator_too() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let request = locks.lock("lock:user:1").with_ttl(Duration::from_secs(600)).with_renew(lock_core::Renew::Off);
    let guard = request.acquire().await.unwrap();
    let fleet = FleetReader::new(&server.url()).unwrap();
    let owner = fleet.entry(guard.key()).await.unwrap().unwrap().holder.owner.unwrap();
    until_it_listens(&server).await;
    assert_eq!(fleet.release(guard.key(), owner, "ana", "why|not").await.unwrap(), Freed::Released);
    assert_eq!(lost(&guard).await, lock_core::LossReason::Revoked);
    locks.shutdown(Duration::from_secs(5)).await;
}

/// Waits until a process listens for operators: a process that was not notified reports a theft.
async fn until_it_listens(server: &RedisServer) {
    let channels = || format!("{:?}", server.command(&["PUBSUB", "CHANNELS", "distributed-lock:inbox:revoked"]));
    while !channels().contains("revoked") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
#[limit]
async fn a_lock_of_another_library_is_released_by_its_value() {
    let server = RedisServer::start();
    server.command(&["SET", "lock:classic", "no\u{1}nce", "PX", "600000"]);
    server.command(&["HSET", "lock:hash", "a", "b"]);
    let fleet = FleetReader::new(&server.url()).unwrap();
    let classic = key("lock:classic");
    let value = fleet.entry(&classic).await.unwrap().unwrap().foreign_value.unwrap();
    let release = |value: &'static [u8]| fleet.release_foreign(&classic, value, "ana", "its host is gone");
    assert_eq!(release(b"no").await.unwrap(), Freed::NotHeld);
    assert_eq!(server.command(&["EXISTS", "lock:classic"]), Reply::Int(1));
    assert_eq!(value, b"no\x01nce");
    assert_eq!(release(b"no\x01nce").await.unwrap(), Freed::Released);
    assert_eq!(server.command(&["EXISTS", "lock:classic"]), Reply::Int(0));
    assert_eq!(release(b"no\x01nce").await.unwrap(), Freed::NotHeld);
    let error = fleet.release_foreign(&key("lock:hash"), b"x", "ana", "x").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
}

#[tokio::test]
#[limit]
async fn a_scan_counts_what_looks_like_a_lock_of_another_library() {
    let server = RedisServer::start();
    server.command(&["SET", "page:1", &"x".repeat(1000), "PX", "600000"]);
    server.command(&["SET", "counter", "7"]);
    let fleet = FleetReader::new(&server.url()).unwrap();
    let count = async || {
        let mut scan = fleet.scan(ScanOptions::new());
        while scan.next().await.unwrap().is_some() {}
        let (count, example) = scan.left_out();
        (count, example.map(|key| key.as_str().to_owned()))
    };
    assert_eq!(count().await, (0, None));
    server.command(&["SET", "cron:nightly", "nonce", "PX", "600000"]);
    assert_eq!(count().await, (1, Some("cron:nightly".to_owned())));
    server.command(&["SET", "my:Lock:1", "nonce"]);
    assert_eq!(count().await, (2, Some("my:Lock:1".to_owned())));
}

#[tokio::test]
#[limit]
async fn the_queue_is_listed_in_order_and_served_after_a_release() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("lock:user:1").acquire().await.unwrap();
    let fleet = FleetReader::new(&server.url()).unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for (place, site) in [(1, "shop::refund"), (2, "shop::report")] {
        let other = LockManager::connect(&server.url()).await.unwrap();
        waiting.spawn(async move {
            let request = other.lock("lock:user:1").with_site(site).with_wait(Duration::from_secs(120));
            request.acquire().await.map(|guard| (other, guard))
        });
        while fleet.entry(guard.key()).await.unwrap().unwrap().waiters < Some(place) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let waiters = fleet.waiters(guard.key()).await.unwrap();
    let sites: Vec<&str> = waiters.iter().map(|waiter| &*waiter.info.as_ref().unwrap().site).collect();
    assert_eq!(sites, ["shop::refund", "shop::report"]);
    assert_eq!(waiters.iter().map(|waiter| waiter.position).collect::<Vec<_>>(), [1, 2]);
    for waiter in &waiters {
        assert!(waiter.waiting_for < Duration::from_secs(30) && waiter.confirmed.unwrap() < Duration::from_secs(10));
        assert_eq!(waiter.info.as_ref().unwrap().pid, std::process::id());
    }
    let owner = fleet.entry(guard.key()).await.unwrap().unwrap().holder.owner.unwrap();
    assert_eq!(fleet.release(guard.key(), owner, "ana", "stuck").await.unwrap(), Freed::Released);
    let (_manager, next) = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert!(next.token() > guard.token());
    let entry = fleet.entry(guard.key()).await.unwrap().unwrap();
    assert_eq!((entry.holder.site(), entry.waiters), ("shop::refund", Some(1)));
    assert_eq!(fleet.waiters(guard.key()).await.unwrap().len(), 1);
}

#[tokio::test]
#[limit]
async fn a_server_that_is_away_is_unavailable_and_never_quotes_the_password() {
    let server = RedisServer::builder().with_password("open-sesame").start();
    let wrong = FleetReader::new(&format!("redis://:closed-sesame@127.0.0.1:{}", server.port())).unwrap();
    let error = wrong.ping().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(!format!("{error:?} {error} {wrong:?}").contains("sesame"), "{error:?}");
    let url = server.url();
    drop(server);
    let gone = FleetReader::new(&url).unwrap();
    let error = gone.scan(ScanOptions::new()).next().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

#[tokio::test]
#[limit]
async fn a_namespace_is_read_by_itself() {
    let server = RedisServer::start();
    let url = |prefix: &str| format!("{}/?key_prefix={prefix}", server.url());
    let prod = LockManager::connect(&url("prod:")).await.unwrap();
    let test = LockManager::connect(&url("test:")).await.unwrap();
    let guard = prod.lock("job").await.unwrap();
    let _other = test.lock("job").without_waiting().await.unwrap();
    server.command(&["SET", "prod:classic", "nonce", "PX", "60000"]);
    assert_eq!(server.command(&["EXISTS", "prod:job", "test:job", "job"]), Reply::Int(2));

    let fleet = FleetReader::new(&url("prod:")).unwrap();
    assert_eq!(keys(&scan(&fleet, ScanOptions::new()).await.0), ["prod:job"]);
    let found = scan(&fleet, ScanOptions::new().with_foreign_prefix("class")).await.0;
    assert_eq!(keys(&found), ["prod:classic", "prod:job"]);
    assert_eq!(keys(&scan(&fleet, ScanOptions::new().with_prefix("j")).await.0), ["prod:job"]);
    assert_eq!(fleet.entry(guard.key()).await.unwrap().unwrap().key, *guard.key());
    let error = lock_core::RedisStore::new(&url("prod:")).unwrap_err();
    assert!(error.to_string().contains("belongs to the manager"), "{error}");
}
