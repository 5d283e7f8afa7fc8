//! Runtimes that call often, whose calls leave over connections of their own.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lock_core::LockBackend as _;
use lock_postgres::PostgresStore;
use lock_store::{Freed, Release};
use lock_testing::{FaultProxy, PostgresServer, Stopwatch, limit};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::support::{LONG, claim, granted, on_runtime, session};

/// More calls than a runtime makes before it gets connections of its own.
const OFTEN: u64 = 200;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn named(server: &PostgresServer, port: u16, name: &str) -> Arc<PostgresStore> {
    assert!(server.url().contains("test@"));
    Arc::new(PostgresStore::new(&format!("postgres://test@127.0.0.1:{port}/postgres?application_name={name}")).unwrap())
}

fn connections(name: &str) -> String {
    format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'")
}

async fn pairs(store: &PostgresStore, key: &str, count: u64) {
    for number in 0..count {
        let claim = claim(&format!("{key} {number}"), LONG);
        granted(store, &claim).await;
        assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::Released), "{number}");
    }
}

/// Calls until the connections of the calling runtime are open, which the store's own thread makes two or more.
async fn settled(server: &PostgresServer, store: &PostgresStore, name: &str) {
    let look = session(server).await;
    pairs(store, name, OFTEN).await;
    // There are three: the connection that renews, the store's own, and that of the runtime. A renewal opens the first again if it was cut.
    while look.query_one(&connections(name), &[]).await.unwrap().get::<_, i64>(0) < 3 {
        pairs(store, name, 1).await;
        store.renew(&[claim("nobody's", LONG)]).await;
    }
}

#[test]
#[limit]
fn the_calls_of_a_runtime_that_has_ended_go_on_over_other_connections() {
    let server = PostgresServer::start();
    let store = named(&server, server.port(), "ended");
    for round in 0..3 {
        let first = runtime();
        first.block_on(settled(&server, &store, "ended"));
        let stays = claim(&format!("stays {round}"), LONG);
        first.block_on(granted(&store, &stays));
        first.shutdown_background();
        let watch = Stopwatch::start();
        let second = runtime();
        assert_eq!(second.block_on(store.release(&Release::new(stays))), Ok(Freed::Released));
        second.block_on(pairs(&store, "second", OFTEN));
        watch.assert_within(Duration::from_secs(20), "the calls of the next runtime");
    }
    // Without a runtime, too.
    let left = claim("without", LONG);
    assert_eq!(poll_alone(store.release(&Release::new(left))), Ok(Freed::NotHeld));
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread, without a runtime.
fn poll_alone<F: Future>(future: F) -> F::Output {
    let (waker, mut future) = (Waker::from(Arc::new(Unpark(std::thread::current()))), std::pin::pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
#[limit]
fn the_calls_of_a_runtime_that_nobody_drives_are_sent_by_the_store() {
    let server = PostgresServer::start();
    let store = named(&server, server.port(), "parked");
    let parked = runtime();
    parked.block_on(settled(&server, &store, "parked"));
    let _entered = parked.enter();
    let watch = Stopwatch::start();
    poll_alone(pairs(&store, "alone", 3));
    watch.assert_within(Duration::from_secs(2), "three pairs of a runtime that stands still");
    drop(_entered);
    // It is driven again, and its calls leave.
    parked.block_on(settled(&server, &store, "parked"));
}

#[test]
#[limit]
fn calls_go_on_after_all_connections_of_their_runtime_are_cut() {
    on_runtime(async {
        let server = PostgresServer::start();
        let proxy = FaultProxy::start(server.port());
        let store = named(&server, proxy.port(), "cut");
        for _ in 0..3 {
            settled(&server, &store, "cut").await;
            proxy.kill_connections();
            let claim = claim("after", LONG);
            let watch = Stopwatch::start();
            // The call that is cut may be executed: its answer is unknown.
            while store.release(&Release::new(claim.clone())).await.is_err() {}
            granted(&store, &claim).await;
            assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::Released));
            watch.assert_within(Duration::from_secs(5), "calls after a cut");
        }
    });
}

#[test]
#[limit]
fn a_store_that_is_dropped_closes_the_connections_of_its_callers() {
    on_runtime(async {
        let server = PostgresServer::start();
        let (store, look) = (named(&server, server.port(), "closed"), session(&server).await);
        settled(&server, &store, "closed").await;
        drop(store);
        let watch = Stopwatch::start();
        while look.query_one(&connections("closed"), &[]).await.unwrap().get::<_, i64>(0) > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        watch.assert_within(Duration::from_secs(4), "the end of all connections");
    });
}

#[test]
#[limit]
fn a_runtime_without_sockets_calls_over_those_of_the_store() {
    let server = PostgresServer::start();
    let store = named(&server, server.port(), "bare");
    Builder::new_current_thread().build().unwrap().block_on(pairs(&store, "bare", OFTEN));
}

#[test]
#[limit]
fn connections_are_bounded_whatever_number_of_runtimes_calls() {
    let server = PostgresServer::start();
    let (store, look) = (named(&server, server.port(), "many"), runtime());
    let client = look.block_on(session(&server));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let store = &store;
                scope.spawn(move || {
                    runtime().block_on(async {
                        for round in 0..10 {
                            pairs(store, &format!("{number} {round}"), OFTEN / 10).await;
                        }
                    });
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            let now = look.block_on(client.query_one(&connections("many"), &[])).unwrap().get::<_, i64>(0);
            assert!(now <= 11, "{now} connections");
        }
    });
}
