//! Many callers that want the same key, in one process, in several, and in other languages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lock_core::{LockErrorKind, LockEvent, LockEventKind, LockManager, MemoryStore, ReleaseOutcome, Wait};
use lock_testing::{EventLog, RedisServer, Reply, Stopwatch, limit};

use crate::support::{
    LONG, MS, SECOND, Scratch, all_told, eventually, exists, expired, figure, locked_keys, locks, lost,
    nothing_is_left, take, watched,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn five_hundred_waiters_are_all_served() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    // Five managers, as five processes.
    let managers: Vec<_> = (0..5).map(|_| locks(&server)).collect();
    let recorder = Arc::new(scratch.recorder());
    for locks in &managers {
        locks.observe(scratch.recorder());
    }
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..500)
        .map(|task| {
            let (locks, recorder) = (managers[task % 5].clone(), Arc::clone(&recorder));
            tokio::spawn(async move {
                let guard = locks.lock("k").with_wait(LONG).await.unwrap();
                let waited = watch.elapsed();
                tokio::task::yield_now().await;
                recorder.release(guard.key(), guard.token());
                guard.release().await.unwrap();
                waited
            })
        })
        .collect();
    let mut longest = MS;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    figure("500 waiters of 5 managers on one key: the longest wait", longest);
    let verdict = scratch.verdict();
    assert_eq!((verdict.grants, verdict.violations), (500, vec![]));
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
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
                let (budget, watch) = (4 * SECOND + task * MS, Stopwatch::start());
                let error = locks.lock("k").with_wait(budget).await.unwrap_err();
                assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
                assert!(error.holder().is_some(), "{error}");
                watch.assert_within(budget, "giving up");
                let over = watch.elapsed().checked_sub(budget);
                over.expect("it gave up before its budget was spent")
            })
        })
        .collect();
    let mut worst = MS;
    for task in tasks {
        worst = worst.max(task.await.unwrap());
    }
    figure("500 waiters that time out: most over the budget", worst);
    guard.ensure_held().unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    // The last waiter may be granted the lock before its place is given up, and then gives it back.
    nothing_is_left(&server).await;
    assert_eq!(expired(&server), 0, "it was not given back");
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_classic_client_excludes_us_and_we_exclude_it() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let events = EventLog::default();
    locks.observe(events.clone());
    let classic = || server.command(&["SET", "k", "some-uuid", "NX", "PX", "600000"]);
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
    let busy = locks.lock("k").without_waiting().await.unwrap_err();
    assert_eq!(busy.kind(), LockErrorKind::Busy);
    let holder = busy.holder().unwrap();
    assert_eq!((holder.site(), &holder.info, holder.owner, holder.token), ("foreign", &None, None, None));
    assert_eq!(locks.holder("k").await.unwrap().unwrap().site(), "foreign");
    server.command(&["PEXPIRE", "k", "700"]);
    let watch = Stopwatch::start();
    let guard = take(&locks, "k").await;
    figure("granted after a classic lease of 0.7 s", watch.elapsed());
    watch.assert_within(950 * MS, "a grant after a classic lease");
    assert_eq!(classic(), Reply::Nil);
    let compare_and_delete =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    assert_eq!(server.command(&["EVAL", compare_and_delete, "1", "k", "some-uuid"]), Reply::Int(0));
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
    // The waiter polls, and so notices that the lock was released early.
    let contended = events.count("Contended");
    let waiting = tokio::spawn(async move { locks.lock("k").await });
    eventually("it waits", || events.count("Contended") > contended).await;
    assert_eq!(server.command(&["EVAL", compare_and_delete, "1", "k", "some-uuid"]), Reply::Int(1));
    let watch = Stopwatch::start();
    let guard = waiting.await.unwrap().unwrap();
    watch.assert_within(250 * MS, "noticing that a classic client has released");
    guard.release().await.unwrap();
}

/// An error must not name a process that has done its work.
#[tokio::test]
#[limit]
async fn who_released_a_lock_that_stays_taken_is_not_said_to_hold_it() {
    let server = RedisServer::start();
    let in_memory = MemoryStore::new();
    let of_memory = || LockManager::builder(in_memory.clone()).build().unwrap();
    for [first, second] in [[locks(&server), locks(&server)], [of_memory(), of_memory()]] {
        let request = first.lock("k").with_site("night::report").with_min_hold(7200 * SECOND);
        request.await.unwrap().release().await.unwrap();
        for locks in [&first, &second] {
            let late = locks.lock("k").with_wait(SECOND).await.unwrap_err();
            let busy = locks.lock("k").without_waiting().await.unwrap_err();
            for (error, kind) in [(late, LockErrorKind::Timeout), (busy, LockErrorKind::Busy)] {
                let text = error.to_string();
                let says = ["released by night::report (pid ", ", and kept for another 1 h 59 min (its min_hold"];
                assert!(error.kind() == kind && says.iter().all(|part| text.contains(part)), "{text}");
            }
        }
    }
}

#[tokio::test]
#[limit]
async fn a_guard_of_this_process_is_said_to_be_one() {
    let server = RedisServer::start();
    let (here, there) = (locks(&server), locks(&server));
    let guard = here.lock("k").with_site("shop::charge").with_ttl(300 * SECOND).await.unwrap();
    let own = here.lock("k").with_wait(100 * MS).await.unwrap_err().to_string();
    assert!(own.contains("of this process, lease ends in ") && own.contains(" min "), "{own}");
    let other = there.lock("k").with_wait(SECOND).await.unwrap_err().to_string();
    assert!(other.contains("held by shop::charge (pid ") && !other.contains("of this process"), "{other}");
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_classic_lock_without_a_lease_is_waited_for_like_any_other() {
    let server = RedisServer::start();
    let locks = locks(&server);
    server.command(&["SET", "k", "for ever"]);
    let late = locks.lock("k").with_wait(3 * SECOND).await.unwrap_err();
    assert_eq!((late.kind(), late.holder().unwrap().ttl_left), (LockErrorKind::Timeout, None));
    assert!(late.to_string().contains("without a lease; it never expires"), "{late}");
    let busy = locks.lock("k").without_waiting().await.unwrap_err();
    assert!(busy.to_string().contains("without a lease; it never expires"), "{busy}");
    let waiting = tokio::spawn(async move { locks.lock("k").with_wait(Wait::Forever).await });
    tokio::time::sleep(100 * MS).await;
    server.command(&["DEL", "k"]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn two_guards_of_one_manager_exclude_each_other_and_a_stale_one_harms_nobody() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let stale = locks.lock("k").with_ttl(3 * SECOND).with_renew(lock_core::Renew::Off).await.unwrap();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    lost(&stale).await;
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
#[limit]
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
#[limit]
async fn one_budget_covers_the_local_queue_and_the_server() {
    let server = RedisServer::start();
    let (ours, theirs) = (locks(&server), locks(&server));
    let guard = take(&theirs, "k").await;
    let first = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock("k").with_wait(2 * SECOND).await }
    });
    tokio::time::sleep(20 * MS).await;
    // It spends half of its budget behind the first caller, the other half at the server.
    let watch = Stopwatch::start();
    let second = ours.lock("k").with_wait(4 * SECOND).await.unwrap_err();
    watch.assert_within(4 * SECOND, "giving up");
    assert!(watch.elapsed() >= 4 * SECOND, "it gave up before its budget was spent");
    assert_eq!(second.kind(), LockErrorKind::Timeout);
    assert_eq!(first.await.unwrap().unwrap_err().kind(), LockErrorKind::Timeout);
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn many_locks_of_one_manager_are_all_renewed() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let renewed: Arc<Mutex<HashMap<u64, u32>>> = Arc::default();
    let counts = Arc::clone(&renewed);
    locks.observe(move |event: &LockEvent<'_>| {
        if matches!(event.kind, LockEventKind::Renewed { .. }) {
            *counts.lock().unwrap().entry(event.attempt).or_default() += 1;
        }
    });
    let mut guards = Vec::new();
    for key in 0..350 {
        guards.push(watched(&locks, &format!("k{key}")).await.unwrap());
    }
    let each_thrice = || {
        let renewed = renewed.lock().unwrap();
        renewed.len() == 350 && renewed.values().all(|count| *count >= 3)
    };
    let took = eventually("each is renewed three times", each_thrice).await;
    figure("350 locks, until each was renewed three times, every 200 ms", took);
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert_eq!(locked_keys(&server), [""; 0]);
}
