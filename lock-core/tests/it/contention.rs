//! Many who want the same key, in one process, in several, and in other languages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lock_core::testing::{EventLog, RedisServer, Reply};
use lock_core::{LockErrorKind, ReleaseOutcome, Wait};

use crate::support::{MS, SECOND, SLACK, eventually, exists, figure, locked_keys, locks, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_are_all_served() {
    let server = RedisServer::start();
    // Five managers, as five processes.
    let managers: Vec<_> = (0..5).map(|_| locks(&server)).collect();
    let inside = Arc::new(AtomicU64::new(0));
    let newest = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..500)
        .map(|task| {
            let (locks, inside, newest) = (managers[task % 5].clone(), Arc::clone(&inside), Arc::clone(&newest));
            tokio::spawn(async move {
                let guard = locks.lock("k").with_wait(60 * SECOND).await.unwrap();
                let waited = start.elapsed();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                assert!(newest.swap(guard.token().get(), Ordering::SeqCst) < guard.token().get());
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
                waited
            })
        })
        .collect();
    let mut longest = MS;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    figure("500 waiters of 5 managers on one key: the longest wait", longest);
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_waiters_time_out_within_their_budget() {
    let server = RedisServer::start();
    let managers: Vec<_> = (0..5).map(|_| locks(&server)).collect();
    let events = EventLog::default();
    managers[1].observe(events.clone());
    let guard = take(&managers[0], "k").await;
    let tasks: Vec<_> = (0..500_u32)
        .map(|task| {
            let locks = managers[task as usize % 5].clone();
            tokio::spawn(async move {
                let (budget, start) = (500 * MS + task * MS, Instant::now());
                let error = locks.lock("k").with_wait(budget).await.unwrap_err();
                assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
                assert!(error.holder().is_some(), "{error}");
                let over = start.elapsed().checked_sub(budget);
                over.expect("it gave up before its budget was spent")
            })
        })
        .collect();
    let mut worst = MS;
    for task in tasks {
        worst = worst.max(task.await.unwrap());
    }
    figure("500 waiters that time out: most over the budget", worst);
    assert!(worst < SLACK, "{worst:?}");
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(locked_keys(&server), [""; 0]);
    events.assert_complete();
}

#[tokio::test]
async fn a_classic_client_excludes_us_and_we_exclude_it() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let classic = || server.command(&["SET", "k", "some-uuid", "NX", "PX", "700"]);
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
    let busy = locks.lock("k").without_waiting().await.unwrap_err();
    assert_eq!(busy.kind(), LockErrorKind::Busy);
    let holder = busy.holder().unwrap();
    assert_eq!((holder.site(), &holder.info, holder.owner, holder.token), ("foreign", &None, None, None));
    assert_eq!(locks.holder("k").await.unwrap().unwrap().site(), "foreign");
    let start = Instant::now();
    let guard = take(&locks, "k").await;
    figure("granted after a classic lease of 0.7 s", start.elapsed());
    assert_eq!(classic(), Reply::Nil);
    let compare_and_delete =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    assert_eq!(server.command(&["EVAL", compare_and_delete, "1", "k", "some-uuid"]), Reply::Int(0));
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
    // Released early, it is noticed by polling.
    let waiting = tokio::spawn(async move { locks.lock("k").await });
    tokio::time::sleep(50 * MS).await;
    assert_eq!(server.command(&["EVAL", compare_and_delete, "1", "k", "some-uuid"]), Reply::Int(1));
    let start = Instant::now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < 250 * MS + SLACK);
    assert!(events.names().contains(&"Contended"));
}

#[tokio::test]
async fn a_classic_lock_without_a_lease_is_waited_for_like_any_other() {
    let server = RedisServer::start();
    let locks = locks(&server);
    server.command(&["SET", "k", "for ever"]);
    let late = locks.lock("k").with_wait(300 * MS).await.unwrap_err();
    assert_eq!((late.kind(), late.holder().unwrap().ttl_left), (LockErrorKind::Timeout, None));
    assert!(late.to_string().contains("without a lease"), "{late}");
    let waiting = tokio::spawn(async move { locks.lock("k").with_wait(Wait::Forever).await });
    tokio::time::sleep(100 * MS).await;
    server.command(&["DEL", "k"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn two_guards_of_one_manager_exclude_each_other_and_a_stale_one_harms_nobody() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let stale = locks.lock("k").with_ttl(300 * MS).with_renew(lock_core::Renew::Off).await.unwrap();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    stale.lost().await;
    let fresh = take(&locks, "k").await;
    assert!(fresh.token() > stale.token());
    assert_eq!(stale.extend(9 * SECOND).await.unwrap_err().kind(), LockErrorKind::Lost);
    stale.release().await.unwrap();
    // The stale release ends its claim in the background; it must not free the fresh one.
    tokio::time::sleep(100 * MS).await;
    fresh.ensure_held().unwrap();
    assert!(exists(&server, "k"));
    assert_eq!(fresh.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn tokens_grow_over_clean_releases_and_over_processes() {
    let server = RedisServer::start();
    let managers = [locks(&server), locks(&server)];
    let mut newest = 0;
    for round in 0..200 {
        let guard = take(&managers[round % 2], "k").await;
        assert!(guard.token().get() > newest);
        newest = guard.token().get();
        match round % 3 {
            0 => drop(guard),
            _ => assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released)),
        }
    }
}

#[tokio::test]
async fn one_budget_covers_the_local_queue_and_the_server() {
    let server = RedisServer::start();
    let (ours, theirs) = (locks(&server), locks(&server));
    let guard = take(&theirs, "k").await;
    let first = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock("k").with_wait(400 * MS).await }
    });
    tokio::time::sleep(20 * MS).await;
    // Half of its budget passes behind the first, the other half at the server.
    let start = Instant::now();
    let second = ours.lock("k").with_wait(800 * MS).await.unwrap_err();
    let took = start.elapsed();
    assert_eq!(second.kind(), LockErrorKind::Timeout);
    assert!((800 * MS..800 * MS + SLACK).contains(&took), "{took:?}");
    assert_eq!(first.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn many_locks_of_one_manager_are_all_renewed() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut guards = Vec::new();
    for key in 0..350 {
        guards.push(take(&locks, &format!("k{key}")).await);
    }
    tokio::time::sleep(3 * SECOND).await;
    let least = guards.iter().map(|guard| guard.ensure_held().map(|()| guard.remaining()).unwrap()).min();
    figure("350 locks with a ttl of 1 s after 3 s: the least time left", least);
    drop(guards);
    eventually("all are freed", 2 * SECOND, || locked_keys(&server).is_empty()).await;
}
