//! Connections and the runtimes they belong to.

use std::collections::HashSet;
use std::future::Future as _;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockBackend as _, LockError, LockErrorKind, LockManager, RedisStore, ReleaseOutcome};
use lock_store::{Attempt, Freed, Release};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, Stopwatch, limit};
use tokio::runtime::{Builder, Runtime};

use crate::redis_store::{acquire, claim, granted, release, store, token};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn clients(server: &RedisServer) -> usize {
    let list = server.command(&["CLIENT", "LIST"]);
    list.text().lines().filter(|line| line.contains("name=lock-core:")).count()
}

async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let watch = Stopwatch::start();
    while !holds() {
        assert!(watch.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
#[limit]
async fn a_unix_socket_serves_as_well() {
    let server = RedisServer::builder().with("unixsocket", "redis.sock").start();
    let socket = server.directory().join("redis.sock");
    let store = RedisStore::new(&format!("redis+unix://{}", socket.display())).unwrap();
    let claim_a = claim("lock:a");
    granted(&store, &claim_a).await;
    assert_eq!(release(&store, &claim_a).await, Freed::Released);
    assert!(format!("{store:?}").ends_with("redis.sock)"), "{store:?}");
}

#[test]
#[limit]
fn every_runtime_has_its_own_connection() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    let runtimes = [runtime(), runtime(), runtime()];
    for (n, runtime) in runtimes.iter().enumerate() {
        for _ in 0..3 {
            let claim = claim("lock:a");
            runtime.block_on(granted(&store, &claim));
            runtime.block_on(release(&store, &claim));
        }
        assert_eq!((store.connections(), clients(&server)), (n + 1, n + 1));
    }
    drop(runtimes);
    assert_eq!(store.connections(), 0, "a connection goes with its runtime");
    runtime().block_on(wait_for("the server sees them close", || clients(&server) == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn first_users_share_one_connection() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { granted(&store, &claim(&format!("lock:{n}"))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stats = server.command(&["INFO", "stats"]);
    assert_eq!((store.connections(), clients(&server)), (1, 1), "{}", stats.text());
}

#[test]
#[limit]
fn a_runtime_that_ends_in_the_middle_hangs_and_leaks_nothing() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    for round in 0..20_u64 {
        let dying = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for n in 0..20 {
            let store = Arc::clone(&store);
            dying.spawn(async move { acquire(&store, &claim(&format!("lock:{n}"))).await });
        }
        if round % 2 == 0 {
            dying.block_on(async { tokio::time::sleep(Duration::from_micros(100 * round)).await });
        }
        dying.shutdown_timeout(Duration::from_secs(60));
        assert_eq!(store.connections(), 0, "round {round}");
    }
    let runtime = runtime();
    runtime.block_on(granted(&store, &claim("lock:after")));
    drop(store);
    runtime.block_on(wait_for("the server sees them close", || clients(&server) == 0));
}

#[test]
#[limit]
fn a_caller_is_told_when_the_connecting_runtime_ends() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    proxy.black_hole(Direction::ToClient);
    let store = Arc::new(RedisStore::new(&proxy.url()).unwrap());
    let dying = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting = {
        let _context = dying.enter();
        let store = Arc::clone(&store);
        // Polled here, while its connection is being opened there.
        async move { acquire(&store, &claim("lock:a")).await }
    };
    let handle = dying.handle().clone();
    let thread = std::thread::spawn(move || handle.block_on(waiting));
    while proxy.connections() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    dying.shutdown_background();
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("shutting down"), "{error}");
    runtime().block_on(wait_for("the connection is forgotten", || store.connections() == 0));
}

#[test]
#[limit]
fn runtimes_without_io_and_no_runtime_at_all_are_told_so() {
    let server = RedisServer::start();
    let store = store(&server);
    let bare = Builder::new_current_thread().build().unwrap();
    let error = bare.block_on(acquire(&store, &claim("lock:a"))).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("enable_all()"), "{error}");
    assert_eq!(store.connections(), 0);

    let claim_a = claim("lock:a");
    let mut outside = std::pin::pin!(acquire(&store, &claim_a));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let std::task::Poll::Ready(answer) = outside.as_mut().poll(&mut context) else { panic!("it waits for nothing") };
    assert!(answer.unwrap_err().to_string().contains("outside of a tokio runtime"));
}

#[tokio::test]
#[limit]
async fn a_server_that_comes_back_is_found_again() {
    let mut server = RedisServer::start();
    let store = store(&server);
    granted(&store, &claim("lock:a")).await;
    server.kill();
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let error = acquire(&store, &claim("lock:a")).await.unwrap_err();
        kinds.push(error.kind());
        assert!(error.to_string().contains(&server.port().to_string()), "{error}");
    }
    assert_eq!(kinds, [LockErrorKind::Unavailable; 3]);
    server.restart();
    granted(&store, &claim("lock:a")).await;
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(1));
}

#[tokio::test]
#[limit]
async fn a_server_that_was_never_there_is_unavailable() {
    let mut server = RedisServer::start();
    server.kill();
    let store = store(&server);
    let error = acquire(&store, &claim("lock:a")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("check that the server runs"), "{error}");
    assert_eq!(store.connections(), 0);
}

/// As PostgreSQL does, and a port for TLS.
#[tokio::test]
#[limit]
async fn a_service_that_hangs_up_on_the_greeting_is_perhaps_no_redis() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| std::io::Read::read(&mut stream, &mut [0; 1024]));
        }
    });
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    let text = error.to_string();
    for part in ["ended the connection at the greeting", "rediss://", "check that the server runs"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
#[limit]
async fn a_dead_path_is_given_up_within_a_second_or_two() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let store = RedisStore::new(&proxy.url()).unwrap();
    granted(&store, &claim("warm")).await;
    proxy.black_hole(Direction::ToServer);
    let claim_a = claim("lock:a");
    // Callers give up one after the other, as the machinery does after a command's timeout.
    for _ in 0..6 {
        let patient = tokio::time::timeout(Duration::from_millis(200), acquire(&store, &claim_a));
        assert!(patient.await.is_err());
    }
    let late = acquire(&store, &claim_a);
    let heal = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.resume();
    };
    let (attempt, ()) = tokio::join!(late, heal);
    token(attempt.unwrap());
    // One new connection, or more if the machine kept that one waiting too.
    assert!(proxy.connections() >= 2, "the dead path was not given up");
}

#[tokio::test]
#[limit]
async fn cancelled_callers_do_not_cost_the_connection() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    granted(&store, &claim("warm")).await;
    let watch = Stopwatch::start();
    for n in 0..50 {
        let store = Arc::clone(&store);
        let task = tokio::spawn(async move { acquire(&store, &claim(&format!("lock:{n}"))).await });
        if n % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
    }
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    granted(&store, &claim("after")).await;
    let opened = server.command(&["CLIENT", "LIST"]);
    // A second without an answer is a reason for a new connection, whatever the cause.
    let excused = watch.stalled() > Duration::from_millis(500);
    assert!(clients(&server) == 1 || excused, "{}", opened.text());
    let first_id = opened.text().lines().next().unwrap().to_owned();
    assert!(first_id.contains("name=lock-core"), "{first_id}");
}

/// Asks until there is an answer. A second without one gives a connection up, whatever the cause, and says nothing of the lock: so the
/// same claim asks again, as the machinery does.
async fn until_answered<T, F: Future<Output = Result<T, LockError>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}"),
        }
    }
}

#[tokio::test]
#[limit]
async fn a_herd_of_attempts_takes_every_key_and_leaves_none() {
    let server = RedisServer::start();
    let store = Arc::new(store(&server));
    let tasks: Vec<_> = (0..2_000)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let claim = claim(&format!("lock:{}", n % 50));
                let attempt = until_answered(|| acquire(&store, &claim)).await;
                let granted = matches!(attempt, Attempt::Granted { .. });
                if granted {
                    let end = Release::new(claim);
                    until_answered(|| store.release(&end)).await;
                }
                granted.then_some(n % 50)
            })
        })
        .collect();
    let mut taken = HashSet::new();
    for task in tasks {
        taken.extend(task.await.unwrap());
    }
    assert_eq!(taken.len(), 50);
    let left = (0..50).filter(|n| server.command(&["EXISTS", &format!("lock:{n}")]) == Reply::Int(1)).count();
    assert_eq!(left, 0);
}

#[test]
#[limit]
fn a_release_in_the_background_outlives_its_runtime() {
    let server = RedisServer::start();
    let locks = LockManager::builder(store(&server)).release_in_background().build().unwrap();
    for n in 0..20 {
        let short = runtime();
        let released = short.block_on(async {
            let guard = locks.lock("lock:a").with_wait(Duration::from_secs(20)).await.unwrap();
            // The driver that sends this makes progress only if the runtime runs it, which happens
            // in every other round.
            let released = guard.release().await.unwrap();
            for _ in 0..n % 2 {
                tokio::task::yield_now().await;
            }
            released
        });
        assert_eq!(released, ReleaseOutcome::InBackground);
    }
    // The wait is shorter than the lease, so the last lock was given back too.
    drop(runtime().block_on(async { locks.lock("lock:a").with_wait(Duration::from_secs(20)).await.unwrap() }));
}

#[test]
#[limit]
fn a_release_in_the_background_is_not_held_up_by_a_runtime_that_is_blocked() {
    let server = RedisServer::start();
    let locks = LockManager::builder(store(&server)).release_in_background().build().unwrap();
    runtime().block_on(async {
        let guard = locks.lock("lock:a").with_ttl(Duration::from_secs(12)).await.unwrap();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::InBackground));
        // No other task runs here until the keeper has released the lock over its own connection.
        while server.command(&["EXISTS", "lock:a"]) == Reply::Int(1) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let stats = server.command(&["INFO", "stats"]);
    assert!(stats.text().contains("expired_keys:0"), "its lease ended by itself");
}

#[tokio::test]
#[limit]
async fn a_release_in_the_background_waits_for_no_answer() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("lock:a").release_in_background().await.unwrap();
    server.pause();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::InBackground));
    server.resume();
    drop(locks.lock("lock:a").with_wait(Duration::from_secs(20)).await.unwrap());
}

#[tokio::test]
#[limit]
async fn connections_that_are_closed_as_they_open_are_opened_ever_less_often() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = LockManager::builder(RedisStore::new(&proxy.url()).unwrap()).build().unwrap();
    locks.lock("k").await.unwrap().release().await.unwrap();
    let opened = || {
        let stats = server.command(&["INFO", "stats"]);
        let line = stats.text().lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let (before, watch) = (opened(), Stopwatch::start());
    while watch.elapsed() < Duration::from_secs(3) {
        proxy.kill_connections();
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let count = opened() - before;
    // The keeper has two, with pauses of up to 20 ms, 40 ms and so on to a second.
    assert!(count < 60, "{count} connections in three seconds");
    // Then all is well again, at once for a caller.
    locks.lock("k").await.unwrap().release().await.unwrap();
}
