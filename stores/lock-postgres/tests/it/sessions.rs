//! The store's sessions at the server: a locked row, a server that is stopped, a pooler that is small, a user with odd settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{FencingToken, HolderInfo, LockBackend as _, LockError, LockErrorKind, LockKey, LockManager, Renew};
use lock_postgres::PostgresStore;
use lock_store::{
    AcquireRequest, Attempt, Blocked, BlockedNotes as _, Freed, JobRecords as _, JobRun, Release, Renewal, Ticket,
};
use lock_testing::{EventLog, PostgresServer, Stopwatch, limit};
use tokio::time::{Instant, sleep};

use crate::support::{LONG, claim, granted, on_runtime, session};

/// How many sessions a process has at most, with those that the server has not ended yet.
const SESSIONS: i64 = 16;

const COUNT: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lock-postgres%'";

#[test]
#[limit(180)]
fn a_locked_row_delays_its_own_lock_and_no_other() {
    on_runtime(async {
        let server = PostgresServer::start();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let events = EventLog::default();
        locks.observe(events.clone());
        let lease = |key: &str| locks.lock(key).with_ttl(Duration::from_secs(6)).with_renew(Renew::Auto);
        // One of the locks that are held has its row locked, and so has a key that nobody holds.
        let kept = lease("kept").await.unwrap();
        lease("wanted").await.unwrap().release().await.unwrap();
        let mut held = Vec::new();
        for number in 0..20 {
            held.push(lease(&format!("held {number}")).await.unwrap());
        }
        let (user, look) = (session(&server).await, session(&server).await);
        user.batch_execute("BEGIN; SELECT FROM lock_core.lock WHERE key IN ('kept', 'wanted') FOR UPDATE")
            .await
            .unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let wanted = lease("wanted").with_wait(LONG);
                tokio::spawn(async move { wanted.acquire().await.unwrap().release().await.unwrap() })
            })
            .collect();
        let (begun, mut slowest, mut most) = (Instant::now(), Duration::ZERO, 0);
        for number in 0.. {
            if begun.elapsed() > Duration::from_secs(20) {
                break;
            }
            let before = Instant::now();
            let beside = lease(&format!("beside {number}")).with_wait(LONG).acquire().await.unwrap();
            beside.release().await.unwrap();
            slowest = slowest.max(before.elapsed());
            most = most.max(look.query_one(COUNT, &[]).await.unwrap().get::<_, i64>(0));
            sleep(Duration::from_millis(50)).await;
        }
        println!("figure: the slowest pair beside a locked row: {slowest:?}; sessions: {most}");
        let lost: Vec<_> =
            held.iter().filter(|guard| guard.ensure_held().is_err()).map(|guard| guard.key().to_string()).collect();
        assert!(lost.is_empty(), "lost for another's row: {lost:?}");
        assert!(kept.ensure_held().is_err(), "nothing could renew this one for 20 s");
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        assert!(most <= SESSIONS, "{most}");
        user.batch_execute("ROLLBACK").await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    });
}

#[test]
#[limit]
fn a_locked_row_delays_no_other_of_its_batch_nor_of_its_store() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = Arc::new(PostgresStore::new(&server.url()).unwrap());
        let held: Vec<_> = ["a", "locked", "z"].map(|key| claim(key, LONG)).into();
        let more: Vec<_> = (0..8).map(|number| claim(&format!("locked {number}"), LONG)).collect();
        for claim in held.iter().chain(&more) {
            granted(&store, claim).await;
        }
        let user = session(&server).await;
        user.batch_execute("BEGIN; SELECT FROM lock_core.lock WHERE key LIKE 'locked%' FOR UPDATE").await.unwrap();
        // Its connection is opened with the first lock.
        while server.run(COUNT).parse::<i64>().unwrap() < 2 {}
        for round in 0..3 {
            let answers = store.renew(&held).await;
            assert!(answers[0] == Ok(Renewal::Renewed) && answers[2] == Ok(Renewal::Renewed), "{round}: {answers:?}");
            assert!(
                answers[1].as_ref().is_err_and(LockError::is_transient),
                "{round}: unknown, and not lost: {answers:?}"
            );
        }
        // More calls for locked rows than there are connections, again and again.
        let done = Arc::new(AtomicBool::new(false));
        let askers: Vec<_> = more
            .into_iter()
            .map(|locked| {
                let (store, done) = (Arc::clone(&store), Arc::clone(&done));
                tokio::spawn(async move {
                    while !done.load(Ordering::Relaxed) {
                        let mut request = AcquireRequest::new(locked.clone(), HolderInfo::new("here", 1, "test"));
                        request.execute_within = LONG;
                        let _ = store.try_acquire(&request).await;
                    }
                })
            })
            .collect();
        let look = session(&server).await;
        let count = format!("{COUNT} AND wait_event_type = 'Lock'");
        let waiting = async || look.query_one(&count, &[]).await.unwrap().get::<_, i64>(0);
        // Until each of the rows is known to be locked, several connections may wait for them.
        while waiting().await != 1 {}
        sleep(Duration::from_secs(3)).await;
        for number in 0..40 {
            granted(&store, &claim(&format!("beside {number}"), LONG)).await;
            // A stalled server may still end one wait when the next has begun.
            let watch = Stopwatch::start();
            while waiting().await > 1 {
                watch.assert_within(Duration::from_secs(2), "one connection for locked rows, the others for the rest");
            }
        }
        done.store(true, Ordering::Relaxed);
        user.batch_execute("ROLLBACK").await.unwrap();
        for asker in askers {
            asker.await.unwrap();
        }
    });
}

#[test]
#[limit(120)]
fn a_primary_that_is_stopped_is_left_for_the_promoted_standby() {
    on_runtime(async {
        let primary = PostgresServer::start();
        let standby = primary.standby("near", primary.port());
        while primary.run("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "1" {}
        // The primary first, so that each new session meets it before the standby.
        let url = format!("postgres://test@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port(), standby.port());
        let locks = LockManager::connect(&url).await.unwrap();
        locks.lock("before").with_ttl(LONG).await.unwrap().release().await.unwrap();
        primary.pause(true);
        standby.promote();
        let watch = Stopwatch::start();
        let _held = locks.lock("open sessions").with_wait(LONG).acquire().await.unwrap();
        let open = watch.elapsed();
        let watch = Stopwatch::start();
        let fresh = LockManager::connect(&url).await.unwrap();
        let _new = fresh.lock("new sessions").with_wait(LONG).acquire().await.unwrap();
        let new = watch.elapsed();
        println!("figure: a grant by the new primary, over open sessions {open:?}, over new ones {new:?}");
        primary.pause(false);
        assert!(open < Duration::from_secs(4) && new < Duration::from_secs(2), "open {open:?}, new {new:?}");
    });
}

#[test]
#[limit(300)]
fn managers_that_start_together_do_not_stall_a_small_pool() {
    on_runtime(async {
        for size in [1, 3, 5, 20] {
            let server = PostgresServer::start();
            PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
            let pooler = server.pooler_of(size);
            let (user, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let url = pooler.url();
            let managers: Vec<_> = (0..30)
                .map(|number| {
                    let url = url.clone();
                    tokio::spawn(async move {
                        let locks = LockManager::connect(&url).await?;
                        locks
                            .lock(format!("mine {number}").as_str())
                            .with_wait(LONG)
                            .acquire()
                            .await?
                            .release()
                            .await?;
                        Ok::<_, LockError>(locks)
                    })
                })
                .collect();
            let mut slowest = Duration::ZERO;
            while !managers.iter().all(tokio::task::JoinHandle::is_finished) {
                let before = Instant::now();
                user.simple_query("SELECT 1").await.unwrap();
                slowest = slowest.max(before.elapsed());
            }
            println!("figure: pool of {size}: the application's slowest SELECT 1: {slowest:?}");
            for manager in managers {
                manager.await.unwrap().unwrap();
            }
            assert!(slowest < Duration::from_secs(2), "pool of {size}: {slowest:?}");
        }
    });
}

#[test]
#[limit]
fn a_service_alone_behind_a_pool_of_one_takes_its_first_lock() {
    on_runtime(async {
        let server = PostgresServer::start();
        let pooler = server.pooler_of(1);
        let locks = LockManager::connect(&pooler.url()).await.unwrap();
        let watch = Stopwatch::start();
        let _first = locks.lock("first").with_wait(LONG).acquire().await.unwrap();
        watch.assert_within(Duration::from_secs(3), "the first lock behind a pool of one");
    });
}

#[test]
#[limit(120)]
fn a_cancelled_wait_for_the_standby_is_unknown_whatever_the_user_has_set() {
    for pooled in [false, true] {
        on_runtime(async {
            let primary = PostgresServer::start();
            PostgresStore::new(&primary.url()).unwrap().ping().await.unwrap();
            primary.run("ALTER ROLE test SET client_min_messages = error");
            primary.run("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf()");
            let pooler = primary.pooler();
            let store = PostgresStore::new(&if pooled { pooler.url() } else { primary.url() }).unwrap();
            let look = session(&primary).await;
            while look.query_one("SHOW synchronous_standby_names", &[]).await.unwrap().get::<_, &str>(0).is_empty() {}
            let mut request = AcquireRequest::new(claim("waits", LONG), HolderInfo::new("here", 1, "test"));
            request.execute_within = LONG;
            let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            let (answer, ()) = tokio::join!(store.try_acquire(&request), async {
                while look.query(cancel, &[]).await.unwrap().is_empty() {}
            });
            let error = answer.expect_err("no standby has it");
            assert_eq!(error.kind(), LockErrorKind::Unavailable, "behind a pooler: {pooled}");
        });
    }
}

#[test]
#[limit]
fn a_row_that_is_locked_beside_a_lock_delays_no_release() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let [held, waits, noted, blocked] = ["queue", "queue", "job", "blocked"].map(|key| claim(key, LONG));
        let run = || {
            let mut release = Release::new(noted.clone());
            release.run = Some(JobRun::new(LONG, true));
            release
        };
        granted(&store, &noted).await;
        store.release(&run()).await.unwrap();
        granted(&store, &noted).await;
        granted(&store, &held).await;
        let mut request = AcquireRequest::new(waits, HolderInfo::new("here", 1, "test"));
        (request.execute_within, request.ticket) = (LONG, Some(Ticket::new("nobody".into(), 1, LONG)));
        assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Queued { .. })));
        let note = Blocked::new(held.owner, FencingToken::new(1 << 40), 1, LockKey::new("other").unwrap());
        store.set_blocked(&blocked.key, Some(&note)).await.unwrap();
        let user = session(&server).await;
        let lock = |table: &str| format!("SELECT FROM lock_core.{table} FOR UPDATE;");
        user.batch_execute(&format!("BEGIN; {}{}{}", lock("waiter"), lock("job"), lock("blocked"))).await.unwrap();
        let free = Ok(Freed::Released);
        assert_eq!(store.release(&Release::new(held)).await, free, "the waiter is passed over");
        assert_eq!(store.release(&run()).await, free, "the note of the run before stays");
        store.set_blocked(&blocked.key, Some(&note)).await.unwrap();
        store.set_blocked(&blocked.key, None).await.unwrap();
        user.batch_execute("ROLLBACK").await.unwrap();
        granted(&store, &request.claim).await;
    });
}

#[test]
#[limit]
fn a_table_of_notes_that_is_locked_holds_up_no_claim() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = Arc::new(PostgresStore::new(&server.url()).unwrap());
        let (held, done) = (claim("held", LONG), Arc::new(AtomicBool::new(false)));
        granted(&store, &held).await;
        let user = session(&server).await;
        user.batch_execute("BEGIN; LOCK TABLE lock_core.blocked, lock_core.job, lock_core.done").await.unwrap();
        let asks = |_| {
            let (store, done, key) = (Arc::clone(&store), Arc::clone(&done), held.key.clone());
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let _ = store.set_blocked(&key, None).await;
                    let _ = store.last_run(&key).await;
                }
            })
        };
        let askers: Vec<_> = (0..8).map(asks).collect();
        let waiting = format!("{COUNT} AND wait_event_type = 'Lock'");
        let look = session(&server).await;
        while look.query_one(&waiting, &[]).await.unwrap().get::<_, i64>(0) < 2 {}
        for number in 0..20 {
            let watch = Stopwatch::start();
            let beside = claim(&format!("beside {number}"), LONG);
            granted(&store, &beside).await;
            assert_eq!(store.release(&Release::new(beside)).await, Ok(Freed::Released));
            watch.assert_within(Duration::from_millis(900), "a pair beside a locked table of notes");
            assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        }
        done.store(true, Ordering::Relaxed);
        user.batch_execute("ROLLBACK").await.unwrap();
        for asker in askers {
            asker.await.unwrap();
        }
    });
}

#[test]
#[limit]
fn a_password_file_that_is_changed_is_read_again() {
    on_runtime(async {
        let server = PostgresServer::start();
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        let file = std::env::temp_dir().join(format!("pgpass-{}", std::process::id()));
        let set = |word: &str| {
            server.run(&format!("SET password_encryption = 'scram-sha-256'; ALTER ROLE app PASSWORD '{word}'"));
            // As an orchestrator does it: another file takes the place of this one.
            let new = file.with_extension("new");
            std::fs::write(&new, format!("127.0.0.1:{}:*:app:{word}\n", server.port())).unwrap();
            std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            std::fs::rename(new, &file).unwrap();
        };
        server.run("CREATE ROLE app LOGIN SUPERUSER");
        let rules = server.run("SHOW hba_file");
        let lines = "('host all app all scram-sha-256'), ('host all test all trust'), ('local all test trust')";
        set("first");
        server.run(&format!("COPY (VALUES {lines}) TO '{rules}'; SELECT pg_reload_conf()"));
        let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
        while PostgresStore::new(&url).unwrap().ping().await.is_ok() {}
        let store = PostgresStore::new(&format!("{url}?passfile={}", file.display())).unwrap();
        granted(&store, &claim("before", LONG)).await;
        set("second");
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
        let watch = Stopwatch::start();
        while let Err(error) = store.ping().await {
            assert!(error.is_transient(), "the new password is known: {error}");
            watch.assert_within(LONG, "a session with the new password");
        }
        granted(&store, &claim("after", LONG)).await;
        std::fs::remove_file(file).unwrap();
    });
}
