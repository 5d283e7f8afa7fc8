//! The locks of a database, as `lockctl` and the fleet's inspector show them.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, Renew};
use lock_metrics::{FleetInspector, builder};
use lock_postgres as _;
use lock_testing::{PostgresServer, limit};

use crate::operator;
use crate::program::lockctl_at;

async fn take(server: &PostgresServer, key: &str) -> (LockManager, LockGuard) {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let request = locks.lock(key).with_site("shop::charge").with_label("charges").with_ttl(Duration::from_secs(60));
    let guard = request.acquire().await.unwrap();
    (locks, guard)
}

/// Waits until so many processes hear of grants and revocations: each has an advisory lock.
fn until_they_listen(server: &PostgresServer, count: &str) {
    let look = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
    while server.run(look) != count {
        std::thread::yield_now();
    }
}

#[test]
#[limit]
fn a_database_without_locks_is_refused_and_left_as_it_is() {
    let server = PostgresServer::start();
    let ended = lockctl_at(&server.url(), &["list"]);
    ended.assert_code(4);
    assert!(ended.stderr.contains("not installed"), "{ended:?}");
    assert_eq!(server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_core'"), "0");
    let wrong = lockctl_at("postgres://u:s3cret@127.0.0.1/shop?acks=1", &["list"]);
    wrong.assert_code(2);
    assert!(wrong.stderr.contains("not known") && !wrong.stderr.contains("s3cret"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn locks_in_a_database_are_shown_explained_and_taken_away() {
    let server = PostgresServer::start();
    let ctl = |arguments: &[&str]| lockctl_at(&server.url(), arguments);
    let (locks, guard) = take(&server, "lock:user:42").await;
    let list = ctl(&["list"]);
    list.assert_code(0);
    for part in ["lock:user:42", "held", "shop::charge", "1 lock on 127.0.0.1:"] {
        assert!(list.stdout.contains(part), "{part} in {list:?}");
    }
    assert!(ctl(&["list", "--prefix", "nothing:"]).stdout.starts_with("no lock is held on "));
    let other = LockManager::connect(&server.url()).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn({
        let other = other.clone();
        async move {
            let request = other.lock("lock:user:42").with_site("shop::refund").with_wait(Duration::from_secs(120));
            request.acquire().await.unwrap()
        }
    });
    until_they_listen(&server, "2");
    let waiter = operator::takes_a_lock_away(&server.url(), &guard, &mut waiting).await;
    assert!(waiter["confirmed_seconds_ago"].is_f64(), "{waiter}");
    operator::reads_what_ran(&server.url(), &locks).await;
    let migrate = ["run", "migrate:orders", "--once-for", "v42", "--", "echo", "migrated"];
    let jobs = ctl(&["jobs", "--prefix", "migrate"]);
    assert!(jobs.stdout.contains("v42") && jobs.stdout.contains("lockctl run echo"), "{jobs:?}");
    ctl(&["forget", "migrate:orders", "v42"]).assert_code(0);
    assert_eq!(ctl(&migrate).stdout, "migrated\n");
    let topology = ctl(&["topology"]);
    assert!(topology.code != Some(0) && topology.stderr.contains("PostgreSQL"), "{topology:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
#[expect(clippy::disallowed_methods, reason = "on the runtime of the test")]
async fn a_lock_that_an_open_transaction_keeps_is_not_called_free() {
    let server = PostgresServer::start();
    let (_locks, guard) = take(&server, "account:7").await;
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let pin = lock_postgres::pin(&guard);
    client.batch_execute("BEGIN").await.unwrap();
    client.execute(pin.text(), &[&pin.key(), &pin.token()]).await.unwrap();
    guard.release().await.unwrap();
    let shown = lockctl_at(&server.url(), &["show", "account:7"]);
    shown.assert_code(0);
    assert!(shown.stdout.contains("pinned by") && shown.stdout.contains("transaction of session"), "{shown:?}");
    assert!(shown.stdout.contains("pg_terminate_backend(") && !shown.stdout.contains("lockctl release"), "{shown:?}");
    let why = lockctl_at(&server.url(), &["why", "account:7"]);
    for part in [
        "account:7 was released, and stays taken until the transaction",
        "by the transaction of session",
        "pg_terminate_backend(",
    ] {
        assert!(why.stdout.contains(part), "{part} in {why:?}");
    }
    client.batch_execute("COMMIT").await.unwrap();
    lockctl_at(&server.url(), &["show", "account:7"]).assert_code(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn the_fleets_inspector_counts_locks_in_a_database() {
    let server = PostgresServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    let metrics = builder().build().unwrap();
    let inspector = FleetInspector::new(&server.url()).unwrap();
    inspector.inspect_once(&metrics).await.unwrap();
    let text = metrics.render();
    let held =
        |line: &&str| line.contains("inspector_held{") && line.contains("lock=\"charges\"") && line.ends_with(" 1");
    assert!(text.lines().any(|line| held(&line)), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
#[expect(clippy::disallowed_methods, reason = "on the runtime of the test")]
async fn a_lock_that_is_only_pinned_is_explained_by_its_transaction_and_not_by_its_lease() {
    let server = PostgresServer::start();
    let ctl = |arguments: &[&str]| lockctl_at(&server.url(), arguments);
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let request =
        locks.lock("account:7").with_site("shop::charge").with_ttl(Duration::from_millis(500)).with_renew(Renew::Off);
    let guard = request.acquire().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let pin = lock_postgres::pin(&guard);
    client.batch_execute("BEGIN").await.unwrap();
    client.execute(pin.text(), &[&pin.key(), &pin.token()]).await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    while server.run("SELECT until < clock_timestamp() FROM lock_core.lock WHERE key = 'account:7'") != "t" {}

    let why = ctl(&["why", "account:7"]);
    why.assert_code(0);
    let ends = format!("pg_terminate_backend({pid})");
    let session = format!("by the transaction of session {pid}, open for ");
    for part in ["account:7 is pinned by a transaction", "shop::charge", &session, &ends, "does not free it"] {
        assert!(why.stdout.contains(part), "{part} in {why:?}");
    }
    for part in ["renewed", "by itself", "0 ms", "--expect-owner"] {
        assert!(!why.stdout.contains(part), "{part} in {why:?}");
    }
    let json = ctl(&["why", "account:7", "--json"]).json();
    assert!(json["kept_by"].as_str().unwrap().contains(&ends) && json["details"]["pinned by"].is_string(), "{json:#}");
    assert!(json["force"]["command"].is_null() && json["process"]["renewed_seconds_ago"].is_null(), "{json:#}");
    let shown = ctl(&["show", "account:7"]);
    assert!(shown.stdout.contains(&ends) && !shown.stdout.contains("--expect-owner"), "{shown:?}");
    let list = ctl(&["list"]);
    assert!(list.stdout.contains("ended, pinned"), "{list:?}");
    let owner = json["owner"].as_str().unwrap();
    let released = ctl(&["release", "account:7", "--expect-owner", owner, "--reason", "it hangs"]);
    assert!(released.stderr.contains("it stays taken, pinned by the transaction of session"), "{released:?}");
    // As they say.
    server.run(&format!("SELECT {ends}"));
    while ctl(&["show", "account:7"]).code != Some(1) {}
}
