//! Each failure is reported in a sentence, and leaves no data behind.

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend, LockError, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Renewal};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime, pin, session};

/// A server of the test's own, and its URL for a user.
fn server() -> PostgresServer {
    PostgresServer::start()
}

fn url(server: &PostgresServer, user: &str, rest: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres{rest}", server.port())
}

async fn refusal(url: &str) -> LockError {
    let store = PostgresStore::new(url).unwrap();
    let request = AcquireRequest::new(claim("refused", LONG), HolderInfo::new("here", 1, "test"));
    store.try_acquire(&request).await.expect_err("it is refused")
}

#[track_caller]
fn says(error: &LockError, kind: LockErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert!(error.kind() == kind && words.iter().all(|word| text.contains(word)), "{:?}: {text}", error.kind());
}

#[test]
#[limit]
fn a_schema_that_is_missing_or_of_another_version_is_named() {
    on_runtime(async {
        let server = server();
        says(
            &refusal(&url(&server, "test", "?migrate=never")).await,
            LockErrorKind::Misconfigured,
            &["not installed", "migrate=never"],
        );
        assert_eq!(
            server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_core'"),
            "0",
            "nothing was made"
        );
        // By hand, under another name.
        server.run(&PostgresStore::schema("locks"));
        let store = PostgresStore::new(&url(&server, "test", "?migrate=never&schema=locks")).unwrap();
        granted(&store, &claim("by hand", LONG)).await;
        for (version, oldest, word) in [(0, 0, "has version 0"), (9, 8, "from version 8 on")] {
            server.run(&format!("UPDATE locks.meta SET version = {version}, oldest = {oldest}"));
            says(&refusal(&url(&server, "test", "?schema=locks")).await, LockErrorKind::Misconfigured, &[word]);
        }
        // A newer one that serves older programs too.
        server.run("UPDATE locks.meta SET version = 9, oldest = 1");
        granted(&PostgresStore::new(&url(&server, "test", "?schema=locks")).unwrap(), &claim("newer", LONG)).await;
    });
}

/// Between the look for the schema and the look again another process may have made it.
#[test]
#[limit]
fn whoever_comes_while_another_makes_the_schema_finds_it() {
    on_runtime(async {
        let server = server();
        for _ in 0..12 {
            // One after the other, so that some come at the very moment of its commit.
            let first = |number: u64| {
                let store = PostgresStore::new(&server.url()).unwrap();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(7 * number)).await;
                    granted(&store, &claim(&format!("first {number}"), LONG)).await
                })
            };
            for one in (0..16).map(first).collect::<Vec<_>>() {
                one.await.unwrap();
            }
            server.run("DROP SCHEMA lock_core CASCADE");
        }
    });
}

#[test]
#[limit]
fn a_user_needs_the_functions_and_nothing_else() {
    on_runtime(async {
        let server = server();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lock_core TO app");
        says(&refusal(&url(&server, "app", "")).await, LockErrorKind::Misconfigured, &["may not use", "GRANT EXECUTE"]);
        server.run("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO app");
        let store = PostgresStore::new(&url(&server, "app", "")).unwrap();
        let token = granted(&store, &claim("granted", LONG)).await;
        let (client, connection) =
            tokio_postgres::connect(&url(&server, "app", ""), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "granted", token).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        assert!(client.batch_execute("SELECT FROM lock_core.lock").await.is_err(), "the tables are not the user's");
        assert!(
            client.batch_execute("SELECT lock_core.keep('granted', 1, NULL)").await.is_err(),
            "nor what lies below"
        );
    });
}

#[test]
#[limit]
fn a_user_who_may_only_read_is_told_what_to_set() {
    on_runtime(async {
        let server = server();
        server.run("CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on");
        let error = refusal(&url(&server, "reader", "")).await;
        let remedy = "ALTER ROLE reader SET default_transaction_read_only = off";
        says(&error, LockErrorKind::Unavailable, &["only read", remedy]);
        assert!(!error.to_string().contains("standby"), "{error}");
        let nobody = PostgresStore::new("postgres://test@127.0.0.1:1/postgres").unwrap();
        says(&nobody.ping().await.unwrap_err(), LockErrorKind::Unavailable, &["there is no PostgreSQL at 127.0.0.1:1"]);
        let other = PostgresStore::new(&server.url().replace("/postgres", "/nowhere")).unwrap();
        says(&other.ping().await.unwrap_err(), LockErrorKind::Misconfigured, &["no such database", "nowhere"]);
    });
}

#[test]
#[limit]
fn a_short_statement_timeout_of_the_user_does_not_count_and_a_locked_row_takes_no_lock() {
    on_runtime(async {
        let server = server();
        let store = PostgresStore::new(&server.url()).unwrap();
        granted(&store, &claim("refused", Duration::from_millis(1))).await;
        server.run("CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET statement_timeout = '1ms'");
        // Another transaction keeps the row: a call waits for it as long as the store says, and not as long as the user's settings do.
        let client = session(&server).await;
        client.batch_execute("BEGIN; SELECT FROM lock_core.lock WHERE key = 'refused' FOR UPDATE").await.unwrap();
        says(&refusal(&url(&server, "hasty", "")).await, LockErrorKind::Unavailable, &["gave up waiting for a row"]);
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(server.run("SELECT count(*) FROM lock_core.lock WHERE key = 'refused' AND until > now()"), "0");
    });
}

/// The answer of the server when a disk is full: it is made to, since no test fills a disk. That it has no connection left is real.
#[test]
#[limit]
fn a_server_without_room_is_named_and_takes_no_lock() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("max_connections", "8"), ("superuser_reserved_connections", "3")]);
        let store = PostgresStore::new(&server.url()).unwrap();
        let held = claim("held", LONG);
        granted(&store, &held).await;
        for (code, said) in [("53100", "could not extend file: No space left on device"), ("53200", "out of memory")] {
            server.run(&format!(
                "CREATE OR REPLACE FUNCTION public.no_room() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION '{said}' USING ERRCODE = '{code}'; END $$;
                 CREATE OR REPLACE TRIGGER no_room BEFORE INSERT OR UPDATE ON lock_core.lock EXECUTE FUNCTION public.no_room()"
            ));
            let request = AcquireRequest::new(claim("refused", LONG), HolderInfo::new("here", 1, "test"));
            let error = store.try_acquire(&request).await.unwrap_err();
            says(&error, LockErrorKind::Unavailable, &["has no room", said, "not granted until it has"]);
            // A refused renewal is not a loss.
            let renewed = store.renew(std::slice::from_ref(&held)).await.pop().unwrap();
            says(&renewed.unwrap_err(), LockErrorKind::Unavailable, &["has no room"]);
        }
        server.run("DROP TRIGGER no_room ON lock_core.lock");
        assert_eq!(server.run("SELECT count(*) FROM lock_core.lock WHERE key = 'refused'"), "0");
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        server.run("CREATE ROLE app LOGIN");
        let mut others = Vec::new();
        let error = loop {
            while let Ok((client, connection)) =
                tokio_postgres::connect(&url(&server, "app", ""), tokio_postgres::NoTls).await
            {
                others.push((client, tokio::spawn(connection)));
            }
            let error = refusal(&url(&server, "app", "")).await;
            // A session that ended a moment ago may have left room for one more.
            if error.kind() == LockErrorKind::Unavailable {
                break error;
            }
        };
        says(&error, LockErrorKind::Unavailable, &["no more connections", "pooler"]);
    });
}

/// Through a pooler by transaction nothing can be set for a session: it would stay there, and weaken the transactions of others.
#[test]
#[limit]
fn stricter_isolation_behind_a_pooler_is_refused_and_left_as_it_is() {
    on_runtime(async {
        let server = server();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run("ALTER ROLE test SET default_transaction_isolation = serializable");
        let pooler = server.pooler();
        says(
            &refusal(&pooler.url()).await,
            LockErrorKind::Misconfigured,
            &["isolation level serializable", "read committed"],
        );
        let (client, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        // In each session of the pool.
        client.batch_execute("BEGIN").await.unwrap();
        let level = client.query_one("SHOW transaction_isolation", &[]).await.unwrap();
        assert_eq!(level.get::<_, &str>(0), "serializable");
        assert_eq!(server.run("SELECT count(*) FROM lock_core.lock WHERE key = 'refused'"), "0");
    });
}

#[test]
#[limit]
fn stricter_isolation_by_default_and_the_longest_names_work() {
    on_runtime(async {
        let server = server();
        server.run("ALTER ROLE test SET default_transaction_isolation = serializable");
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let name = "é".repeat(256);
        for _ in 0..3 {
            let guard = locks.lock(name.as_str()).await.unwrap();
            guard.release().await.unwrap();
        }
        let error = locks.lock("x".repeat(1024).as_str()).await.unwrap_err();
        says(&error, LockErrorKind::InvalidKey, &["1024 bytes"]);
        // A caller of the functions inside a transaction of another level gets an error.
        let client = session(&server).await;
        let call = client.batch_execute(
            "SELECT * FROM lock_core.renew_v1('{a}', '{00000000-0000-0000-0000-000000000000}', '{1}', 'on')",
        );
        let error = call.await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert!(error.code().code() == "LK003" && error.message().contains("read committed"), "{error}");
    });
}

#[test]
#[limit]
fn readers_and_permits_are_refused_with_the_whole_sentence_and_nothing_is_left() {
    on_runtime(async {
        let server = server();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let instead = "use one Redis server, Sentinel, a cluster or memory, or take an exclusive lock";
        for (refused, what) in
            [(locks.read("shared").await, "readers"), (locks.semaphore("shared", 3).await, "permits")]
        {
            let sentence = format!("lock \"shared\": this store has exclusive locks only, and no {what}; {instead}");
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.to_string()), (LockErrorKind::Misconfigured, sentence));
        }
        let of = |table: &str| format!("(SELECT count(*) FROM lock_core.{table} WHERE key = 'shared')");
        let left = format!("SELECT {} + {}", of("lock"), of("waiter"));
        assert_eq!(server.run(&left), "0");
        locks.lock("shared").await.unwrap().release().await.unwrap();
    });
}
