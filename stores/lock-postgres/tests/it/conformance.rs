//! Runs the conformance suite of stores.

use lock_postgres::PostgresStore;
use lock_testing::PostgresServer;

use crate::support::with_tables;

fn store() -> impl Fn() -> PostgresStore {
    let server = with_tables(PostgresServer::shared());
    move || PostgresStore::new(&server.url()).unwrap()
}

lock_testing::conformance_tests!(store);
