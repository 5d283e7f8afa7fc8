//! Behind a pooler by transaction.

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;
use lock_store::AcquireRequest;
use lock_testing::{EventLog, PostgresServer, inbox, limit};

use crate::support::{LONG, claim, granted, on_runtime, session};

mod told {
    use lock_postgres::PostgresStore;
    use lock_testing::PostgresServer;

    use crate::support::with_tables;

    /// All calls go through the pooler, and one session to the server itself.
    fn store() -> impl Fn() -> PostgresStore {
        let server = with_tables(PostgresServer::shared());
        let pooler = server.pooler();
        move || PostgresStore::new(&format!("{}?listen=127.0.0.1:{}", pooler.url(), server.port())).unwrap()
    }

    lock_testing::conformance_tests!(store);
}

#[test]
#[limit]
fn without_the_name_of_the_server_waiters_poll_and_nothing_stays_in_the_pool() {
    on_runtime(async {
        let server = PostgresServer::start();
        let pooler = server.pooler();
        let (inbox, _reports) = inbox(EventLog::default());
        let error = PostgresStore::new(&pooler.url()).unwrap().drive(inbox.clone()).await;
        assert!(
            error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("?listen=host:5432"),
            "{error}"
        );
        assert!(!inbox.is_open());
        let [one, two] =
            [LockManager::connect(&pooler.url()).await.unwrap(), LockManager::connect(&pooler.url()).await.unwrap()];
        let guard = one.lock("polled").await.unwrap();
        let (released, next) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                guard.release().await
            },
            two.lock("polled").with_wait(Duration::from_secs(50)).acquire(),
        );
        assert!(released.is_ok() && next.is_ok());
        // The settings that would outlive the test in a session of another client. A statement on its way may have one until it ends.
        while server.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

async fn refused(store: &PostgresStore, key: &str, words: &[&str]) {
    let mut request = AcquireRequest::new(claim(key, LONG), HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    let error = store.try_acquire(&request).await.expect_err("the pooler refuses it");
    let text = error.to_string();
    for word in [&["the pooler before PostgreSQL"], words].concat() {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{text}");
}

/// A pooler that has sent a statement on, and gives up its answer, does not end the statement: the lock may be taken.
#[test]
#[limit(120)]
fn what_a_pooler_ends_is_said_in_its_words_and_is_unknown_if_it_was_sent() {
    on_runtime(async {
        let server = PostgresServer::start();
        PostgresStore::new(&server.url()).unwrap().ping().await.unwrap();
        let pooler = server.pooler_of(1);
        let connect = async |url: &str| {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        };
        let store = || PostgresStore::new(&pooler.url()).unwrap();
        let console = connect(&pooler.url().replace("/postgres", "/pgbouncer")).await;
        let set = async |text: &str| drop(console.simple_query(text).await.unwrap());
        let (open, user) = (store(), connect(&pooler.url()).await);
        granted(&open, &claim("before", LONG)).await;

        set("SET query_wait_timeout = 1").await;
        user.batch_execute("BEGIN").await.unwrap();
        let words = ["query_wait_timeout", "raise the size of the pool"];
        refused(&open, "waits", &words).await;
        refused(&store(), "waits", &words).await;
        user.batch_execute("ROLLBACK").await.unwrap();
        set("SET query_wait_timeout = 60").await;

        server.run(
            "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3); RETURN NEW; END $$;
             CREATE TRIGGER slow BEFORE INSERT ON lock_core.lock FOR EACH ROW WHEN (NEW.key LIKE 'slow%') EXECUTE FUNCTION public.slow()",
        );
        let unknown = "whether the command was executed is not known";
        set("SET query_timeout = 1").await;
        refused(&open, "slow 1", &["query timeout", "let its query_timeout be 10s or more", unknown]).await;
        set("SET query_timeout = 0").await;
        // The server goes on with what the pooler has left.
        let look = session(&server).await;
        while look.query("SELECT FROM lock_core.lock WHERE key = 'slow 1'", &[]).await.unwrap().is_empty() {}
        let crash = async {
            let sleeps = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            let pid: i32 = loop {
                if let Some(row) = look.query_opt(sleeps, &[]).await.unwrap() {
                    break row.get(0);
                }
            };
            std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
        };
        let words = ["its session of PostgreSQL has ended", unknown];
        tokio::join!(refused(&open, "slow 2", &words), crash);
        while server.try_run("SELECT 1").is_err() {}
        let disable = async {
            let look = session(&server).await;
            while look.query("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'", &[]).await.unwrap().is_empty()
            {
            }
            set("KILL postgres").await;
        };
        while open.ping().await.is_err() {}
        tokio::join!(refused(&open, "slow 3", &words[1..]), disable);
        set("RESUME postgres").await;
        set("DISABLE postgres").await;
        refused(&store(), "disabled", &["is disabled", "ENABLE"]).await;
        set("ENABLE postgres").await;
        set("SET max_client_conn = 1").await;
        refused(&store(), "one too many", &["no more connections allowed", "raise max_client_conn"]).await;
    });
}
