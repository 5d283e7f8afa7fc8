//! Renewals of several leases in one call. Each lease has an answer of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::{LockBackend as _, LockError};
use lock_postgres::PostgresStore;
use lock_store::{Claim, Freed, Inspector as _, Release, Renewal, Revocation, RevokeFrom};
use lock_testing::{PostgresServer, Stopwatch, limit};
use tokio_postgres::Client;

use crate::support::{LONG, claim, ended, granted, on_runtime, pid, pin, session, store, waits};

/// Renews as a client does that gives its claims in this order. `None` for a lease whose row is locked.
async fn renew(client: &Client, claims: &[Claim], patience: u32) -> Vec<Option<bool>> {
    let list = |of: fn(&Claim) -> String| claims.iter().map(of).collect::<Vec<_>>().join(",");
    let (keys, owners) = (list(|claim| claim.key.to_string()), list(|claim| claim.owner.to_hex()));
    let ttls = list(|claim| claim.ttl.as_millis().to_string());
    let call =
        format!("SELECT renewed FROM lock_core.renew_v2('{{{keys}}}', '{{{owners}}}', '{{{ttls}}}', 'on', {patience})");
    client.query(&call, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Returns the rows of these locks, as text.
async fn rows(client: &Client, keys: &str) -> BTreeMap<String, String> {
    let look = "SELECT key, concat_ws(' ', owner, token, until, since, ttl_ms) FROM lock_core.lock WHERE key LIKE $1";
    client.query(look, &[&keys]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
#[limit]
fn each_lease_of_a_call_has_an_answer_of_its_own() {
    on_runtime(async {
        let (server, store) = store();
        let (look, pins, locks) = (session(&server).await, session(&server).await, session(&server).await);
        let own = |name: &str| claim(&format!("set {name}"), LONG);
        let [live, pinned, locked, twice, revoked, kept, freed, foreign, never] =
            ["live", "pinned", "locked", "twice", "revoked", "kept", "freed", "foreign", "never"].map(own);
        let over = claim("set over", Duration::from_millis(50));
        for held in [&live, &locked, &twice, &revoked, &kept, &freed, &over, &own("foreign")] {
            granted(&store, held).await;
        }
        let token = granted(&store, &pinned).await;
        pins.batch_execute("BEGIN").await.unwrap();
        pin(&pins, "set pinned", token).await.unwrap();
        let locks_it = "BEGIN; SELECT FROM lock_core.lock WHERE key = 'set locked' FOR UPDATE";
        locks.batch_execute(locks_it).await.unwrap();
        let revocation = Revocation::new(RevokeFrom::Owner(revoked.owner), "test", "");
        assert_eq!(store.revoke(&revoked.key, &revocation).await, Ok(Freed::Released));
        let mut keeps = Release::new(kept.clone());
        keeps.keep_for = LONG;
        for release in [keeps, Release::new(freed.clone())] {
            assert_eq!(store.release(&release).await, Ok(Freed::Released));
        }
        ended(&look, "set over").await;
        let mut longer = twice.clone();
        longer.ttl = 10 * LONG;

        let before = rows(&look, "set %").await;
        let (yes, no) = (Some(true), Some(false));
        // Not in the order of their keys, and the shorter time of the two comes last.
        let asked = [never, longer, live, over, locked, twice, foreign, pinned, kept, revoked, freed];
        let expected = [no, yes, yes, no, None, yes, no, yes, no, no, no];
        assert_eq!(renew(&look, &asked, 0).await, expected);
        let after = rows(&look, "set %").await;
        let changed: Vec<&str> =
            after.iter().filter(|(key, row)| before.get(*key) != Some(*row)).map(|(key, _)| key.as_str()).collect();
        assert_eq!(changed, ["set live", "set pinned", "set twice"]);
        assert_eq!(before.len(), after.len(), "a key that is missing stays missing");
        let longest = "SELECT until > clock_timestamp() + interval '9 minutes' AND ttl_ms = -600000 FROM lock_core.lock \
                       WHERE key = 'set twice'";
        assert!(look.query_one(longest, &[]).await.unwrap().get::<_, bool>(0), "the longer time of the two counts");

        for (renewed, expected) in store.renew(&asked).await.into_iter().zip(expected) {
            match expected {
                None => assert!(renewed.as_ref().is_err_and(LockError::is_transient), "{renewed:?}"),
                Some(true) => assert_eq!(renewed, Ok(Renewal::Renewed)),
                Some(false) => assert_eq!(renewed, Ok(Renewal::Lost)),
            }
        }
    });
}

/// Otherwise two calls could each wait for a row that the other has locked.
#[test]
#[limit]
fn a_call_that_waits_locks_its_rows_in_the_order_of_their_keys() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        // In the table, and in the call, the second row comes first. An index would have them in order.
        let both = ["order b", "order a"].map(|key| claim(key, LONG));
        for held in &both {
            granted(&store, held).await;
        }
        let (look, user, asks) = (session(&server).await, session(&server).await, session(&server).await);
        asks.batch_execute("SET enable_indexscan = off; SET enable_bitmapscan = off").await.unwrap();
        let process = pid(&asks).await;
        let keeps = "BEGIN; SELECT FROM lock_core.lock WHERE key = 'order a' FOR NO KEY UPDATE";
        user.batch_execute(keeps).await.unwrap();
        let looks = async {
            waits(&look, process).await;
            let free = "SELECT FROM lock_core.lock WHERE key = 'order b' FOR NO KEY UPDATE NOWAIT";
            look.batch_execute(free).await.unwrap();
            user.batch_execute("COMMIT").await.unwrap();
        };
        let (renewed, ()) = tokio::join!(renew(&asks, &both, 60_000), looks);
        assert_eq!(renewed, [Some(true); 2]);
    });
}

/// The clock is read once the row is locked.
#[test]
#[limit]
fn a_lease_that_ends_while_its_row_is_waited_for_stays_ended() {
    on_runtime(async {
        let (server, store) = store();
        let (look, user, asks) = (session(&server).await, session(&server).await, session(&server).await);
        let mut held = claim("ends meanwhile", Duration::from_secs(1));
        granted(&store, &held).await;
        held.ttl = LONG;
        let keeps = "BEGIN; SELECT FROM lock_core.lock WHERE key = 'ends meanwhile' FOR UPDATE";
        user.batch_execute(keeps).await.unwrap();
        let process = pid(&asks).await;
        let ends = async {
            waits(&look, process).await;
            ended(&look, "ends meanwhile").await;
            user.batch_execute("COMMIT").await.unwrap();
        };
        let (renewed, ()) = tokio::join!(renew(&asks, std::slice::from_ref(&held), 60_000), ends);
        assert_eq!(renewed, [Some(false)]);
        granted(&store, &claim("ends meanwhile", LONG)).await;
    });
}

/// A plan lasts for many calls, and the table may have become large since.
#[test]
#[limit]
fn a_row_is_found_by_its_key_also_if_the_table_was_small() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let asked = [claim("small", LONG), claim("missing", LONG)];
        granted(&store, &asked[0]).await;
        let client = session(&server).await;
        client.batch_execute("ANALYZE lock_core.lock; BEGIN").await.unwrap();
        for _ in 0..2 {
            for patience in [0, 1000] {
                assert_eq!(renew(&client, &asked, patience).await, [Some(true), Some(false)]);
            }
            let grows = "INSERT INTO lock_core.lock (key, token, until, since, about) \
                         SELECT gen_random_uuid(), 1, 'epoch', now(), '' FROM generate_series(1, 1000)";
            client.batch_execute(grows).await.unwrap();
        }
        let read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables \
                    WHERE relid = 'lock_core.lock'::regclass";
        let rows: i64 = client.query_one(read, &[]).await.unwrap().get(0);
        assert!((4..40).contains(&rows), "{rows} rows were read");
    });
}

/// For example, a trigger of an operator waits for a row of another table, or refuses the row of one lock.
#[test]
#[limit]
fn a_lease_that_fails_the_statement_of_a_set_leaves_every_other_lease_renewed() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let held: Vec<Claim> = (0..50).map(|number| claim(&format!("one of {number}"), LONG)).collect();
        for held in &held {
            granted(&store, held).await;
        }
        server.run(
            "CREATE TABLE noted (key text COLLATE \"C\" PRIMARY KEY, refused boolean);
             INSERT INTO noted SELECT key, false FROM lock_core.lock;
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF (SELECT refused FROM public.noted n WHERE n.key = NEW.key FOR UPDATE) THEN RAISE 'refused'; END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER note BEFORE UPDATE ON lock_core.lock FOR EACH ROW EXECUTE FUNCTION note()",
        );
        let user = session(&server).await;
        let fails = [
            ("BEGIN; SELECT FROM noted WHERE key = 'one of 17' FOR UPDATE", "COMMIT"),
            (
                "UPDATE noted SET refused = true WHERE key = 'one of 17'",
                "UPDATE noted SET refused = false WHERE key = 'one of 17'",
            ),
        ];
        for (begins, ends) in fails {
            user.batch_execute(begins).await.unwrap();
            let before = rows(&user, "one of %").await;
            let answers = loop {
                let watch = Stopwatch::start();
                let answers = store.renew(&held).await;
                watch.assert_within(Duration::from_secs(2), "the answers of a set of which one lease fails");
                // On a busy machine the caller's half of a second may end before all halves were asked.
                if watch.elapsed() < Duration::from_millis(400) {
                    break answers;
                }
            };
            for (number, answer) in answers.iter().enumerate() {
                match number {
                    17 => assert!(answer.as_ref().is_err_and(LockError::is_transient), "{begins}: {answer:?}"),
                    _ => assert_eq!(*answer, Ok(Renewal::Renewed), "{begins}: {number}"),
                }
            }
            let after = rows(&user, "one of %").await;
            assert_eq!(before.iter().filter(|(key, row)| after[*key] == **row).count(), 1, "{begins}");
            user.batch_execute(ends).await.unwrap();
            assert_eq!(store.renew(&held).await, vec![Ok(Renewal::Renewed); 50]);
        }
    });
}
