//! Behind a pooler by transaction.

use std::time::Duration;

use lock_core::testing::{EventLog, PostgresServer, inbox, limit};
use lock_core::{LockBackend, LockErrorKind, LockManager};
use lock_postgres::PostgresStore;

use crate::support::on_runtime;

mod told {
    use lock_core::testing::PostgresServer;
    use lock_postgres::PostgresStore;

    use crate::support::with_tables;

    /// All calls go through the pooler, and one session to the server itself.
    fn store() -> impl Fn() -> PostgresStore {
        let server = with_tables(PostgresServer::shared());
        let pooler = server.pooler();
        move || PostgresStore::new(&format!("{}?listen=127.0.0.1:{}", pooler.url(), server.port())).unwrap()
    }

    lock_core::conformance_tests!(store);
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
