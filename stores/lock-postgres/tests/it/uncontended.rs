//! The short ways of a lock that nobody contends for, and when they may not be taken.

use lock_core::{HolderInfo, LockBackend as _, LockManager};
use lock_postgres::PostgresStore;
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Ticket};
use lock_testing::{PostgresServer, Stopwatch, limit};
use std::time::Duration;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::{LONG, claim, ended, granted, on_runtime, pid, pin, refused, session, store, waits};

const OWNER: &str = "SELECT coalesce(replace(owner::text, '-', ''), 'nobody') FROM lock_core.lock WHERE key = $1";

async fn owner(client: &Client, key: &str) -> String {
    client.query_one(OWNER, &[&key]).await.unwrap().get(0)
}

/// Lets the inbox `there` look as if its process listened.
async fn present(server: &PostgresServer, store: &PostgresStore) -> Client {
    store.ping().await.unwrap();
    let client = session(server).await;
    client.batch_execute("SELECT pg_advisory_lock(lock_core.presence_v1('there'))").await.unwrap();
    client
}

fn releases(function: &str, key: &str, held: &Claim) -> String {
    let owner = held.owner.to_hex();
    format!(
        "SELECT * FROM lock_core.{function}('{{{key}}}', '{{{owner}}}', '{{0}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', 'on')"
    )
}

async fn queued(store: &PostgresStore, claim: &Claim) -> bool {
    let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
    (request.execute_within, request.ticket) = (LONG, Some(Ticket::new("there".into(), 1, LONG)));
    matches!(store.try_acquire(&request).await.unwrap(), Attempt::Queued { .. })
}

/// Also while a transaction has pinned it: a lock of a row that others lock too would take a number for both of them.
#[test]
#[limit]
fn an_attempt_that_is_refused_locks_and_writes_nothing() {
    on_runtime(async {
        let (server, store) = store();
        let (client, user) = (session(&server).await, session(&server).await);
        let held = claim("refused", LONG);
        let token = granted(&store, &held).await;
        let row = "SELECT concat_ws(' ', ctid, xmin, xmax) FROM lock_core.lock WHERE key = 'refused'";
        let row = async || client.query_one(row, &[]).await.unwrap().get::<_, String>(0);
        let before = row().await;
        assert!(refused(&store, &claim("refused", LONG)).await);
        assert_eq!(row().await, before);
        user.batch_execute("BEGIN").await.unwrap();
        pin(&user, "refused", token).await.unwrap();
        let pinned = row().await;
        for _ in 0..10 {
            assert!(refused(&store, &claim("refused", LONG)).await);
        }
        assert_eq!(row().await, pinned);
        user.batch_execute("COMMIT").await.unwrap();
        let mut kept = Release::new(held);
        kept.keep_for = LONG;
        assert_eq!(store.release(&kept).await, Ok(Freed::Released));
        let before = row().await;
        assert!(refused(&store, &claim("refused", LONG)).await, "kept after its release");
        assert_eq!(row().await, before);
    });
}

/// A look alone would refuse it for as long as the clock was set back.
#[test]
#[limit]
fn an_attempt_that_is_refused_shortens_a_lease_of_before_the_clock_was_set_back() {
    on_runtime(async {
        let (server, store) = store();
        let client = session(&server).await;
        granted(&store, &claim("set back", LONG)).await;
        // As if the lock had been taken while the clock was a day ahead.
        let ahead = "UPDATE lock_core.lock SET until = until + interval '1 day', since = since + interval '1 day'
            WHERE key = 'set back'";
        client.batch_execute(ahead).await.unwrap();
        assert!(refused(&store, &claim("set back", LONG)).await);
        let left = "SELECT until < clock_timestamp() + interval '1 hour' FROM lock_core.lock WHERE key = 'set back'";
        assert!(client.query_one(left, &[]).await.unwrap().get::<_, bool>(0), "it lasts a day longer than it may");
    });
}

#[test]
#[limit]
fn a_lease_that_has_ended_goes_to_a_waiter_and_not_to_whoever_comes() {
    on_runtime(async {
        let (server, store) = store();
        let (client, _there) = (session(&server).await, present(&server, &store).await);
        let (first, next) = (claim("comes first", Duration::from_millis(300)), claim("comes first", LONG));
        granted(&store, &first).await;
        assert!(queued(&store, &next).await);
        ended(&client, "comes first").await;
        assert!(refused(&store, &claim("comes first", LONG)).await);
        assert_eq!(owner(&client, "comes first").await, next.owner.to_hex());
    });
}

/// A claim enters the queue while a release, or another claim, waits for the row.
#[test]
#[limit]
fn whoever_enters_the_queue_meanwhile_is_seen() {
    on_runtime(async {
        let (server, store) = store();
        let (client, user, _there) = (session(&server).await, session(&server).await, present(&server, &store).await);
        let asks = session(&server).await;
        let process = pid(&asks).await;
        for round in 0..10 {
            for frees in [true, false] {
                let key = format!("meanwhile {frees} {round}");
                let (held, next) = (claim(&key, LONG), claim(&key, LONG));
                granted(&store, &held).await;
                let wants = next.owner.to_hex();
                let call = if frees {
                    releases("release_v2", &key, &held).replace('*', "freed::text")
                } else {
                    server.run(&format!("UPDATE lock_core.lock SET until = clock_timestamp() WHERE key = '{key}'"));
                    let other = claim(&key, LONG).owner.to_hex();
                    format!(
                        "SELECT outcome FROM lock_core.acquire_v1('{{{key}}}', '{{{other}}}', '{{60000}}', '{{0}}', '{{x}}', \
                             '{{9000000000000000}}', '{{NULL}}', '{{0}}', '{{0}}', 'on')"
                    )
                };
                user.batch_execute(&format!("BEGIN; SELECT FROM lock_core.lock WHERE key = '{key}' FOR NO KEY UPDATE"))
                    .await
                    .unwrap();
                let enters = async {
                    waits(&client, process).await;
                    let text = format!(
                        "INSERT INTO lock_core.waiter (key, owner, inbox, stamp, grant_ms, floor, since, confirmed, about) \
                         VALUES ('{key}', '{wants}', 'there', 1, 60000, 0, now(), clock_timestamp(), ''); COMMIT"
                    );
                    user.batch_execute(&text).await.unwrap();
                };
                let (answer, ()) = tokio::join!(asks.query_one(&call, &[]), enters);
                match answer {
                    Ok(row) => assert_eq!(row.get::<_, &str>(0), if frees { "true" } else { "held" }),
                    // The machine stood still for a second.
                    Err(error) if error.code().is_some_and(|code| code.code() == "55P03") => continue,
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(owner(&client, &key).await, wants, "{key}");
            }
        }
    });
}

/// In the commit of the release, a message would hold a lock of the whole server while the disk flushes.
#[test]
#[limit]
fn a_release_returns_its_message_and_that_of_an_earlier_build_sends_it() {
    on_runtime(async {
        let (server, store) = store();
        let _there = present(&server, &store).await;
        for (version, sends) in [("release_v2", false), ("release_v1", true)] {
            let (held, next) = (claim(version, LONG), claim(version, LONG));
            granted(&store, &held).await;
            assert!(queued(&store, &next).await);
            let said = server.run(&format!("LISTEN lock_core_there; {}", releases(version, version, &held)));
            let heard = said.lines().any(|line| line.starts_with("Async") && line.contains(&format!("|{version}\"")));
            assert_eq!(heard, sends, "{said}");
            let row = said.lines().find(|line| line.starts_with('t')).unwrap();
            assert_eq!(row.contains("|lock_core_there|granted|"), !sends, "{said}");
        }
    });
}

/// So it is when a claim finds that a lease is over, and grants the lock to a waiter.
#[test]
#[limit]
fn a_claim_returns_the_message_of_a_waiter_and_that_of_an_earlier_build_sends_it() {
    on_runtime(async {
        let (server, store) = store();
        let _there = present(&server, &store).await;
        let over = async |key: &str| {
            granted(&store, &claim(key, LONG)).await;
            assert!(queued(&store, &claim(key, LONG)).await);
            server.run(&format!("UPDATE lock_core.lock SET until = clock_timestamp() WHERE key = '{key}'"));
        };
        for (version, sends) in [("acquire_v2", false), ("acquire_v1", true)] {
            over(version).await;
            let other = claim(version, LONG).owner.to_hex();
            let said = server.run(&format!(
                "LISTEN lock_core_there; SELECT * FROM lock_core.{version}('{{{version}}}', '{{{other}}}', '{{60000}}', '{{0}}', '{{x}}', \
                 '{{9000000000000000}}', '{{NULL}}', '{{0}}', '{{0}}', 'on')"
            ));
            let heard = said.lines().any(|line| line.starts_with("Async") && line.contains(&format!("|{version}\"")));
            assert_eq!(heard, sends, "{said}");
            let row = said.lines().find(|line| line.starts_with("held|")).unwrap();
            assert_eq!(row.contains("|lock_core_there|granted|"), !sends, "{said}");
        }
        let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        let (sends, mut heard) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(message) = message {
                    let _ = sends.send(message.payload().to_owned());
                }
            }
        });
        client.batch_execute("LISTEN lock_core_there").await.unwrap();
        over("told by the store").await;
        assert!(refused(&store, &claim("told by the store", LONG)).await);
        while !heard.recv().await.unwrap().ends_with("|told by the store") {}
    });
}

/// The process that released the lock has died before it told the waiter.
#[test]
#[limit]
fn a_waiter_whose_message_was_not_sent_has_the_lock_when_it_asks_again() {
    on_runtime(async {
        let (server, store) = store();
        let client = session(&server).await;
        let held = claim("not told", Duration::from_secs(3));
        granted(&store, &held).await;
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let waits = tokio::spawn(async move { locks.lock("not told").with_ttl(LONG).with_wait(LONG).acquire().await });
        let queue = "SELECT count(*) FROM lock_core.waiter WHERE key = 'not told'";
        while client.query_one(queue, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        let watch = Stopwatch::start();
        server.run(&releases("release_v2", "not told", &held));
        drop(waits.await.unwrap().unwrap());
        watch.assert_within(Duration::from_secs(10), "the next request of the waiter");
    });
}

/// The row of a lock that is free is there already, unlike that of a new one.
#[test]
#[limit]
fn a_free_lock_is_not_taken_too_late_nor_below_a_token_that_is_known() {
    on_runtime(async {
        let (server, store) = store();
        let held = claim("free", LONG);
        granted(&store, &held).await;
        assert_eq!(store.release(&Release::new(held)).await, Ok(Freed::Released));
        let call = |floor: &str, deadline: &str| {
            server.run(&format!(
                "SELECT outcome FROM lock_core.acquire_v1('{{free}}', '{{00000000-0000-0000-0000-000000000001}}', '{{60000}}', ARRAY[{floor}], '{{x}}', \
                 ARRAY[(extract(epoch FROM clock_timestamp() {deadline}) * 1000000)::bigint], '{{NULL}}', '{{0}}', '{{0}}', 'on')"
            ))
        };
        let far = "(extract(epoch FROM clock_timestamp() + interval '2 hours') * 1000)::bigint * 1048576";
        assert_eq!(call("0", "- interval '1 ms'"), "late");
        assert_eq!(call(far, "+ interval '1 minute'"), "floor");
        assert_eq!(server.run("SELECT owner IS NULL FROM lock_core.lock WHERE key = 'free'"), "t");
        assert_eq!(call("0", "+ interval '1 minute'"), "granted");
    });
}
