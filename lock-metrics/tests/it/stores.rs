//! A lock is identified by its name and its store, and its times follow the store's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{
    FencingToken, LockError, LockEvent, LockEventKind, LockManager, LockObserver, MemoryStore, Mode, Notice, Purpose,
    RedisStore,
};
use lock_metrics::{MetricsHandle, builder};
use lock_testing::{RedisServer, limit};

use crate::support::{Acquire, Scrape, holder};

const SECOND: Duration = Duration::from_secs(1);

fn scrape(metrics: &MetricsHandle) -> Scrape {
    Scrape::read(&metrics.render())
}

#[test]
#[limit]
fn one_name_in_two_stores_is_two_locks_in_every_series() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let in_store = |attempt, store, purpose| {
        let mut acquire = Acquire::new(&observer, attempt, "nightly", "nightly");
        (acquire.store, acquire.purpose) = (store, purpose);
        acquire.ttl = Duration::from_secs(attempt);
        acquire
    };
    in_store(1, "a", Purpose::Leadership).take();
    in_store(2, "b", Purpose::Leadership).send(LockEventKind::WaitStarted);
    let permit = in_store(3, "a", Purpose::Lock).in_mode(Mode::permits(3, 4).unwrap());
    permit.take();
    in_store(4, "b", Purpose::Lock).in_mode(Mode::permits(3, 8).unwrap()).take();
    let lost = in_store(5, "a", Purpose::Lock);
    lost.take();
    lost.release(SECOND);
    let seen = scrape(&metrics);
    let of = |name: &str| ["a", "b"].map(|store| seen.get(name, &[("lock", "nightly"), ("store", store)]));
    assert_eq!(of("leader"), [1.0, 0.0], "led in one, stood for in the other");
    assert_eq!(of("permits_limit"), [4.0, 8.0]);
    assert_eq!(of("permits_held"), [3.0, 3.0]);
    assert_eq!(of("ttl_seconds"), [5.0, 4.0]);
    assert_eq!(of("candidates"), [0.0, 1.0]);
    let released =
        |store| seen.get("releases_total", &[("store", store), ("outcome", "released"), ("lock", "nightly")]);
    assert_eq!(["a", "b"].map(released), [1.0, 0.0]);
    let without: Vec<_> =
        seen.series.keys().filter(|(_, l)| l.contains_key("lock") && !l.contains_key("store")).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[tokio::test]
#[limit]
async fn two_namespaces_of_one_server_are_two_stores() {
    let server = RedisServer::start();
    let metrics = builder().build().unwrap();
    for prefix in ["prod:", "test:"] {
        let locks = LockManager::connect(&format!("{}?key_prefix={prefix}", server.url())).await.unwrap();
        locks.observe(metrics.observer());
        drop(locks.lock("k").with_label("k").await.unwrap());
        locks.shutdown(5 * SECOND).await;
    }
    let address = server.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    for prefix in ["prod:", "test:"] {
        let store = format!("{address}#{prefix}");
        let labels = [("lock", "k"), ("store", store.as_str()), ("outcome", "acquired")];
        assert_eq!(scrape(&metrics).get("acquisitions_total", &labels), 1.0, "{}", metrics.render());
    }
}

#[test]
#[limit]
fn what_is_annotated_is_shown_in_each_store_until_it_is_taken_in_one() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let shown = |metrics: &MetricsHandle| {
        let seen = scrape(metrics);
        let mut stores: Vec<String> = seen
            .series
            .keys()
            .filter(|(name, labels)| name.ends_with("_lost_total") && labels["lock"] == "site:short")
            .map(|(_, labels)| labels["store"].clone())
            .collect();
        stores.sort();
        stores.dedup();
        stores
    };
    assert_eq!(shown(&metrics), [""], "no store is known");
    observer.on_notice(&Notice::Store { store: "a", node: "a" });
    assert_eq!(shown(&metrics), ["a"], "before the first call, so that nothing is missed");
    observer.on_notice(&Notice::Store { store: "b", node: "b" });
    assert_eq!(shown(&metrics), ["a", "b"]);
    let mut taken = Acquire::new(&observer, 1, "site:short", "site:short");
    taken.store = "b";
    taken.take();
    assert_eq!(shown(&metrics), ["b"]);
}

#[tokio::test]
#[limit]
async fn a_store_is_known_as_soon_as_its_manager_is() {
    let metrics = builder().build().unwrap();
    let locks = LockManager::builder(MemoryStore::new()).store_name("carts").build().unwrap();
    locks.observe(metrics.observer());
    assert!(metrics.render().contains("distributed_lock_store_now_timestamp_seconds{store=\"carts\"}"));
}

/// The servers that each store is said to be, with their versions.
fn servers(metrics: &MetricsHandle) -> Vec<(String, String, String)> {
    let seen = scrape(metrics);
    let infos = seen.series.keys().filter(|(name, _)| name == "distributed_lock_store_info");
    let mut found: Vec<_> = infos
        .map(|(_, labels)| (labels["store"].clone(), labels["server"].clone(), labels["version"].clone()))
        .collect();
    found.sort();
    found
}

#[tokio::test]
#[limit]
#[expect(clippy::disallowed_methods, reason = "what is told of a server comes later")]
async fn each_store_says_which_server_it_is_also_by_another_name_and_after_another_start() {
    let mut server = RedisServer::start();
    let told = |server: &RedisServer, section: &str, name: &str| {
        let info = server.command(&["INFO", section]).text().to_owned();
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    let id = |server: &RedisServer| told(server, "replication", "master_replid:")[..8].to_owned();
    let metrics = builder().build().unwrap();
    let named = LockManager::builder(RedisStore::new(&server.url()).unwrap()).store_name("carts").key_prefix("eu:");
    let managers = [LockManager::connect(&server.url()).await.unwrap(), named.build().unwrap()];
    for locks in &managers {
        locks.observe(metrics.observer());
        drop(locks.lock("k").await.unwrap());
    }
    let address = server.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let is_there = async |metrics: &MetricsHandle, id: &str| {
        while servers(metrics).iter().filter(|(_, server, _)| server == id).count() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let first = id(&server);
    is_there(&metrics, &first).await;
    let stores: Vec<_> = servers(&metrics).into_iter().map(|(store, ..)| store).collect();
    assert_eq!(stores, [address.as_str(), "carts#eu:"], "one server under two names");
    let version = servers(&metrics).swap_remove(0).2;
    let (name, number) = version.split_once(' ').unwrap();
    assert_eq!(number, told(&server, "server", &format!("{name}_version:")));
    server.restart();
    let second = id(&server);
    assert_ne!(first, second);
    is_there(&metrics, &second).await;
    assert_eq!(servers(&metrics).len(), 2, "what it was before is forgotten");
}

/// A token that is drawn at a moment, as the server draws them.
fn drawn(at: SystemTime) -> FencingToken {
    let ms = at.duration_since(UNIX_EPOCH).unwrap().as_millis();
    FencingToken::new(u64::try_from(ms).unwrap() << 20)
}

#[expect(clippy::disallowed_methods, reason = "the clock that the store is ahead of")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[test]
#[limit]
fn times_of_a_store_are_by_its_clock_however_wrong_that_of_this_process_is() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let hour = Duration::from_secs(3600);
    let unix = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    for (attempt, store, ahead) in [(1, "ahead", true), (2, "behind", false)] {
        let server = if ahead { now() + 2 * hour } else { now() - 2 * hour };
        let mut job = Acquire::new(&observer, attempt, "report", "report");
        (job.store, job.purpose, job.token) = (store, Purpose::Job { every: Some(hour) }, drawn(server));
        job.take();
        let label = "report".into();
        observer.on_notice(&Notice::JobEnded { label: &label, store, succeeded: true });
        let seen = scrape(&metrics);
        let told = seen.get("store_now_timestamp_seconds", &[("store", store)]);
        let succeeded = seen.get("last_success_timestamp_seconds", &[("lock", "report"), ("store", store)]);
        assert!((told - unix(server)).abs() < 60.0, "{store}: {told}");
        assert!((0.0..60.0).contains(&(told - succeeded)), "{store}: a run that has just ended: {told} {succeeded}");
    }
    // Tokens of any other kind say nothing, and the own clock counts.
    let mut plain = Acquire::new(&observer, 3, "plain", "plain");
    (plain.store, plain.token) = ("plain", FencingToken::new(u64::MAX >> 1));
    plain.take();
    let told = scrape(&metrics).get("store_now_timestamp_seconds", &[("store", "plain")]);
    assert!((told - unix(now())).abs() < 60.0, "{told}");
}

#[tokio::test]
#[limit]
async fn the_clock_of_a_real_store_is_told() -> Result<(), LockError> {
    let server = RedisServer::start();
    let metrics = builder().build().unwrap();
    let locks = LockManager::builder_for(&server.url())?.store_name("redis").build()?;
    locks.observe(metrics.observer());
    locks.lock("k").await?.release().await?;
    let told = scrape(&metrics).get("store_now_timestamp_seconds", &[("store", "redis")]);
    let own = scrape(&metrics).get("now_timestamp_seconds", &[]);
    assert!((told - own).abs() < 60.0, "one machine, one clock: {told} {own}");
    let observer = metrics.observer();
    // The holder's token, too, says when its hold began.
    let waits = Acquire::new(&observer, u64::MAX, "k", "k").in_store("redis");
    let mut seen = holder("shop::report");
    seen.token = Some(locks.lock("k").await?.token());
    waits.send(LockEventKind::WaitStarted);
    waits.send(LockEventKind::Contended { holder: Some(&seen) });
    let labels = [("lock", "k"), ("store", "redis"), ("holder_site", "shop::report")];
    let since = scrape(&metrics).get("waiting_on_oldest_hold_start_timestamp_seconds", &labels);
    assert!((told - since).abs() < 60.0, "{told} {since}");
    Ok(())
}

#[test]
#[limit]
fn metrics_and_closures_do_not_listen_to_waits() {
    assert!(!builder().build().unwrap().observer().hears_waits());
    assert!(!(|_: &LockEvent<'_>| {}).hears_waits());
}
