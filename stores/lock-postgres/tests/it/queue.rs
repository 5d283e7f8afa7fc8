//! Waiters, and the messages to them.

use std::time::Duration;

use lock_core::{HolderInfo, LockBackend};
use lock_postgres::PostgresStore;
use lock_store::{
    AcquireRequest, Attempt, Claim, Freed, Inspector as _, Release, Renewal, Revocation, RevokeFrom, Ticket,
};
use lock_testing::{EventLog, PostgresServer, inbox, limit};

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

/// More locks than one step of a sweep removes, all of them free for an hour.
const OLD: &str = "INSERT INTO lock_core.lock (key, token, until, since, about) \
                   SELECT 'old ' || lpad(n::text, 4, '0'), 0, 'epoch', now() - interval '1 hour', '' FROM generate_series(1, 1500) n";

#[test]
#[limit]
fn each_step_of_a_sweep_begins_where_the_last_one_ended() {
    let server = PostgresServer::start();
    server.run(&PostgresStore::schema("lock_core"));
    server.run(OLD);
    let sweep = |after: &str| server.run(&format!("SELECT coalesce(lock_core.sweep_v2(0, '{after}'), 'the end')"));
    assert_eq!([sweep("old 0100"), sweep("old 1100")], ["old 1100", "the end"]);
    let left = "SELECT count(*) FROM lock_core.lock";
    assert_eq!(server.run(left), "100", "no step looks at the keys before");
    server.run(OLD.replace("1, 1500", "101, 1500").as_str());
    assert_eq!(["1000", "0"].map(|_| server.run("SELECT lock_core.sweep_v1(0)")), ["1000", "0"], "as builds before");
    assert_eq!(server.run(left), "0");
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
            server.run(OLD);
            let swept = "SELECT count(*) = 0 FROM lock_core.lock WHERE key LIKE 'old%'";
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

/// The server looks at the deadline once more, when it has waited for everything.
#[test]
#[limit]
fn an_acquire_whose_deadline_has_passed_is_not_executed() {
    on_runtime(async {
        let (server, store) = store();
        granted(&store, &claim("beside what is too late", LONG)).await;
        let nobody = "00000000-0000-0000-0000-000000000001";
        let deadline = |late: &str| format!("(extract(epoch FROM clock_timestamp() {late}) * 1000000)::bigint");
        let one = |late: &str| {
            format!(
                "SELECT outcome FROM lock_core.acquire_v1('{{late}}', '{{{nobody}}}', '{{60000}}', '{{0}}', '{{x}}', ARRAY[{}], '{{a}}', '{{0}}', \
                 '{{1000}}', 'on')",
                deadline(late)
            )
        };
        let all = |late: &str| {
            format!(
                "SELECT DISTINCT outcome FROM lock_core.acquire_all_v1('{{late,late 2}}', '{{{nobody},{nobody}}}', '{{60000,60000}}', 0, 'x', {}, 'on')",
                deadline(late)
            )
        };
        let taken = "SELECT count(*) FROM lock_core.lock WHERE key LIKE 'late%' AND until > now()";
        let waits = "SELECT count(*) FROM lock_core.waiter WHERE key LIKE 'late%'";
        for late in [one("- interval '1 ms'"), all("- interval '1 ms'")] {
            assert_eq!(
                (server.run(&late), server.run(taken), server.run(waits)),
                ("late".into(), "0".into(), "0".into())
            );
        }
        assert_eq!(server.run(&all("+ interval '1 minute'")), "granted");
        assert_eq!(server.run(taken), "2");
        assert_eq!(server.run(&one("+ interval '1 minute'")), "granted");
    });
}

#[test]
#[limit]
fn a_lease_that_has_ended_is_not_renewed() {
    on_runtime(async {
        let (server, store) = store();
        let held = claim("over", Duration::from_millis(50));
        granted(&store, &held).await;
        crate::support::ended(&session(&server).await, "over").await;
        assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Lost)]);
        let as_before =
            format!("SELECT * FROM lock_core.renew_v1('{{over}}', '{{{}}}', '{{60000}}', 'on')", held.owner.to_hex());
        assert_eq!(server.run(&as_before), "f");
        granted(&store, &claim("over", LONG)).await;
    });
}

/// Rows that a transaction of a user keeps locked, in every table that is swept.
#[test]
#[limit]
fn a_sweep_passes_over_what_a_transaction_keeps_and_what_somebody_waits_for() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        for key in ["waited for", "admitted", "free"] {
            let held = claim(key, LONG);
            let token = granted(&store, &held).await;
            server.run(&format!("BEGIN; SELECT lock_core.pin('{key}', {token}); COMMIT"));
            store.release(&Release::new(held)).await.unwrap();
        }
        assert!(queued_behind(&store, &server).await);
        server.run("SELECT lock_core.admit('free', token) FROM lock_core.lock WHERE key = 'free'");
        let old = "now() - interval '1 hour'";
        server.run(&format!(
            "UPDATE lock_core.lock SET until = {old}; UPDATE lock_core.meta SET swept = '-infinity';
             INSERT INTO lock_core.done VALUES ('k', 'v1', '', {old}, {old}), ('k', 'v2', '', {old}, {old});
             INSERT INTO lock_core.job VALUES ('k', 1, '', {old}, true, {old}, {old}), ('l', 1, '', {old}, true, {old}, {old});
             INSERT INTO lock_core.blocked VALUES ('k', gen_random_uuid(), 1, 1, '', {old}), ('l', gen_random_uuid(), 1, 1, '', {old})"
        ));
        let client = session(&server).await;
        // A name is admitted in a transaction that stays open, and a mark is written anew.
        client
            .batch_execute(
                "BEGIN; SELECT lock_core.admit('admitted', token) FROM lock_core.lock WHERE key = 'admitted';
                 UPDATE lock_core.done SET until = NULL WHERE version = 'v1'; UPDATE lock_core.job SET about = 'x' WHERE key = 'k';
                 UPDATE lock_core.blocked SET waits_for = 'x' WHERE key = 'k'",
            )
            .await
            .unwrap();
        let sweep = "SET lock_timeout = '100ms'; SELECT lock_core.sweep_v1(lock_core.sweep_begin_v1())";
        server.run(sweep);
        let left = |table: &str, what: &str| {
            server.run(&format!("SELECT string_agg({what}, ', ' ORDER BY {what}) FROM lock_core.{table}"))
        };
        assert_eq!(left("lock", "key"), "waited for");
        assert_eq!(left("fence", "resource"), "admitted, free, waited for", "a name that was admitted stays known");
        assert_eq!([left("done", "version"), left("job", "key"), left("blocked", "key")], ["v1", "k", "k"]);
        // Although the row of the lock with this name has gone.
        client.batch_execute("COMMIT").await.unwrap();
        let stale = server.try_run("SELECT lock_core.admit('admitted', 1)").unwrap_err();
        assert!(stale.contains("stale"), "{stale}");
        server.run("UPDATE lock_core.meta SET swept = now() + interval '1 year'");
        server.run(sweep);
        assert_eq!(
            [left("job", "key"), left("blocked", "key")],
            ["", ""],
            "also after a clock that was ahead was set back"
        );
        assert!(server.try_run("SELECT lock_core.admit('admitted', 1)").is_err());
    });
}

async fn queued_behind(store: &PostgresStore, server: &PostgresServer) -> bool {
    let (held, waits) = (claim("waited for", LONG), claim("waited for", LONG));
    granted(store, &held).await;
    let queued = queued(store, &waits, "nobody").await;
    server.run("UPDATE lock_core.lock SET owner = NULL WHERE key = 'waited for'");
    queued
}

/// A mark of the store waits no longer than any call for a transaction of the user that marks the same.
#[test]
#[limit]
fn a_mark_waits_for_no_transaction_without_end() {
    on_runtime(async {
        use lock_store::DoneMarks as _;
        let (server, store) = store();
        let held = claim("marked twice", LONG);
        let token = granted(&store, &held).await;
        let client = session(&server).await;
        let mark = format!("BEGIN; SELECT lock_core.mark_done('marked twice', {token}, 'v1')");
        client.batch_execute(&mark).await.unwrap();
        let version = lock_store::JobVersion::new("v1").unwrap();
        let call =
            format!("SELECT lock_core.mark_done_v1('marked twice', '{}', 'v1', NULL, 'on')", held.owner.to_hex());
        let said = server.try_run(&call).unwrap_err();
        assert!(said.contains("lock timeout"), "{said}");
        assert!(store.mark_done(&held, &version, None).await.is_err());
        client.batch_execute("COMMIT").await.unwrap();
        assert!(store.done(&held.key, &version).await.unwrap().is_some());
    });
}

/// A queue of messages that is full fails no release; its waiters ask, and are granted then.
#[test]
#[limit]
fn a_full_queue_of_messages_fails_no_release() {
    on_runtime(async {
        let (server, store) = (PostgresServer::start(), "lock_core");
        let text = PostgresStore::schema(store);
        assert_eq!(text.matches("pg_notification_queue_usage() < 0.9").count(), 2);
        server.run(&text.replace("pg_notification_queue_usage() < 0.9", "pg_notification_queue_usage() < 0"));
        let store = PostgresStore::new(&server.url()).unwrap();
        let (inbox, _reports) = inbox(EventLog::default());
        let id = inbox.id().to_string();
        let rule = async {
            while !inbox.is_open() {
                tokio::task::yield_now().await;
            }
            let (first, next) = (claim("full", LONG), claim("full", LONG));
            granted(&store, &first).await;
            assert!(queued(&store, &next, &id).await);
            assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
            granted(&store, &next).await;
        };
        tokio::select! {
            () = rule => {}
            error = store.drive(inbox.clone()) => panic!("the store stopped to listen: {error}"),
        }
    });
}

/// From 17 on a server can be given a queue that is soon full; up to 16 it has 8 GB.
#[test]
#[limit]
fn a_queue_of_messages_that_is_full_in_earnest_fails_no_release() {
    on_runtime(async {
        let server = PostgresServer::start();
        let newer = server.run("SELECT current_setting('server_version_num')::int >= 170000") == "t";
        let server = if newer { PostgresServer::start_with(&[("max_notify_queue_pages", "64")]) } else { server };
        let store = PostgresStore::new(&server.url()).unwrap();
        let (idle, presence, other) = (session(&server).await, session(&server).await, session(&server).await);
        let (first, next) = (claim("full", LONG), claim("full", LONG));
        granted(&store, &first).await;
        presence.batch_execute("SELECT pg_advisory_lock(lock_core.presence_v1('there'))").await.unwrap();
        assert!(queued(&store, &next, "there").await);
        // It listens once that is committed, and reads nothing while its transaction is open.
        idle.batch_execute("LISTEN other").await.unwrap();
        idle.batch_execute("BEGIN; SELECT 1").await.unwrap();
        let fill = "SELECT pg_notify('other', repeat('x', 7900) || random())";
        while newer && other.batch_execute(fill).await.is_ok() {}
        assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
        granted(&store, &next).await;
    });
}

/// If a commit finds the queue of messages full, its statement is sent once more, and no message with it.
#[test]
#[limit]
fn a_commit_that_finds_the_queue_of_messages_full_is_sent_once_more() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let (held, lost) = (claim("full", LONG), claim("revoked", LONG));
        granted(&store, &lost).await;
        let client = session(&server).await;
        // At the commit, as PostgreSQL itself does it. The count of a sequence stays after a rollback.
        let hook = "CREATE SEQUENCE tries; CREATE FUNCTION full_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                    IF nextval('public.tries') = 1 THEN RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END IF; \
                    RETURN NULL; END $$; CREATE CONSTRAINT TRIGGER full_once AFTER INSERT OR UPDATE ON lock_core.lock \
                    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION full_once()";
        client.batch_execute(hook).await.unwrap();
        for step in ["acquire", "renew", "release", "revoke"] {
            client.batch_execute("SELECT setval('tries', 1, false)").await.unwrap();
            match step {
                "acquire" => drop(granted(&store, &held).await),
                "renew" => assert_eq!(store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Renewed)]),
                "release" => assert_eq!(store.release(&Release::new(held.clone())).await, Ok(Freed::Released)),
                _ => {
                    let revocation = Revocation::new(RevokeFrom::Owner(lost.owner), "test", "");
                    assert_eq!(store.revoke(&lost.key, &revocation).await, Ok(Freed::Released));
                }
            }
            let tries: i64 = client.query_one("SELECT last_value FROM tries", &[]).await.unwrap().get(0);
            assert!(tries > 1, "{step} was refused once and sent again");
        }
    });
}
