//! Who waits, and who is told.

use std::time::Duration;

use lock_core::testing::{EventLog, PostgresServer, inbox, limit};
use lock_core::{AcquireRequest, Attempt, Claim, Freed, HolderInfo, LockBackend, Release, Ticket};
use lock_postgres::PostgresStore;

use crate::support::{LONG, claim, granted, on_runtime, pin, session, store};

async fn queued(store: &PostgresStore, claim: &Claim, inbox: &str) -> bool {
    let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
    request.ticket = Some(Ticket::new(inbox.into(), 1, LONG));
    request.execute_within = LONG;
    matches!(store.try_acquire(&request).await.unwrap(), Attempt::Queued { .. })
}

#[test]
#[limit]
fn a_waiter_whose_process_is_gone_is_passed_over_at_once() {
    on_runtime(async {
        let (_server, store) = store();
        let (inbox, mut reports) = inbox(EventLog::default());
        let id = inbox.id().to_string();
        let rule = async {
            while !inbox.is_open() {
                tokio::task::yield_now().await;
            }
            let (first, dead, living) = (claim("dead head", LONG), claim("dead head", LONG), claim("dead head", LONG));
            let token = granted(&store, &first).await;
            assert!(queued(&store, &dead, "an inbox that nobody is at").await && queued(&store, &living, &id).await);
            assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
            let grant = reports.next_grant().await.unwrap();
            assert!(grant.claim.owner == living.owner && grant.token > token);
            assert_eq!(store.release(&Release::new(living)).await, Ok(Freed::Released));
            // It is alive after all: it asks, and has kept its place.
            assert!(granted(&store, &dead).await > grant.token);
        };
        tokio::select! {
            () = rule => {}
            error = store.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
        }
    });
}

#[test]
#[limit]
fn a_process_that_hears_messages_all_the_time_sweeps_too() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let (inbox, _reports) = inbox(EventLog::default());
        let rule = async {
            while !inbox.is_open() {
                tokio::task::yield_now().await;
            }
            let client = session(&server).await;
            let swept = "SELECT swept > '-infinity' FROM lock_core.meta";
            while !client.query_one(swept, &[]).await.unwrap().get::<_, bool>(0) {
                client.batch_execute("SELECT pg_notify('lock_core_revoked', 'noise'), pg_sleep(0.05)").await.unwrap();
            }
        };
        tokio::select! {
            () = rule => {}
            error = store.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
        }
    });
}

#[test]
#[limit]
fn nobody_waits_for_the_transaction_of_a_user() {
    on_runtime(async {
        let (server, store) = store();
        let (client, first, second) = (session(&server).await, claim("no ring", LONG), claim("no ring", LONG));
        let token = granted(&store, &first).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "no ring", token).await.unwrap();
        // Each of these answers while the transaction is open.
        assert!(queued(&store, &second, "nobody").await);
        assert_eq!(store.renew(std::slice::from_ref(&first)).await.len(), 1);
        assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
        assert!(queued(&store, &second, "nobody").await, "pinned");
        assert_eq!(store.withdraw(&second).await, Ok(Freed::NotHeld));
        client.batch_execute("COMMIT").await.unwrap();
        granted(&store, &claim("no ring", LONG)).await;
    });
}

#[test]
#[limit]
fn rows_of_locks_that_nobody_uses_go_and_their_tokens_stay_exceeded() {
    on_runtime(async {
        // Its tokens are far ahead afterwards, for all keys.
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let client = session(&server).await;
        let first = claim("swept", LONG);
        let token = granted(&store, &first).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "swept", token).await.unwrap();
        assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
        // An hour later, by a clock that is set back afterwards.
        let far = i64::try_from(token.get()).unwrap() + (1 << 50);
        server.run(&format!(
            "UPDATE lock_core.lock SET until = now() - interval '1 hour', token = {far} WHERE key = 'swept'"
        ));
        let sweep = || {
            server.run("UPDATE lock_core.meta SET swept = '-infinity'");
            let highest = server.run("SELECT lock_core.sweep_begin_v1()");
            assert!(
                server.try_run("SELECT lock_core.sweep_v1(9223372036854775807)").is_err(),
                "not before the floor knows"
            );
            server.run(&format!("SELECT lock_core.sweep_v1({highest})"));
            server.run("SELECT count(*) FROM lock_core.lock WHERE key = 'swept'")
        };
        assert_eq!(sweep(), "1", "what a transaction keeps stays");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(sweep(), "0");
        assert_eq!(server.run("SELECT count(*) FROM lock_core.fence WHERE resource = 'swept'"), "0");
        let next = granted(&store, &claim("swept", Duration::from_secs(1))).await;
        assert!(next.get() > u64::try_from(far).unwrap(), "{next} after {far}");
    });
}
