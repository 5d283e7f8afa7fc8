//! A clock that is set back: of one server, and of a standby that is promoted.

use std::time::Duration;

use lock_core::{FencingToken, HolderInfo, LockBackend as _, LockManager};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Renewal};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, ask, claim, granted, on_runtime, session};

/// The functions of the store, with a clock that the test sets.
fn with_a_clock(server: &PostgresServer) -> PostgresStore {
    server.run(
        "CREATE SCHEMA lock_core; CREATE TABLE lock_core.clock (ahead interval); INSERT INTO lock_core.clock VALUES ('0');
         CREATE FUNCTION lock_core.shown() RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER AS
         'SELECT pg_catalog.clock_timestamp() + ahead FROM lock_core.clock'",
    );
    server.run(&PostgresStore::schema("lock_core").replace("clock_timestamp()", "lock_core.shown()"));
    PostgresStore::new(&server.url()).unwrap()
}

fn set(server: &PostgresServer, ahead: &str) {
    server.run(&format!("UPDATE lock_core.clock SET ahead = '{ahead}'"));
}

/// Asks without a queue, as a caller that has waited for long already.
async fn left(store: &PostgresStore, key: &str) -> Option<Duration> {
    match ask(store, &claim(key, LONG)).await {
        Attempt::Held { holder } => holder.ttl_left,
        other => panic!("{key}: {other:?}"),
    }
}

async fn freed(store: &PostgresStore, claim: Claim) {
    assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::Released));
}

#[test]
#[limit]
fn a_released_lock_is_free_and_its_tokens_rise_when_the_clock_was_set_back() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = with_a_clock(&server);
        let mut last = granted(&store, &claim("other", LONG)).await;
        // The first is a small step of a clock that is kept right.
        for back in ["0", "-5 ms", "-1 minute", "-1 hour", "-40 days"] {
            set(&server, back);
            let held = claim("free", LONG);
            let token = granted(&store, &held).await;
            assert!(token > last, "{back}: {token} after {last}");
            last = token;
            freed(&store, held).await;
        }
        set(&server, "-41 days");
        // Several at once, a lock that was left before it was granted, and one that somebody waits for.
        let all: Vec<_> = ["free", "new"]
            .map(|key| AcquireRequest::new(claim(key, LONG), HolderInfo::new("here", 1, "test")))
            .into_iter()
            .map(|mut one| {
                one.execute_within = LONG;
                one
            })
            .collect();
        let answer = store.try_acquire_all(&all).await.unwrap();
        assert!(matches!(answer, lock_store::AttemptAll::Granted { .. }), "{answer:?}");
        for one in all {
            freed(&store, one.claim).await;
        }
        assert_eq!(store.withdraw(&claim("left", LONG)).await, Ok(Freed::NotHeld));
        set(&server, "-42 days");
        assert!(store.holder(&claim("free", LONG).key).await.unwrap().is_none());
        for key in ["free", "new", "left"] {
            granted(&store, &claim(key, LONG)).await;
        }
    });
}

#[test]
#[limit]
fn what_is_kept_is_kept_for_its_time_and_no_longer() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = with_a_clock(&server);
        let held = claim("kept", LONG);
        granted(&store, &held).await;
        let mut release = Release::new(held);
        release.keep_for = Duration::from_secs(20);
        assert_eq!(store.release(&release).await, Ok(Freed::Released));
        set(&server, "-1 hour");
        let least = Duration::from_secs(15);
        for _ in 0..2 {
            let left = left(&store, "kept").await.unwrap();
            assert!(left > least && left <= release.keep_for, "{left:?}");
        }
        set(&server, "-59 minutes -39 seconds");
        granted(&store, &claim("kept", LONG)).await;
    });
}

#[test]
#[limit]
fn a_lease_ends_with_its_time_and_never_before_it_when_the_clock_was_set_back() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = with_a_clock(&server);
        let (held, gone) = (claim("held", LONG), claim("gone", LONG));
        granted(&store, &held).await;
        granted(&store, &gone).await;
        set(&server, "-1 hour");
        let least = LONG - Duration::from_secs(15);
        for key in ["held", "gone"] {
            let left = left(&store, key).await.unwrap();
            assert!(left > least && left <= LONG, "{key}: {left:?}");
        }
        // A longer lease is as long as it was promised to be, also after a shorter renewal.
        let mut longer = held.clone();
        longer.ttl = 10 * LONG;
        assert_eq!(store.renew(std::slice::from_ref(&longer)).await, [Ok(Renewal::Renewed)]);
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        assert!(left(&store, "held").await.unwrap() > 9 * LONG);
        set(&server, "-59 minutes");
        // The first answer tells the store what the clock shows.
        let _late =
            store.try_acquire(&AcquireRequest::new(claim("other", LONG), HolderInfo::new("here", 1, "test"))).await;
        granted(&store, &gone).await;
        assert!(left(&store, "held").await.unwrap() > 8 * LONG);
    });
}

/// The row of an earlier build does not tell how long its lease is.
#[test]
#[limit]
fn a_lease_of_an_earlier_build_is_not_cut() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = with_a_clock(&server);
        granted(&store, &claim("earlier", LONG)).await;
        server.run("UPDATE lock_core.lock SET ttl_ms = 1000");
        assert!(left(&store, "earlier").await.unwrap() > LONG / 2);
        server.run("UPDATE lock_core.lock SET owner = NULL");
        assert!(left(&store, "earlier").await.unwrap() > LONG / 2, "nor the time for which a job keeps its lock");
    });
}

#[test]
#[limit(120)]
fn tokens_rise_at_a_failover_to_a_standby_whose_clock_is_behind() {
    on_runtime(async {
        let primary = PostgresServer::start();
        let store = with_a_clock(&primary);
        let way = lock_testing::FaultProxy::start(primary.port());
        let known = claim("known", LONG);
        granted(&store, &known).await;
        freed(&store, known.clone()).await;
        let standby = primary.standby("behind", way.port());
        // Neither of these reaches the standby.
        way.refuse(true);
        way.kill_connections();
        let lost = [granted(&store, &known).await, granted(&store, &claim("new", LONG)).await];
        drop((store, primary));
        standby.promote();
        set(&standby, "-25 minutes");
        let store = PostgresStore::new(&standby.url()).unwrap();
        let mut tokens: Vec<FencingToken> = Vec::new();
        for (key, lost) in ["known", "new"].into_iter().zip(lost) {
            let token = granted(&store, &claim(key, LONG)).await;
            assert!(token > lost, "{key}: {token} after {lost}");
            tokens.push(token);
        }
        // Later sessions of the same server raise nothing more.
        let floor = "SELECT floor FROM lock_core.meta";
        let (before, locks) = (standby.run(floor), LockManager::connect(&standby.url()).await.unwrap());
        locks.lock("more").await.unwrap().release().await.unwrap();
        assert_eq!(standby.run(floor), before);
        // An hour ahead of the clock no token could be exceeded any more.
        let client = session(&standby).await;
        let newest = i64::try_from(tokens[1].get()).unwrap();
        let ahead = "SELECT ($1::bigint / 1048576 - extract(epoch FROM lock_core.shown()) * 1000)::bigint";
        let ahead: i64 = client.query_one(ahead, &[&newest]).await.unwrap().get(0);
        assert!(ahead < 2_000_000, "{ahead} ms");
    });
}

#[test]
#[limit]
fn a_set_is_taken_after_the_clock_was_set_ahead() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = with_a_clock(&server);
        granted(&store, &claim("first", LONG)).await;
        set(&server, "1 hour");
        let mut all =
            ["one", "two"].map(|key| AcquireRequest::new(claim(key, LONG), HolderInfo::new("here", 1, "test")));
        all.iter_mut().for_each(|one| one.execute_within = LONG);
        // The first answer tells the time, of which this process knew nothing.
        let first = store.try_acquire_all(&all).await;
        assert!(first.as_ref().is_err_and(lock_core::LockError::is_transient), "{first:?}");
        let second = store.try_acquire_all(&all).await;
        assert!(matches!(second, Ok(lock_store::AttemptAll::Granted { .. })), "{second:?}");
    });
}
