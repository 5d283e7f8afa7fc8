//! Sessions that end or fall silent while they are idle, and a server that lets in no new session meanwhile.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{HolderInfo, LockBackend as _, LockKey};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Inspector as _, JobRecords as _, Release, Renewal};
use lock_testing::{Direction, FaultProxy, PostgresServer, Stopwatch, limit};
use tokio::time::{sleep, timeout};

use crate::support::{LONG, claim, granted, on_runtime, session};

/// A call may find a session silent (ten seconds), or try to connect once (five seconds, ten after that, and then twenty).
const MOST: Duration = Duration::from_secs(35);

/// The fault of the idle sessions, and that of new sessions.
#[derive(Clone, Copy, Debug)]
struct Fault {
    cut: bool,
    refuse: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Ping,
    Acquire,
    AcquireAll,
    Renew,
    Release,
    List,
    LastRun,
}

async fn run(op: Op, store: &PostgresStore) {
    let claim = claim("idle", LONG);
    let request = || AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
    match op {
        Op::Ping => drop(store.ping().await),
        Op::Acquire => drop(store.try_acquire(&request()).await),
        Op::AcquireAll => drop(store.try_acquire_all(&[request()]).await),
        Op::Renew => drop(store.renew(std::slice::from_ref(&claim)).await),
        Op::Release => drop(store.release(&Release::new(claim)).await),
        Op::List => drop(store.scan("", 100, None).await),
        Op::LastRun => drop(store.last_run(&LockKey::new("idle").unwrap()).await),
    }
}

/// Has every worker open its session: calls wait for a locked table until each has one.
async fn all_open(server: &PostgresServer, store: &Arc<PostgresStore>, application: &str) {
    let (user, look) = (session(server).await, session(server).await);
    user.batch_execute("BEGIN; LOCK TABLE lock_core.lock").await.unwrap();
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}'");
    let mut asked = Vec::new();
    // Four carry calls, and one renews.
    while look.query_one(&count, &[]).await.unwrap().get::<_, i64>(0) < 5 {
        let (store, key) = (Arc::clone(store), format!("open {}", asked.len()));
        asked.push(tokio::spawn(async move {
            let mut request = AcquireRequest::new(claim(&key, LONG), HolderInfo::new("here", 1, "test"));
            request.execute_within = LONG;
            let _ = store.try_acquire(&request).await;
        }));
        sleep(Duration::from_millis(20)).await;
    }
    user.batch_execute("ROLLBACK").await.unwrap();
    for one in asked {
        one.await.unwrap();
    }
}

#[test]
#[limit(300)]
fn calls_end_after_idle_sessions_were_cut_or_fell_silent() {
    on_runtime(async {
        let server = Arc::new(PostgresServer::start());
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        for (cut, refuse) in [(true, true), (true, false), (false, true), (false, false)] {
            let fault = Fault { cut, refuse };
            let ops = [Op::Ping, Op::Acquire, Op::AcquireAll, Op::Renew, Op::Release, Op::List, Op::LastRun];
            let tried = ops.map(|op| {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let proxy = FaultProxy::start(server.port());
                    let name = format!("{op:?}-{cut}-{refuse}");
                    let url = format!("postgres://test@127.0.0.1:{}/postgres?application_name={name}", proxy.port());
                    let store = Arc::new(PostgresStore::new(&url).unwrap());
                    all_open(&server, &store, &name).await;
                    proxy.refuse(fault.refuse);
                    if fault.cut {
                        proxy.kill_connections();
                    } else {
                        proxy.strand_connections();
                    }
                    if !fault.refuse {
                        proxy.black_hole(Direction::ToClient);
                    }
                    // The second call meets the other sessions.
                    let mut took = Duration::ZERO;
                    for _ in 0..2 {
                        let watch = Stopwatch::start();
                        let ended = timeout(2 * LONG, run(op, &store)).await.is_ok();
                        assert!(ended, "{op:?} does not end after {fault:?}");
                        took = took.max(watch.elapsed());
                    }
                    proxy.resume();
                    // It is of use again: a session that was silent has the others opened anew. A renewal has a session of its own.
                    if matches!(op, Op::Renew) {
                        let _ = store.ping().await;
                    }
                    granted(&store, &claim(&name, LONG)).await;
                    took
                })
            });
            let mut slowest = Duration::ZERO;
            for one in tried {
                slowest = slowest.max(one.await.unwrap());
            }
            println!("figure: a call after {fault:?}: {slowest:?} at most");
            assert!(slowest < MOST, "{fault:?}: {slowest:?}");
        }
    });
}

#[test]
#[limit(120)]
fn renewals_go_on_over_open_sessions_while_no_new_one_can_be_opened() {
    on_runtime(async {
        let server = PostgresServer::start();
        let proxy = FaultProxy::start(server.port());
        let url = format!("postgres://test@127.0.0.1:{}/postgres?application_name=renewing", proxy.port());
        let store = Arc::new(PostgresStore::new(&url).unwrap());
        let held = claim("held", LONG);
        granted(&store, &held).await;
        all_open(&server, &store, "renewing").await;
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        // The last statement of the session that renews names its function.
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'renewing' AND query LIKE '%renew_v2%'";
        assert_eq!(server.run(cut), "1");
        // No byte of a new session passes; the open ones go on.
        proxy.lead_to(silent_port());
        let mut failed = 0;
        for _ in 0..40 {
            let watch = Stopwatch::start();
            failed += usize::from(store.renew(std::slice::from_ref(&held)).await != [Ok(Renewal::Renewed)]);
            watch.assert_within(Duration::from_secs(1), "a renewal while no session can be opened");
        }
        // One may find its session cut while it is on its way.
        assert!(failed <= 1, "{failed} of 40");
    });
}

/// A port whose listener accepts and never answers.
fn silent_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            kept.push(stream);
        }
    });
    port
}
