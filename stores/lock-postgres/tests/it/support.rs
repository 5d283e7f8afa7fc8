//! The parts that the tests share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{FencingToken, HolderInfo, LockBackend, LockKey};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Attempt, Claim};
use lock_testing::PostgresServer;
use tokio_postgres::{Client, Error, NoTls};

/// Longer than any stall of the machine.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn on_runtime<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

/// A server that others use too, and a store on it.
pub(super) fn store() -> (Arc<PostgresServer>, PostgresStore) {
    let server = PostgresServer::shared();
    let store = PostgresStore::new(&server.url()).unwrap();
    (server, store)
}

/// The same server, with the tables, which who only looks does not make.
pub(super) fn with_tables(server: Arc<PostgresServer>) -> Arc<PostgresServer> {
    on_runtime(PostgresStore::new(&server.url()).unwrap().ping()).unwrap();
    server
}

/// A session of the user's.
pub(super) async fn session(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(super) fn claim(key: &str, ttl: Duration) -> Claim {
    Claim::new(LockKey::new(key).unwrap(), ttl)
}

pub(super) async fn ask(store: &PostgresStore, claim: &Claim) -> Attempt {
    let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
    request.execute_within = LONG;
    store.try_acquire(&request).await.unwrap()
}

pub(super) async fn granted(store: &PostgresStore, claim: &Claim) -> FencingToken {
    match ask(store, claim).await {
        Attempt::Granted { token, .. } => token,
        other => panic!("{:?} was not granted: {other:?}", claim.key),
    }
}

pub(super) async fn refused(store: &PostgresStore, claim: &Claim) -> bool {
    matches!(ask(store, claim).await, Attempt::Held { .. })
}

/// Asks until the lock is granted.
pub(super) async fn in_the_end(store: &PostgresStore, claim: &Claim) -> FencingToken {
    loop {
        if let Attempt::Granted { token, .. } = ask(store, claim).await {
            return token;
        }
    }
}

/// Waits until the lease of a lock has ended by the server's clock.
pub(super) async fn ended(client: &Client, key: &str) {
    let look = "SELECT until < clock_timestamp() FROM lock_core.lock WHERE key = $1";
    while !client.query_one(look, &[&key]).await.unwrap().get::<_, bool>(0) {}
}

pub(super) async fn pin(client: &Client, key: &str, token: FencingToken) -> Result<u64, Error> {
    client.execute("SELECT lock_core.pin($1, $2)", &[&key, &i64::try_from(token.get()).unwrap()]).await
}

/// The code and the sentence of a refusal.
pub(super) fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> (String, String) {
    let error = answer.expect_err("it is refused");
    let error = error.as_db_error().expect("by the server");
    if error.code().code().starts_with("LK") {
        let page = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/troubleshooting.md#from-postgresql");
        assert!(error.hint().is_some_and(|hint| hint.contains(page)), "{error:?}");
    }
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Waits until a session waits for a row of the fence.
pub(super) async fn waits(client: &Client, pid: i32) {
    let look = "SELECT cardinality(pg_blocking_pids($1))";
    while client.query_one(look, &[&pid]).await.unwrap().get::<_, i32>(0) == 0 {}
}

pub(super) async fn pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}
