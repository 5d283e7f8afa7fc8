//! Runs the conformance suite of stores.

use lock_core::testing::PostgresServer;
use lock_postgres::PostgresStore;

use crate::support::with_tables;

fn store() -> impl Fn() -> PostgresStore {
    let server = with_tables(PostgresServer::shared());
    move || PostgresStore::new(&server.url()).unwrap()
}

lock_core::conformance_tests!(store);
