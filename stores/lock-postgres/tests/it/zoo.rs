//! Functions that lack a rule: the tests of the rule would notice.

use std::time::Duration;

use lock_core::testing::{PostgresServer, limit};
use lock_core::{Attempt, FencingToken, Inspector as _, LockBackend, Release};
use lock_postgres::PostgresStore;
use tokio_postgres::Client;

use crate::support::{LONG, ask, claim, granted, on_runtime, session};

/// A store whose functions are changed, in a schema of its own.
fn without(server: &PostgresServer, schema: &str, rule: &str, instead: &str) -> PostgresStore {
    let text = PostgresStore::schema(schema);
    assert!(text.contains(rule), "there is no such rule: {rule}");
    server.run(&text.replace(rule, instead));
    PostgresStore::new(&format!("{}?schema={schema}&migrate=never", server.url())).unwrap()
}

/// Whether somebody else is granted a lock whose lease has ended while a transaction is open that has pinned it.
async fn lets_two_in(server: &PostgresServer, store: &PostgresStore, schema: &str) -> bool {
    let client = session(server).await;
    let token = granted(store, &claim("zoo", Duration::from_millis(300))).await;
    client.batch_execute("BEGIN").await.unwrap();
    pin(&client, schema, token).await.unwrap();
    let look = format!("SELECT until < clock_timestamp() FROM {schema}.lock WHERE key = 'zoo'");
    while !session(server).await.query_one(&look, &[]).await.unwrap().get::<_, bool>(0) {}
    let next = matches!(ask(store, &claim("zoo", LONG)).await, Attempt::Granted { .. });
    client.batch_execute("COMMIT").await.unwrap();
    next
}

async fn pin(client: &Client, schema: &str, token: FencingToken) -> Result<u64, tokio_postgres::Error> {
    let token = i64::try_from(token.get()).unwrap();
    client.execute(&format!("SELECT {schema}.pin('zoo', $1)"), &[&token]).await
}

#[test]
#[limit]
fn a_pin_needs_both_its_share_of_the_row_and_a_takeover_that_minds_it() {
    on_runtime(async {
        let server = PostgresServer::start();
        let whole = without(&server, "whole", "FOR KEY SHARE", "FOR KEY SHARE");
        assert!(!lets_two_in(&server, &whole, "whole").await);
        let share = without(&server, "share", "FOR KEY SHARE", "");
        assert!(lets_two_in(&server, &share, "share").await, "a plain check, as of pg_lease");
        let mild = without(&server, "mild", "FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE SKIP LOCKED");
        assert!(lets_two_in(&server, &mild, "mild").await, "a takeover that passes over no pin");
    });
}

#[test]
#[limit]
fn tokens_are_repeated_where_the_floor_does_not_know_the_rows_that_went() {
    on_runtime(async {
        let server = PostgresServer::start();
        let rule = ", floor = greatest(floor, coalesce(highest, 0))";
        for (schema, instead) in [("known", rule), ("forgotten", "")] {
            let store = without(&server, schema, rule, instead);
            let first = claim("zoo", LONG);
            let token = granted(&store, &first).await;
            store.release(&Release::new(first)).await.unwrap();
            // From a clock that was far ahead, and is set back now.
            let far = i64::try_from(token.get()).unwrap() + (1 << 50);
            server.run(&format!(
                "UPDATE {schema}.lock SET until = now() - interval '1 hour', token = {far};
                 SELECT {schema}.sweep_begin_v1(); DELETE FROM {schema}.lock"
            ));
            let next = granted(&store, &claim("zoo", LONG)).await;
            assert_eq!(next.get() > far.cast_unsigned(), !instead.is_empty(), "{schema}: {next} after {far}");
        }
    });
}

#[test]
#[limit]
fn a_pin_that_leaves_no_trace_is_not_seen_nor_is_one_of_another_schema() {
    on_runtime(async {
        let server = PostgresServer::start();
        let rule = "PERFORM pg_try_advisory_xact_lock_shared(";
        let mut open = Vec::new();
        for (schema, instead) in [("traced", rule), ("untraced", "PERFORM pg_typeof(")] {
            let store = without(&server, schema, rule, instead);
            let (client, held) = (session(&server).await, claim("zoo", LONG));
            let token = granted(&store, &held).await;
            client.batch_execute("BEGIN").await.unwrap();
            pin(&client, schema, token).await.unwrap();
            let entry = store.entry(&held.key).await.unwrap().unwrap();
            assert_eq!(entry.details.len(), usize::from(instead == rule), "{schema}: {entry:?}");
            open.push(client);
        }
    });
}
