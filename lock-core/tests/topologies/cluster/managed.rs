//! The commands that managed services refuse, and their replacements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lock_core::{GrantPath, HolderInfo, LockBackend, LockKey, LockManager, LossReason, RedisStore, Renew};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release};
use lock_testing::{EventLog, RedisCluster, Reply, limit};

use super::batches::{names, release_all, take_all};
use super::refusing::{Service, services};
use crate::support::{MS, SECOND, all_told, eventually, exists, locked_keys, locks_at, lost, renewals, take};

/// A service that shares slots among servers must find every key of a script before it runs.
async fn each_call_gets_a_script(error: &'static str) {
    let cluster = RedisCluster::start(2);
    let (services, url) =
        services(&cluster, move |_, words| (words[0].starts_with(b"EVAL") && words[2] == b"0").then_some(error));
    let locks = locks_at(&url);
    let all: Vec<String> = (0..2).flat_map(|master| names(&cluster, master, 12)).collect();
    let refused = || services.iter().map(Service::refused).sum::<usize>();
    let mut rounds = vec![0];
    // A few times over each connection.
    while rounds.len() < 3 || rounds[rounds.len() - 3] < refused() {
        release_all(take_all(&locks, &all).await).await;
        rounds.push(refused());
        assert!(rounds.len() < 50, "{rounds:?}");
    }
    assert!(refused() > 0);
    assert!(cluster.masters().iter().all(|master| locked_keys(master).is_empty()));
}

#[tokio::test]
#[limit]
async fn where_scripts_must_declare_their_keys_each_call_gets_one() {
    // As a proxy of Alibaba Cloud says it, for both reasons that it has.
    each_call_gets_a_script("ERR eval/evalsha number of keys can't be negative or zero").await;
    each_call_gets_a_script(
        "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
    )
    .await;
}

/// Instead of where the slot is, only that it is not here: also for a script that declares its keys.
#[tokio::test]
#[limit]
async fn a_master_that_does_not_say_where_a_slot_went_is_left() {
    let cluster = RedisCluster::start(2);
    let name = cluster.key_on(0, "lock:");
    let (gone, key) = (Arc::new(AtomicBool::new(false)), name.clone().into_bytes());
    let (services, url) = services(&cluster, {
        let gone = Arc::clone(&gone);
        move |at, words| {
            let is_of_slot = at == 0 && words[0].starts_with(b"EVAL") && words.contains(&key);
            (is_of_slot && gone.load(Ordering::SeqCst))
                .then_some("ERR Script attempted to access a non local key in a cluster node")
        }
    });
    let locks = locks_at(&url);
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock(&name).with_ttl(30 * SECOND).with_renew(Renew::Every(100 * MS)).await.unwrap();
    // Until a renewal comes before the look that finds the slot.
    loop {
        gone.store(true, Ordering::SeqCst);
        cluster.move_slot(&name, 0, 1);
        renewals(&events, 2).await;
        if services[0].refused() > 0 {
            break;
        }
        gone.store(false, Ordering::SeqCst);
        cluster.move_slot(&name, 1, 0);
        renewals(&events, 2).await;
    }
    guard.release().await.unwrap();
    assert_eq!((events.count("Lost"), exists(&cluster.masters()[1], &name)), (0, false));
}

/// Loading its data, busy with a script, unable to save, full, without replicas: nothing was executed, and it passes.
#[tokio::test]
#[limit]
async fn a_master_that_cannot_serve_now_is_asked_again_until_it_can() {
    let cluster = RedisCluster::start(1);
    let claim = Claim::new(LockKey::new("lock:k").unwrap(), 60 * SECOND);
    let refusals = Arc::new(Mutex::new(("", 0)));
    let (services, url) = services(&cluster, {
        let (refusals, key) = (Arc::clone(&refusals), claim.key.as_str().as_bytes().to_vec());
        move |_, words| {
            let (error, times) = &mut *refusals.lock().unwrap();
            let is_refused = *times > 0 && words[0].starts_with(b"EVAL") && words.contains(&key);
            is_refused.then(|| {
                *times -= 1;
                *error
            })
        }
    });
    let store = RedisStore::new(&url).unwrap();
    let mut refused = 0;
    for error in [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOREPLICAS Not enough good replicas to write.",
    ] {
        let refuse = |times| *refusals.lock().unwrap() = (error, times);
        refuse(3);
        let request = AcquireRequest::new(claim.clone(), HolderInfo::new("host-1", 42, "app::charge"));
        let attempt = store.try_acquire(&request).await;
        assert!(matches!(attempt, Ok(Attempt::Granted { .. })), "{error}: {attempt:?}");
        refuse(1);
        // The machinery renews again by itself.
        let renewal = store.renew(std::slice::from_ref(&claim)).await.remove(0).unwrap_err();
        let code = error.split(' ').next().unwrap();
        assert!(renewal.is_transient() && renewal.to_string().contains(code), "{renewal}");
        refuse(3);
        assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::Released), "{error}");
        refused += 7;
        assert_eq!(services[0].refused(), refused, "{error}");
        // For longer than a call may take, it is said.
        refuse(usize::MAX);
        let mut hasty = request;
        hasty.execute_within = 300 * MS;
        let given_up = store.try_acquire(&hasty).await.unwrap_err();
        assert!(given_up.is_transient() && given_up.to_string().contains(code), "{given_up}");
        refuse(0);
        refused = services[0].refused();
    }
    assert!(!exists(&cluster.masters()[0], "lock:k"));
}

/// As while a service moves slots in one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_master_that_holds_up_writes_loses_no_lease_and_holds_up_no_other() {
    let cluster = RedisCluster::start(2);
    let [slow, other] = [0, 1].map(|master| cluster.key_on(master, "lock:"));
    let locks = locks_at(&cluster.url());
    let events = EventLog::default();
    locks.observe(events.clone());
    let held = locks.lock(&slow).with_ttl(30 * SECOND).with_renew(Renew::Every(200 * MS)).await.unwrap();
    assert_eq!(cluster.masters()[0].command(&["CLIENT", "PAUSE", "3000", "WRITE"]), Reply::Text("OK".to_owned()));
    let waiting = tokio::spawn({
        let (locks, beside) = (locks.clone(), format!("{{{slow}}}:beside"));
        async move { take(&locks, &beside).await }
    });
    for _ in 0..20 {
        take(&locks, &other).await.release().await.unwrap();
    }
    waiting.await.unwrap().release().await.unwrap();
    renewals(&events, 2).await;
    held.release().await.unwrap();
    all_told(&events).await;
    assert_eq!((events.count("Lost"), events.count("Failed")), (0, 0));
}

/// Grants that nobody may publish, connections that nobody may close, changes that nobody may hear of, settings that
/// nobody may read.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn without_what_a_service_forbids_waiters_poll_and_renewals_find_losses() {
    let cluster = RedisCluster::start(2);
    for master in cluster.masters() {
        let rules = "on >pw ~* &* +@all -config -publish -client -cluster +cluster|slots -pubsub -info";
        let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(rules.split(' ')).collect();
        assert_eq!(master.command(&words), Reply::Text("OK".to_owned()));
    }
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://app:pw@");
    let (locks, others) = (LockManager::connect(&url).await.unwrap(), locks_at(&url));
    let events = EventLog::default();
    others.observe(events.clone());
    let name = cluster.key_on(1, "lock:");
    let guard = take(&locks, &name).await;
    let waiting = tokio::spawn({
        let name = name.clone();
        async move { take(&others, &name).await }
    });
    eventually("it waits", || exists(&cluster.masters()[1], &format!("{{{name}}}@queue"))).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    all_told(&events).await;
    assert_eq!(events.paths(), [GrantPath::Polled]);
    let guard = locks.lock(&name).with_renew(Renew::Every(100 * MS)).await.unwrap();
    cluster.masters()[1].command(&["DEL", &name]);
    assert_eq!(lost(&guard).await, LossReason::Stolen);
}

/// Where a process cannot be told that a writer waits, its readers would pass it one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn readers_share_no_claim_at_a_master_that_cannot_tell_them_of_a_writer() {
    let cluster = RedisCluster::start(2);
    for (master, rules) in cluster.masters().iter().zip(["+@all", "+@all -subscribe"]) {
        let words = format!("ACL SETUSER app on >pw ~* &* {rules}");
        master.command(&words.split(' ').collect::<Vec<_>>());
    }
    let locks = locks_at(&cluster.url().replace("redis+cluster://", "redis+cluster://app:pw@"));
    let [heard, unheard] = [cluster.key_on(0, "lock:"), cluster.key_on(1, "lock:")];
    let events = EventLog::default();
    locks.observe(events.clone());
    let two_readers = async |name: &str| {
        let first = locks.read(name).with_renew(Renew::Every(50 * MS)).await.unwrap();
        renewals(&events, 2).await;
        let second = locks.read(name).with_renew(Renew::Every(50 * MS)).await.unwrap();
        let claims = locks.holders(name).await.unwrap().len();
        for guard in [first, second] {
            guard.release().await.unwrap();
        }
        claims
    };
    // Here they do, once it listens.
    while two_readers(&heard).await > 1 {}
    assert_eq!(two_readers(&unheard).await, 2);
}
