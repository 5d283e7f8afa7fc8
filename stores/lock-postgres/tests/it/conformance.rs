//! Runs the conformance suite of stores.

use lock_core::testing::PostgresServer;
use lock_postgres::PostgresStore;

fn store() -> impl Fn() -> PostgresStore {
    let server = PostgresServer::shared();
    move || PostgresStore::new(&server.url()).unwrap()
}

lock_core::conformance_tests!(store);
