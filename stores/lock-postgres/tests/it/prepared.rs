//! The statements that a session prepares, and what throws them away.

use lock_core::LockBackend as _;
use lock_postgres::PostgresStore;
use lock_store::{Freed, Release, Renewal};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime, with_tables};

/// Counts how often the server has executed a call: under a name, or as text.
fn executed(server: &PostgresServer, name: &str, call: &str) -> usize {
    let said = server.log();
    said.lines().filter(|line| line.contains(&format!("execute {name}")) && line.contains(call)).count()
}

fn logging() -> PostgresServer {
    PostgresServer::start_with(&[("log_statement", "all")])
}

async fn pair(store: &PostgresStore, key: &str) {
    let held = claim(key, LONG);
    granted(store, &held).await;
    assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
    assert_eq!(store.release(&Release::new(held)).await, Ok(Freed::Released));
}

#[test]
#[limit]
fn a_session_prepares_what_is_sent_often_and_none_is_prepared_behind_a_pooler() {
    on_runtime(async {
        let server = logging();
        let store = PostgresStore::new(&server.url()).unwrap();
        let calls = ["acquire_v2", "release_v2", "renew_v2"];
        // Renewals have a session of their own, which is opened beside the first calls.
        while calls.iter().any(|call| executed(&server, "s", call) < 3) {
            pair(&store, "direct").await;
        }
        let named = calls.map(|call| executed(&server, "s", call));
        let pooler = server.pooler();
        let pooled = PostgresStore::new(&pooler.url()).unwrap();
        let unnamed = || calls.map(|call| executed(&server, "<unnamed>", call));
        let before = unnamed();
        for _ in 0..5 {
            pair(&pooled, "pooled").await;
        }
        assert_eq!(unnamed(), before.map(|count| count + 5));
        assert_eq!(calls.map(|call| executed(&server, "s", call)), named);
    });
}

/// No call fails because its statement is gone, or cannot be prepared.
#[test]
#[limit]
fn a_call_whose_statement_was_thrown_away_is_sent_anew() {
    on_runtime(async {
        let server = logging();
        let store = PostgresStore::new(&server.url()).unwrap();
        // It runs in the session of the calls, and does there what its body says.
        let does = |what: &str| {
            server.run(&format!(
                "CREATE OR REPLACE FUNCTION lock_core.holder_v1(k text) \
                 RETURNS TABLE (token bigint, owner text, since_us bigint, left_ms bigint, about text) \
                 LANGUAGE plpgsql AS $$ BEGIN {what}; END $$"
            ))
        };
        let key = claim("asked", LONG).key;
        pair(&store, "before").await;
        pair(&store, "before").await;
        does("DEALLOCATE ALL");
        for _ in 0..2 {
            store.holder(&key).await.unwrap();
            let named = executed(&server, "s", "acquire_v2");
            pair(&store, "thrown away").await;
            pair(&store, "prepared anew").await;
            assert!(executed(&server, "s", "acquire_v2") > named);
        }
        // A function that returns more than before.
        let text = server.run("SELECT pg_get_functiondef('lock_core.acquire_v2'::regproc)");
        let drop = "DROP FUNCTION lock_core.acquire_v2";
        server.run(&format!("{drop}; {}", text.replace("message text)", "message text, more text)")));
        pair(&store, "returns more").await;
        server.run(&format!("{drop}; {text}"));
        pair(&store, "as before").await;
        server.run(&format!("DROP SCHEMA lock_core CASCADE; {}", PostgresStore::schema("lock_core")));
        pair(&store, "all is new").await;
        // Others have the names of the session, also those that come next. The call is executed without a name.
        does(
            "DEALLOCATE ALL; \
              FOR n IN 0 .. 9999 LOOP EXECUTE format('PREPARE s%s AS SELECT 1', n); END LOOP",
        );
        server.run("SELECT 1");
        store.holder(&key).await.unwrap();
        let unnamed = executed(&server, "<unnamed>", "acquire_v2");
        // On a busy machine another session, whose names are free, may serve one of the pairs.
        while executed(&server, "<unnamed>", "acquire_v2") < unnamed + 2 {
            pair(&store, "no name is free").await;
        }
    });
}

/// A function that claims more than its parts do is called instead, for each row.
#[test]
#[limit]
fn a_small_function_becomes_a_part_of_the_statement_that_uses_it() {
    let server = with_tables(PostgresServer::shared());
    for call in ["span(ttl_ms)", "ends(until, ttl_ms, since)", "draw(token, token, since)", "presence_v1(key)"] {
        let plan = server.run(&format!("EXPLAIN VERBOSE SELECT lock_core.{call} FROM lock_core.lock"));
        let (name, _) = call.split_once('(').unwrap();
        assert!(!plan.contains(&format!("{name}(")), "{plan}");
    }
}
