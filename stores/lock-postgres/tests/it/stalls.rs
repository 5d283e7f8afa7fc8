//! A server that is stopped in part, a change of the table that waits, and a pool of one session for two services.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{HolderInfo, LockBackend as _, LockManager, Renew};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Doctor as _, Inspector as _, Release};
use lock_testing::{PostgresServer, Stopwatch, freeze, limit, thaw};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, claim, on_runtime, pid, session};

const COUNT: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lock-postgres%'";

/// Every call queues behind a statement that waits for the whole table. No lock is lost within its lease, and the errors name both sessions.
#[test]
#[limit(120)]
fn a_change_of_the_table_that_waits_is_named_and_loses_nothing_within_a_lease() {
    on_runtime(async {
        let server = PostgresServer::start();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let lease = |key: &str| locks.lock(key).with_ttl(LONG).with_renew(Renew::Every(Duration::from_millis(200)));
        let mut held = Vec::new();
        for number in 0..5 {
            held.push(lease(&format!("held {number}")).await.unwrap());
        }
        let (long, owner, look) = (session(&server).await, session(&server).await, session(&server).await);
        let first = format!("session {}", pid(&long).await);
        long.batch_execute("BEGIN; SELECT FROM lock_core.lock LIMIT 1").await.unwrap();
        let alters = tokio::spawn(async move {
            owner
                .batch_execute(
                    "ALTER TABLE lock_core.lock ADD COLUMN extra int; ALTER TABLE lock_core.lock DROP COLUMN extra",
                )
                .await
        });
        let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'lock_core.lock'::regclass AND mode = 'AccessExclusiveLock'";
        while look.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        let (begun, mut most, mut named) = (Instant::now(), 0, false);
        while begun.elapsed() < Duration::from_secs(12) {
            let watch = Stopwatch::start();
            let error = lease("beside").with_wait(Duration::from_secs(2)).acquire().await.unwrap_err();
            watch.assert_within(Duration::from_secs(4), "the end of a wait of two seconds");
            named |= error.to_string().contains("whole table") && error.to_string().contains(&first);
            most = most.max(look.query_one(COUNT, &[]).await.unwrap().get::<_, i64>(0));
        }
        assert!(named && most <= 16, "it is named: {named}; sessions: {most}");
        long.batch_execute("COMMIT").await.unwrap();
        alters.await.unwrap().unwrap();
        let watch = Stopwatch::start();
        lease("beside").with_wait(LONG).acquire().await.unwrap().release().await.unwrap();
        watch.assert_within(Duration::from_secs(5), "a pair after the change");
        for guard in held {
            assert!(guard.ensure_held().is_ok());
            guard.release().await.unwrap();
        }
    });
}

#[test]
#[limit(120)]
fn two_services_share_a_pool_of_one_session() {
    on_runtime(async {
        let server = PostgresServer::start();
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        let pooler = server.pooler_of(1);
        let service = |name: &'static str| {
            let url = format!("{}?listen=127.0.0.1:{}", pooler.url(), server.port());
            tokio::spawn(async move {
                let locks = LockManager::connect(&url).await.unwrap();
                let lease = |key: String| {
                    locks
                        .lock(&*key)
                        .with_ttl(LONG)
                        .with_renew(Renew::Every(Duration::from_millis(200)))
                        .with_wait(LONG)
                };
                let mut held = Vec::new();
                for number in 0..5 {
                    held.push(lease(format!("{name} {number}")).acquire().await.unwrap());
                }
                let mut slowest = Duration::ZERO;
                for _ in 0..10 {
                    // A lock of this service alone, and a lock that both services take.
                    for key in [name, "of both"] {
                        let watch = Stopwatch::start();
                        lease(key.to_owned()).acquire().await.unwrap().release().await.unwrap();
                        slowest = slowest.max(watch.elapsed());
                    }
                }
                assert!(held.iter().all(|guard| guard.ensure_held().is_ok()), "{name}");
                slowest
            })
        };
        let (one, other) = (service("one"), service("other"));
        // The application itself has the only session again and again.
        let (user, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        while !(one.is_finished() && other.is_finished()) {
            user.batch_execute("BEGIN; SELECT pg_sleep(0.2); COMMIT").await.unwrap();
        }
        let slowest = one.await.unwrap().max(other.await.unwrap());
        println!("figure: the slowest pair of two services over one session: {slowest:?}");
        assert!(slowest < Duration::from_secs(8), "{slowest:?}");
    });
}

/// Which processes of the server are stopped.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    /// New sessions are accepted by the kernel, and nobody lets them in. Open ones go on.
    Postmaster,
    /// Open sessions do not answer, and new ones do.
    Sessions,
    All,
}

async fn calls(store: &PostgresStore) -> Vec<(&'static str, Duration)> {
    let own = claim("own", LONG);
    let mut request = AcquireRequest::new(own.clone(), HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    let mut took = Vec::new();
    for name in ["ping", "acquire", "renew", "release", "list", "doctor"] {
        let watch = Stopwatch::start();
        let ended = timeout(LONG, async {
            match name {
                "ping" => drop(store.ping().await),
                "acquire" => drop(store.try_acquire(&request).await),
                "renew" => drop(store.renew(std::slice::from_ref(&own)).await),
                "release" => drop(store.release(&Release::new(own.clone())).await),
                "list" => drop(store.scan("", 100, None).await),
                _ => drop(store.examine().await),
            }
        });
        assert!(ended.await.is_ok(), "{name} does not end");
        took.push((name, watch.elapsed()));
    }
    took
}

/// Each call ends by itself, and is answered again once the server goes on.
#[test]
#[limit(300)]
fn a_server_that_is_stopped_in_part_ends_every_call() {
    on_runtime(async {
        let server = PostgresServer::start();
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        let name = |number: usize| format!("stopped{number}");
        for (number, stopped) in [Stopped::Postmaster, Stopped::Sessions, Stopped::All].into_iter().enumerate() {
            let url = format!("{}?connect_timeout=1&application_name={}", server.url(), name(number));
            // With sessions that are open, and without.
            let [open, fresh] = [(); 2].map(|()| Arc::new(PostgresStore::new(&url).unwrap()));
            calls(&open).await;
            let postmaster = server.run("SELECT pg_read_file('postmaster.pid')").lines().next().unwrap().to_owned();
            let sessions =
                server.run(&format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{}'", name(number)));
            let mut pids: Vec<u32> = Vec::new();
            if !matches!(stopped, Stopped::Sessions) {
                pids.push(postmaster.parse().unwrap());
            }
            if !matches!(stopped, Stopped::Postmaster) {
                pids.extend(sessions.lines().map(|pid| pid.parse::<u32>().unwrap()));
            }
            pids.iter().copied().for_each(freeze);
            let [took, new] = [open, fresh].map(|store| tokio::spawn(async move { (calls(&store).await, store) }));
            let (took, new) = (took.await.unwrap(), new.await.unwrap());
            pids.into_iter().for_each(thaw);
            println!("figure: {stopped:?}: open {:?}, new {:?}", took.0, new.0);
            for (name, took) in took.0.iter().chain(&new.0) {
                assert!(*took < Duration::from_secs(25), "{stopped:?}: {name} took {took:?}");
            }
            if matches!(stopped, Stopped::Postmaster) {
                assert!(took.0[..5].iter().all(|(_, took)| *took < Duration::from_secs(8)), "open sessions go on");
            }
            for store in [took.1, new.1] {
                let watch = Stopwatch::start();
                while store.ping().await.is_err() {
                    watch.assert_within(LONG, "an answer after the server goes on");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
}
