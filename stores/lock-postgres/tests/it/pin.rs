//! The lock inside the user's transaction.

use std::time::Duration;

use lock_core::testing::limit;
use lock_core::{Freed, LockBackend, LockManager, Release, Renewal};

use crate::support::{
    LONG, ask, claim, ended, granted, in_the_end, on_runtime, pid, pin, refusal, refused, session, store, waits,
};

/// A lease that soon ends. It is not renewed: its holder was paused.
const SHORT: Duration = Duration::from_millis(300);

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[test]
#[limit]
fn nobody_is_granted_a_lock_between_pin_and_commit() {
    on_runtime(async {
        let (server, store) = store();
        for (level, end) in LEVELS.into_iter().flat_map(|level| ["COMMIT", "ROLLBACK"].map(|end| (level, end))) {
            let key = format!("pinned, {level}, {end}");
            let (client, next) = (session(&server).await, claim(&key, LONG));
            let first = claim(&key, SHORT);
            let token = granted(&store, &first).await;
            client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            pin(&client, &key, token).await.unwrap();
            ended(&session(&server).await, &key).await;
            assert!(refused(&store, &next).await, "{key}: its lease has ended, its transaction has not");
            assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::NotHeld), "{key}");
            assert!(refused(&store, &next).await, "{key}: nor after the release");
            client.batch_execute(end).await.unwrap();
            assert!(granted(&store, &next).await > token, "{key}: free at once after the end of the transaction");
        }
    });
}

#[test]
#[limit]
fn a_lock_that_is_released_before_the_commit_stays_taken_until_then() {
    on_runtime(async {
        let (server, store) = store();
        let (client, next) = (session(&server).await, claim("released early", LONG));
        let first = claim("released early", LONG);
        let token = granted(&store, &first).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "released early", token).await.unwrap();
        assert_eq!(
            store.release(&Release::new(first)).await,
            Ok(Freed::Released),
            "a release does not wait for the transaction"
        );
        assert!(refused(&store, &next).await, "nobody enters before its end");
        // The session is cut instead of a commit: the server ends the transaction.
        server.run(&format!("SELECT pg_terminate_backend({})", pid(&client).await));
        assert!(in_the_end(&store, &next).await > token);
    });
}

#[test]
#[limit]
fn renewals_go_on_while_a_lock_is_pinned() {
    on_runtime(async {
        let (server, store) = store();
        let (client, held) = (session(&server).await, claim("renewed", LONG));
        let token = granted(&store, &held).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "renewed", token).await.unwrap();
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
        client.batch_execute("COMMIT").await.unwrap();
        // A snapshot from before a renewal is as good.
        for level in LEVELS {
            client
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM lock_core.lock"))
                .await
                .unwrap();
            assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]);
            pin(&client, "renewed", token).await.unwrap();
            client.batch_execute("COMMIT").await.unwrap();
        }
    });
}

#[test]
#[limit]
fn a_lock_that_was_lost_cannot_be_pinned_whatever_the_snapshot_shows() {
    on_runtime(async {
        let (server, store) = store();
        for (level, code) in LEVELS.into_iter().zip(["LK001", "40001", "40001"]) {
            let key = format!("lost, {level}");
            let client = session(&server).await;
            let token = granted(&store, &claim(&key, SHORT)).await;
            client
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM lock_core.lock"))
                .await
                .unwrap();
            ended(&session(&server).await, &key).await;
            granted(&store, &claim(&key, LONG)).await;
            let (found, text) = refusal(pin(&client, &key, token).await);
            assert_eq!(found, code, "{level}: {text}");
            assert!(
                code == "40001" || text.contains("was lost") && text.contains(&key) && text.contains("roll back"),
                "{text}"
            );
        }
        // Never held, and of an older snapshot than the grant.
        let client = session(&server).await;
        let nobody = lock_core::FencingToken::new(128);
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(refusal(pin(&client, "never held", nobody).await).0, "LK001");
    });
}

#[test]
#[limit]
fn a_pin_outside_of_a_transaction_is_refused_in_one_sentence() {
    on_runtime(async {
        let (server, store) = store();
        let (client, held) = (session(&server).await, claim("outside", LONG));
        let token = granted(&store, &held).await;
        let (code, text) = refusal(pin(&client, "outside", token).await);
        assert!(
            code == "LK004" && text.contains("outside of a transaction") && text.contains("BEGIN"),
            "{code}: {text}"
        );
        // The simple protocol too.
        let alone = client.batch_execute(&format!("SELECT lock_core.pin('outside', {token})")).await;
        assert_eq!(refusal(alone).0, "LK004");
        // A block that is the whole transaction says so.
        let block = format!("DO $$ BEGIN PERFORM lock_core.pin_in_statement('outside', {token}); END $$");
        client.batch_execute(&block).await.unwrap();
    });
}

#[test]
#[limit]
fn the_holders_of_one_process_follow_each_other_by_their_transactions() {
    on_runtime(async {
        let (server, store) = store();
        let (one, two, look) = (session(&server).await, session(&server).await, session(&server).await);
        let token = granted(&store, &claim("handed on", LONG)).await;
        let after = lock_core::FencingToken::new(token.get() + 1);
        one.batch_execute("BEGIN").await.unwrap();
        pin(&one, "handed on", token).await.unwrap();
        let second = pid(&two).await;
        two.batch_execute("BEGIN").await.unwrap();
        let (pinned, ()) = tokio::join!(pin(&two, "handed on", after), async {
            waits(&look, second).await;
            one.batch_execute("COMMIT").await.unwrap();
        });
        pinned.unwrap();
        two.batch_execute("COMMIT").await.unwrap();
        one.batch_execute("BEGIN").await.unwrap();
        let (code, text) = refusal(pin(&one, "handed on", token).await);
        assert!(code == "LK002" && text.contains("stale"), "{code}: {text}");
    });
}

#[test]
#[limit]
fn a_resource_admits_no_older_token_of_any_store() {
    on_runtime(async {
        let (server, store) = store();
        let client = session(&server).await;
        // The schema is made by the first call.
        granted(&store, &claim("beside what is pinned", LONG)).await;
        let admit = async |token: u64| {
            let statement = lock_postgres::admit("resource", lock_core::FencingToken::new(token));
            client.execute(statement.text(), &[&statement.key(), &statement.token()]).await
        };
        for token in [200, 200, 300] {
            admit(token).await.unwrap();
        }
        let (code, text) = refusal(admit(299).await);
        assert!(code == "LK002" && text.contains("stale") && text.contains("roll back"), "{code}: {text}");
    });
}

#[test]
#[limit]
fn a_guard_is_pinned_by_its_text_and_values() {
    on_runtime(async {
        let (server, store) = store();
        let mut client = session(&server).await;
        let locks = LockManager::connect(&format!("{}?key_prefix=app:", server.url())).await.unwrap();
        let guard = locks.lock("it's account:7").await.unwrap();
        let (statement, token) = (lock_postgres::pin(&guard), guard.token());
        assert_eq!(statement.text(), "SELECT lock_core.pin($1::text, $2::bigint)");
        let transaction = client.transaction().await.unwrap();
        transaction.execute(statement.text(), &[&statement.key(), &statement.token()]).await.unwrap();
        guard.release().await.unwrap();
        let next = claim("app:it's account:7", LONG);
        assert!(matches!(ask(&store, &next).await, lock_core::Attempt::Held { .. }));
        transaction.commit().await.unwrap();
        granted(&store, &next).await;
        assert_eq!(
            lock_postgres::admit("r", token).in_schema("locks").text(),
            "SELECT locks.admit($1::text, $2::bigint)"
        );
    });
}

/// A transaction whose snapshot is older than the grant does not show the lock that it has.
#[test]
#[limit]
fn a_snapshot_from_before_the_grant_is_told_to_begin_again() {
    on_runtime(async {
        let (server, store) = store();
        granted(&store, &claim("makes the schema of all", LONG)).await;
        for (level, code) in LEVELS.into_iter().zip(["", "40001", "40001"]) {
            // A key without a row; one whose row somebody else had; one that this owner has asked for again.
            for (what, before) in [("new", 0), ("freed", 1), ("asked again", 2)] {
                let (key, client) = (format!("{what}, {level}"), session(&server).await);
                let held = claim(&key, LONG);
                match before {
                    0 => {}
                    1 => {
                        let other = claim(&key, LONG);
                        granted(&store, &other).await;
                        assert_eq!(store.release(&Release::new(other)).await, Ok(Freed::Released));
                    }
                    _ => drop(granted(&store, &held).await),
                }
                let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM lock_core.lock");
                client.batch_execute(&begin).await.unwrap();
                let token = granted(&store, &held).await;
                let pinned = pin(&client, &key, token).await;
                if code.is_empty() {
                    pinned.unwrap();
                    continue;
                }
                assert_eq!(refusal(pinned).0, code, "{key}");
                client.batch_execute(&format!("ROLLBACK; {begin}")).await.unwrap();
                pin(&client, &key, token).await.unwrap();
                client.batch_execute("COMMIT").await.unwrap();
            }
        }
        // The lock does not exist, in any snapshot.
        let client = session(&server).await;
        client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await.unwrap();
        assert_eq!(refusal(pin(&client, "nowhere", lock_core::FencingToken::new(128)).await).0, "LK001");
        assert_eq!(server.run("SELECT count(*) FROM lock_core.lock WHERE key = 'nowhere'"), "0");
    });
}

#[test]
#[limit]
fn immediate_constraints_change_nothing_for_a_pin() {
    on_runtime(async {
        let (server, store) = store();
        let client = session(&server).await;
        let token = granted(&store, &claim("immediate", LONG)).await;
        for (before, after) in [
            ("SET CONSTRAINTS ALL IMMEDIATE", ""),
            ("", "SET CONSTRAINTS ALL IMMEDIATE"),
            ("SET CONSTRAINTS ALL IMMEDIATE", "SET CONSTRAINTS ALL IMMEDIATE"),
        ] {
            client.batch_execute(&format!("BEGIN; {before}")).await.unwrap();
            pin(&client, "immediate", token).await.unwrap();
            client.batch_execute(after).await.unwrap();
            pin(&client, "immediate", token).await.unwrap();
            client.batch_execute("COMMIT").await.unwrap();
        }
        let alone = format!("SET CONSTRAINTS ALL IMMEDIATE; SELECT lock_core.pin('immediate', {token})");
        assert_eq!(refusal(client.batch_execute(&alone).await).0, "LK004");
    });
}

/// After ROLLBACK TO SAVEPOINT nothing is pinned any more, and nothing can be said at the commit. So it is said at once.
#[test]
#[limit]
fn a_pin_inside_a_savepoint_is_warned_of_and_ends_with_it() {
    on_runtime(async {
        let (server, store) = store();
        granted(&store, &claim("nested", LONG)).await;
        let script = |key: &str, savepoint: &str| {
            format!(
                "BEGIN; {savepoint} SELECT lock_core.pin('{key}', token) FROM lock_core.lock WHERE key = '{key}';
                 ROLLBACK TO a; SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid(); COMMIT"
            )
        };
        let warned = |key: &str| server.log().contains(&format!("the lock '{key}' is pinned inside a savepoint"));
        assert_eq!(server.run(&script("nested", "SAVEPOINT a;")).trim(), "0");
        assert!(warned("nested"), "the server says so, and the client hears of it");
        // A savepoint that comes later takes nothing away.
        granted(&store, &claim("outer", LONG)).await;
        let later = script("outer", "").replace("ROLLBACK TO a", "SAVEPOINT a; ROLLBACK TO a");
        assert_eq!(server.run(&later).trim(), "1");
        assert!(!warned("outer"));
    });
}

/// Two releases pass while the transaction is open, of which one lets a waiter in.
#[test]
#[limit]
fn a_waiter_gets_a_lock_that_was_pinned_after_the_commit_and_not_before() {
    on_runtime(async {
        let (server, store) = store();
        let (client, first, next) = (session(&server).await, claim("passed on", LONG), claim("passed on", LONG));
        let token = granted(&store, &first).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "passed on", token).await.unwrap();
        let mut asks = lock_core::AcquireRequest::new(next.clone(), lock_core::HolderInfo::new("here", 1, "test"));
        (asks.execute_within, asks.ticket) = (LONG, Some(lock_core::Ticket::new("nobody".into(), 1, LONG)));
        let owner = "SELECT owner FROM lock_core.lock WHERE key = 'passed on'";
        for _ in 0..2 {
            let answer = store.try_acquire(&asks).await.unwrap();
            assert!(matches!(answer, lock_core::Attempt::Queued { .. }), "{answer:?}");
            store.release(&Release::new(first.clone())).await.unwrap();
            assert_eq!(server.run(owner), "", "released, and nobody's");
        }
        client.batch_execute("COMMIT").await.unwrap();
        let answer = store.try_acquire(&asks).await.unwrap();
        assert!(matches!(answer, lock_core::Attempt::Granted { .. }), "{answer:?}");
        assert_eq!(server.run(owner).replace('-', ""), next.owner.to_hex());
    });
}

#[test]
#[limit]
fn several_locks_of_which_one_is_pinned_are_refused_until_the_commit() {
    on_runtime(async {
        let (server, store) = store();
        let client = session(&server).await;
        let token = granted(&store, &claim("set, pinned", SHORT)).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "set, pinned", token).await.unwrap();
        ended(&session(&server).await, "set, pinned").await;
        let several = ["set, free", "set, pinned"].map(|key| {
            let mut one =
                lock_core::AcquireRequest::new(claim(key, LONG), lock_core::HolderInfo::new("here", 1, "test"));
            one.execute_within = LONG;
            one
        });
        let answer = store.try_acquire_all(&several).await.unwrap();
        assert!(matches!(answer, lock_core::AttemptAll::Held { index: 1, .. }), "{answer:?}");
        client.batch_execute("COMMIT").await.unwrap();
        let answer = store.try_acquire_all(&several).await.unwrap();
        assert!(matches!(answer, lock_core::AttemptAll::Granted { .. }), "{answer:?}");
    });
}
