//! Calls that leave together for one master, whatever their slots.

use lock_core::{LockErrorKind, LockGuard, LockManager};
use lock_testing::{EventLog, RedisCluster, RedisServer, limit};

use crate::support::{MS, eventually, exists, locked_keys, locks_at, take};

/// Names locks of different slots, all on one master.
pub(super) fn names(cluster: &RedisCluster, master: usize, count: usize) -> Vec<String> {
    (0..count).map(|at| cluster.key_on(master, &format!("lock:{at}:"))).collect()
}

/// Takes all locks side by side.
pub(super) async fn take_all(locks: &LockManager, names: &[String]) -> Vec<LockGuard> {
    let mut taking = tokio::task::JoinSet::new();
    for name in names {
        let (locks, name) = (locks.clone(), name.clone());
        taking.spawn(async move { take(&locks, &name).await });
    }
    taking.join_all().await
}

pub(super) async fn release_all(guards: Vec<LockGuard>) {
    let mut releasing = tokio::task::JoinSet::new();
    for guard in guards {
        releasing.spawn(async move { guard.release().await.unwrap() });
    }
    releasing.join_all().await;
}

/// Returns how many scripts were run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = stats.text().lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    calls("eval").unwrap_or(0) + calls("evalsha").unwrap_or(0)
}

#[tokio::test]
#[limit]
async fn calls_of_many_slots_that_leave_together_are_one_script() {
    let cluster = RedisCluster::start(2);
    let locks = locks_at(&cluster.url());
    let all: Vec<String> = (0..2).flat_map(|master| names(&cluster, master, 12)).collect();
    release_all(take_all(&locks, &all).await).await;
    let before: Vec<u64> = cluster.masters().iter().map(scripts).collect();
    let guards = take_all(&locks, &all).await;
    let mut tokens: Vec<_> = guards.iter().map(|guard| (guard.key().clone(), guard.token())).collect();
    for (at, name) in all.iter().enumerate() {
        assert!(exists(&cluster.masters()[at / 12], name), "{name}");
    }
    let after: Vec<u64> = cluster.masters().iter().map(scripts).collect();
    // The first leaves at once, the others together.
    assert!(before.iter().zip(&after).all(|(before, after)| after - before <= 4), "{before:?} {after:?}");
    release_all(guards).await;
    assert!(cluster.masters().iter().all(|master| locked_keys(master).is_empty()));
    // Every slot has a clock of its own, which rises.
    for guard in take_all(&locks, &all).await {
        let at = tokens.iter().position(|(key, _)| key == guard.key()).unwrap();
        assert!(guard.token() > tokens.swap_remove(at).1);
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_release_among_others_passes_its_lock_on() {
    let cluster = RedisCluster::start(1);
    let (locks, others) = (locks_at(&cluster.url()), locks_at(&cluster.url()));
    let all = names(&cluster, 0, 8);
    let guards = take_all(&locks, &all).await;
    let tokens: Vec<_> = guards.iter().map(LockGuard::token).collect();
    let events = EventLog::default();
    others.observe(events.clone());
    let waiting = tokio::spawn({
        let all = all.clone();
        async move { take_all(&others, &all).await }
    });
    for name in &all {
        eventually("it waits", || exists(&cluster.masters()[0], &format!("{{{name}}}@queue"))).await;
    }
    release_all(guards).await;
    let guards = waiting.await.unwrap();
    assert!(guards.iter().all(|guard| tokens.iter().all(|token| guard.token() > *token)));
    release_all(guards).await;
    crate::support::all_told(&events).await;
    let granted = events.paths().iter().filter(|path| **path == lock_core::GrantPath::Granted).count();
    assert_eq!(granted, 8, "{:?}", events.paths());
    assert!(locked_keys(&cluster.masters()[0]).is_empty());
}

/// A script knows one ttl.
#[tokio::test]
#[limit]
async fn locks_of_several_ttls_that_leave_together_keep_their_own() {
    let cluster = RedisCluster::start(1);
    let (locks, master) = (locks_at(&cluster.url()), &cluster.masters()[0]);
    let all = names(&cluster, 0, 12);
    release_all(take_all(&locks, &all).await).await;
    let ttl = |at: usize| [5_000, 60_000, 600_000][at % 3];
    let mut taking = tokio::task::JoinSet::new();
    for (at, name) in all.iter().cloned().enumerate() {
        let request = locks.lock(name).with_ttl(ttl(at) * MS);
        taking.spawn(async move { request.await.unwrap() });
    }
    let guards = taking.join_all().await;
    for (at, name) in all.iter().enumerate() {
        let left = master.command(&["PTTL", name]).int();
        assert!((i64::from(ttl(at)) / 2..=i64::from(ttl(at))).contains(&left), "{name}: {left} of {}", ttl(at));
    }
    release_all(guards).await;
    assert!(locked_keys(master).is_empty());
}

/// Draws remove what earlier ones left, though not each of them looks for it.
#[tokio::test]
#[limit]
async fn the_clock_of_a_slot_stays_small() {
    let cluster = RedisCluster::start(1);
    let locks = locks_at(&cluster.url());
    for _ in 0..2_000 {
        take(&locks, "lock:clock").await.release().await.unwrap();
    }
    let master = &cluster.masters()[0];
    let keys = master.command(&["KEYS", "distributed-lock:clock:*"]);
    let lock_testing::Reply::List(keys) = keys else { panic!("a list, not {keys:?}") };
    assert_eq!(keys.len(), 1, "{keys:?}");
    // One in fifty looks, by chance: so many in a row without one are as good as impossible.
    let entries = master.command(&["XLEN", keys[0].text()]).int();
    assert!((1..1_500).contains(&entries), "{entries}");
}

/// A command that this master cannot serve fails alone.
#[tokio::test]
#[limit]
async fn a_slot_that_is_open_or_gone_holds_up_no_other_call_of_its_batch() {
    let cluster = RedisCluster::start(2);
    let locks = locks_at(&cluster.url());
    let all = names(&cluster, 0, 12);
    release_all(take_all(&locks, &all).await).await;
    cluster.open_slot(&all[3], 0, 1);
    cluster.move_slot(&all[5], 0, 1);
    let mut taking = tokio::task::JoinSet::new();
    for (at, name) in all.iter().cloned().enumerate() {
        let locks = locks.clone();
        taking.spawn(async move { (at, locks.lock(name).with_wait(500 * MS).await) });
    }
    let mut guards = Vec::new();
    for (at, taken) in taking.join_all().await {
        match taken {
            Ok(guard) => guards.push(guard),
            Err(error) => {
                assert_eq!(at, 3, "{error}");
                assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
            }
        }
    }
    assert_eq!(guards.len(), 11);
    assert!(exists(&cluster.masters()[1], &all[5]));
    // No key was made on either side, which would block the move of the slot.
    assert!(!cluster.masters().iter().any(|master| exists(master, &all[3])));
    release_all(guards).await;
    for master in cluster.masters() {
        eventually("all is free", || locked_keys(master).is_empty()).await;
    }
}
