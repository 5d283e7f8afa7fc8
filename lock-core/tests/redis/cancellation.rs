//! Callers that go away in the middle: no key stays behind, whatever they were waiting for.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, LossReason};
use lock_testing::{EventLog, RedisServer, Stopwatch, limit};
use tokio::runtime::Builder;

use crate::support::{
    LONG, MS, SECOND, all_told, cut_after, eventually, exists, expired, figure, locked_keys, locks, nothing_is_left,
    seed, take, warm,
};

#[tokio::test]
#[limit]
async fn a_stalled_server_executes_no_acquire_of_a_caller_that_has_gone() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    for round in 0..12_u32 {
        let key = format!("k{round}");
        server.pause();
        let acquire = locks.lock(key.as_str()).with_ttl(6 * SECOND).acquire();
        // Given up at different moments, around the command's timeout of 1 s.
        assert!(tokio::time::timeout((50 + 120 * round) * MS, acquire).await.is_err());
        server.resume();
        nothing_is_left(&server).await;
    }
    tokio::time::sleep(SECOND).await;
    nothing_is_left(&server).await;
    assert_eq!(expired(&server), 0, "some were not undone, and ended by themselves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn two_thousand_acquires_cut_at_random_polls_leave_nothing() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let mut random = fastrand::Rng::with_seed(seed());
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (locks, mut random) = (locks.clone(), random.fork());
            tokio::spawn(async move {
                let mut granted = 0;
                for _ in 0..40 {
                    let key = format!("k{}", random.u8(0..20));
                    let mut acquire = pin!(locks.lock(key).with_ttl(LONG).with_wait(LONG).acquire());
                    let mut polls = random.u8(0..6);
                    let cut = std::future::poll_fn(|cx| {
                        if polls == 0 {
                            return Poll::Ready(None);
                        }
                        polls -= 1;
                        acquire.as_mut().poll(cx).map(Some)
                    })
                    .await;
                    granted += usize::from(matches!(cut, Some(Ok(_))));
                    if let Some(Err(error)) = cut {
                        panic!("{error}");
                    }
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    figure("of 2,000 acquires cut at random polls were granted", granted);
    figure("until the last was undone", nothing_is_left(&server).await);
    all_told(&events).await;
}

/// Covers every await point: each acquire is dropped after one more poll than the one before, from
/// none to far more than it needs; there are two managers, so that every wait is for another
/// process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn ten_thousand_acquires_cut_at_every_await_point_leave_nothing() {
    let server = RedisServer::start();
    let managers = [warm(&server.url()).await, warm(&server.url()).await];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..40_usize {
        let locks = managers[task % 2].clone();
        tasks.spawn(async move {
            let (mut granted, mut deepest) = (0, 0);
            for round in 0..250_usize {
                let key = format!("k{}", (task / 2 + round) % 4);
                let mut acquire = pin!(locks.lock(key).with_ttl(LONG).with_wait(LONG).acquire());
                match cut_after((task + round) % 12, acquire.as_mut()).await {
                    (Some(Ok(guard)), _) => {
                        granted += 1;
                        drop(guard);
                    }
                    (Some(Err(error)), _) => panic!("{error}"),
                    (None, polls) => deepest = deepest.max(polls),
                }
            }
            (granted, deepest)
        });
    }
    let (mut granted, mut deepest) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        let (more, polls) = task.unwrap();
        (granted, deepest) = (granted + more, deepest.max(polls));
    }
    figure("of 10,000 acquires cut at every await point were granted; the deepest cut", (granted, deepest));
    // This covers keys and queue entries. No lease runs out before this.
    figure("until the last was undone", nothing_is_left(&server).await);
}

#[test]
#[limit]
fn runtimes_shut_down_in_the_middle_leave_nothing() {
    let server = RedisServer::start();
    let outside = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = outside.block_on(warm(&server.url()));
    for round in 0..30_u32 {
        let dying = if round % 2 == 0 {
            Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
        } else {
            Builder::new_current_thread().enable_all().build().unwrap()
        };
        for task in 0..20 {
            let locks = locks.clone();
            dying.spawn(async move {
                let guard = locks.lock(format!("k{}", task % 7)).with_ttl(LONG).await;
                tokio::time::sleep(MS).await;
                drop(guard);
            });
        }
        dying.block_on(async { tokio::time::sleep(Duration::from_micros(u64::from(round) * 150)).await });
        dying.shutdown_background();
    }
    outside.block_on(async {
        let took = nothing_is_left(&server).await;
        figure("until everything of 30 dead runtimes was undone", took);
        for key in 0..7 {
            take(&locks, &format!("k{key}")).await.release().await.unwrap();
        }
    });
}

#[test]
#[limit]
fn a_guard_dropped_outside_of_every_runtime_frees_its_key() {
    let server = RedisServer::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, guards) = runtime.block_on(async {
        let locks = warm(&server.url()).await;
        let mut guards = Vec::new();
        for key in ["here", "thread", "dead runtime"] {
            guards.push(locks.lock(key).with_ttl(LONG).await.unwrap());
        }
        (locks, guards)
    });
    let [here, thread, dead] = <[_; 3]>::try_from(guards).unwrap();
    drop(here);
    std::thread::spawn(move || drop(thread)).join().unwrap();
    drop(runtime);
    drop(dead);
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(eventually("all are freed", || locked_keys(&server).is_empty()));
    drop(locks);
}

#[test]
#[limit]
fn a_guard_dropped_while_its_runtime_shuts_down_frees_its_key() {
    let server = RedisServer::start();
    let outside = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = outside.block_on(warm(&server.url()));
    for workers in [1, 2] {
        let dying = Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
        for key in 0..10 {
            let locks = locks.clone();
            dying.spawn(async move {
                let _guard = locks.lock(format!("k{key}")).with_ttl(LONG).await;
                std::future::pending::<()>().await;
            });
        }
        outside.block_on(eventually("all are held", || locked_keys(&server).len() == 10));
        drop(dying);
        outside.block_on(eventually("all are freed", || locked_keys(&server).is_empty()));
    }
}

#[tokio::test]
#[limit]
async fn a_release_that_is_dropped_half_way_is_finished() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    for polls in 0..4 {
        let guard = locks.lock("k").with_ttl(LONG).await.unwrap();
        {
            let mut release = pin!(guard.release());
            for _ in 0..polls {
                let _ = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                tokio::task::yield_now().await;
            }
        }
        eventually(&format!("freed after {polls} polls"), || !exists(&server, "k")).await;
    }
}

#[tokio::test]
#[limit]
async fn a_panic_in_the_body_frees_the_key() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let task = tokio::spawn({
        let locks = locks.clone();
        async move {
            locks
                .lock("k")
                .with_ttl(LONG)
                .run(async |_| -> Result<(), LockError> { panic!("expected in this test") })
                .await
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    let took = eventually("freed", || !exists(&server, "k")).await;
    figure("freed after a panic", took);
    eventually("told", || events.names().contains(&"Released")).await;
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn a_body_that_is_cancelled_frees_the_key() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let body = locks.lock("k").with_ttl(LONG).run(async |_| -> Result<(), LockError> { std::future::pending().await });
    assert!(tokio::time::timeout(200 * MS, body).await.is_err());
    eventually("freed", || !exists(&server, "k")).await;
}

#[tokio::test]
#[limit]
async fn shutdown_frees_everything_and_tells_every_holder() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let mut guards = Vec::new();
    for key in 0..150 {
        guards.push(locks.lock(format!("k{key}")).with_ttl(LONG).await.unwrap());
    }
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("k0").with_wait(LONG).await }
    });
    tokio::time::sleep(50 * MS).await;
    let watch = Stopwatch::start();
    let report = locks.shutdown(LONG).await;
    figure("shutdown with 150 locks held", watch.elapsed());
    assert!(report.is_clean() && report.released == 150, "{report:?}");
    assert_eq!(locked_keys(&server), [""; 0]);
    for guard in &guards {
        assert_eq!(guard.lost().await, LossReason::ShutDown);
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    assert_eq!(locks.lock("new").await.unwrap_err().kind(), LockErrorKind::ShutDown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn shutdown_leaves_nothing_of_acquires_that_it_meets_half_way() {
    let server = RedisServer::start();
    for round in 0..20_u32 {
        let locks = warm(&server.url()).await;
        let tasks: Vec<_> = (0..40)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.lock(format!("k{}", task % 10)).with_ttl(LONG).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(u64::from(round) * 100)).await;
        let report = locks.shutdown(LONG).await;
        assert!(report.is_clean(), "round {round}: {report:?}");
        assert_eq!(locked_keys(&server), [""; 0], "round {round}");
        for task in tasks {
            match task.await.unwrap() {
                Ok(guard) => assert_eq!(guard.ensure_held().unwrap_err().loss_reason(), Some(LossReason::ShutDown)),
                Err(error) => assert_eq!(error.kind(), LockErrorKind::ShutDown, "{error}"),
            }
        }
        assert_eq!(locked_keys(&server), [""; 0], "round {round}");
    }
}

#[tokio::test]
#[limit]
async fn shutdown_says_what_it_could_not_free() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let _guard = take(&locks, "k").await;
    server.pause();
    let watch = Stopwatch::start();
    let report = locks.shutdown(300 * MS).await;
    watch.assert_within(300 * MS, "a shutdown within 300 ms");
    assert!(watch.elapsed() >= 300 * MS, "it gave up too early");
    server.resume();
    assert!(!report.is_clean());
    assert_eq!(report.unreleased.iter().map(lock_core::LockKey::as_str).collect::<Vec<_>>(), ["k"]);
}

#[tokio::test]
#[limit]
async fn dropping_the_manager_does_not_hang_on_a_dead_server() {
    let server = RedisServer::start();
    let locks: LockManager = locks(&server);
    let guard = take(&locks, "k").await;
    server.pause();
    drop(guard);
    let watch = Stopwatch::start();
    drop(locks);
    watch.assert_within(250 * MS, "dropping the last handle");
    server.resume();
}
