//! A server that accepts and falls silent at some stage: every wait ends by itself.

use std::sync::Arc;
use std::time::Duration;

use lock_core::testing::{Direction, EventLog, FaultProxy, PostgresServer, Stopwatch, inbox, limit};
use lock_core::{AcquireRequest, Doctor as _, HolderInfo, Inspector as _, LockBackend as _, LockManager, Release};
use lock_postgres::PostgresStore;
use tokio::time::{sleep, timeout};

use crate::support::{LONG, claim, granted, on_runtime, session};

/// Between the stages that are tried: a few in each of them.
const STEP: usize = 83;

/// The server's messages until a session is open, has taken a lock and has listened.
const ALL: usize = 1400;

/// The longest time of a call that opens a session first: its stages have a second each by `connect_timeout`, and its own answer ten.
const MOST: Duration = Duration::from_secs(16);

#[derive(Clone, Copy, Debug)]
enum Op {
    Ping,
    Acquire,
    Renew,
    Release,
    List,
    Doctor,
    Listen,
}

async fn run(op: Op, store: &PostgresStore) {
    let claim = claim("silent", LONG);
    match op {
        Op::Ping => drop(store.ping().await),
        Op::Acquire => {
            let request = AcquireRequest::new(claim, HolderInfo::new("here", 1, "test"));
            drop(store.try_acquire(&request).await);
        }
        Op::Renew => drop(store.renew(&[claim]).await),
        Op::Release => drop(store.release(&Release::new(claim)).await),
        Op::List => drop(store.scan("", 100, None).await),
        Op::Doctor => drop(store.examine().await),
        Op::Listen => {
            let (inbox, _reports) = inbox(EventLog::default());
            // It has as long again until it finds that the session does not answer.
            tokio::select! {
                _ = store.drive(inbox.clone()) => {}
                () = async { while !inbox.is_open() { sleep(Duration::from_millis(20)).await } } => {}
            }
        }
    }
}

#[test]
#[limit(300)]
fn a_server_that_falls_silent_at_any_stage_ends_every_wait() {
    on_runtime(async {
        let server = Arc::new(PostgresServer::start());
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        for op in [Op::Ping, Op::Acquire, Op::Renew, Op::Release, Op::List, Op::Doctor, Op::Listen] {
            // For a new session, and for an open one.
            let stages = (0..ALL).step_by(STEP).flat_map(|bytes| [(bytes, false), (bytes, true)]);
            let tried = stages.map(|(bytes, open)| {
                let port = server.port();
                tokio::spawn(async move {
                    let proxy = FaultProxy::start(port);
                    let url = format!("postgres://test@127.0.0.1:{}/postgres?connect_timeout=1", proxy.port());
                    let store = PostgresStore::new(&url).unwrap();
                    if open {
                        let _ = store.ping().await;
                    }
                    proxy.silent_after(Direction::ToClient, bytes);
                    let watch = Stopwatch::start();
                    assert!(
                        timeout(LONG, run(op, &store)).await.is_ok(),
                        "{op:?} does not end after {bytes} bytes, open: {open}"
                    );
                    watch.elapsed()
                })
            });
            let (tried, mut slowest): (Vec<_>, _) = (tried.collect(), Duration::ZERO);
            for one in tried {
                slowest = slowest.max(one.await.unwrap());
            }
            println!("figure: {op:?} at a server that falls silent: {slowest:?} at most");
            assert!(slowest < MOST, "{op:?}: {slowest:?}");
        }
    });
}

#[test]
#[limit]
fn a_store_that_is_dropped_leaves_a_server_that_does_not_answer() {
    on_runtime(async {
        let server = PostgresServer::start();
        let proxy = FaultProxy::start(server.port());
        let url = format!("postgres://test@127.0.0.1:{}/postgres?application_name=dropped", proxy.port());
        let store = Arc::new(PostgresStore::new(&url).unwrap());
        granted(&store, &claim("before", LONG)).await;
        proxy.black_hole(Direction::ToClient);
        let waits = Arc::clone(&store);
        let asks = tokio::spawn(async move { waits.ping().await });
        let look = session(&server).await;
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dropped'";
        assert!(look.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0);
        sleep(Duration::from_millis(200)).await;
        asks.abort();
        let _ = asks.await;
        drop(store);
        let watch = Stopwatch::start();
        while look.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        watch.assert_within(Duration::from_secs(4), "the end of all sessions");
    });
}

#[test]
#[limit(200)]
fn twenty_that_start_at_once_with_scram_under_load_all_take_their_locks() {
    on_runtime(async {
        let server = PostgresServer::start();
        let rules = "host all test all trust\nlocal all test trust\nhost all all all scram-sha-256";
        server.run("SET password_encryption = 'scram-sha-256'; CREATE ROLE app LOGIN SUPERUSER PASSWORD 'word'");
        let file = server.run("SHOW hba_file");
        let lines: Vec<String> = rules.lines().map(|line| format!("('{line}')")).collect();
        server.run(&format!("COPY (VALUES {}) TO '{file}'; SELECT pg_reload_conf()", lines.join(", ")));
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        let busy = Arc::new(());
        for _ in 0..6 {
            let busy = Arc::downgrade(&busy);
            std::thread::spawn(move || while busy.strong_count() > 0 {});
        }
        let url = server.url().replace("test@", "app:word@");
        let started: Vec<_> = (0..20)
            .map(|number| {
                let url = url.clone();
                tokio::spawn(async move {
                    let locks = LockManager::builder_for(&url)?.build()?;
                    let watch = Stopwatch::start();
                    let guard = locks.lock(format!("own {number}").as_str()).with_wait(2 * LONG).acquire().await?;
                    let took = watch.elapsed();
                    guard.release().await?;
                    Ok::<_, lock_core::LockError>((locks, took))
                })
            })
            .collect();
        let mut slowest = Duration::ZERO;
        let mut open = Vec::new();
        for one in started {
            let (locks, took) = one.await.unwrap().unwrap();
            slowest = slowest.max(took);
            open.push(locks);
        }
        println!("figure: the slowest first lock of twenty with SCRAM under load: {slowest:?}");
    });
}
