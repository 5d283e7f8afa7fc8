//! The mark of work that is done once for a version is a row that stays.

use std::time::Duration;

use lock_core::testing::{PostgresServer, limit};
use lock_core::{DoneMarks, JobVersion, LockBackend, LockErrorKind, LockKey, LockManager, MAX_VERSION_BYTES, Release};
use lock_postgres::PostgresStore;

use crate::support::{LONG, claim, granted, on_runtime, refusal, session};

fn version(text: &str) -> JobVersion {
    JobVersion::new(text).unwrap()
}

#[test]
#[limit]
fn it_is_done_until_it_is_forgotten_or_its_time_is_over() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let holder = claim("migrate", LONG);
        granted(&store, &holder).await;
        assert_eq!(store.mark_done(&holder, &version("v1"), None).await, Ok(true));
        assert_eq!(store.mark_done(&holder, &version("v2"), Some(Duration::from_secs(3600))).await, Ok(true));
        store.release(&Release::new(holder.clone())).await.unwrap();
        let kept = "SELECT version || ' ' || coalesce(round(extract(epoch FROM until - at))::text, 'for ever') \
                    FROM lock_core.done ORDER BY version";
        assert_eq!(server.run(kept), "v1 for ever\nv2 3600");
        // Years later, when the lock itself has long been swept out.
        server.run("UPDATE lock_core.done SET at = at - interval '9 years', until = until - interval '9 years'");
        server.run("UPDATE lock_core.lock SET until = until - interval '9 years'");
        server.run("SELECT lock_core.sweep_v1(coalesce(lock_core.sweep_begin_v1(), 0))");
        assert_eq!(server.run("SELECT version FROM lock_core.done"), "v1");
        assert_eq!(server.run("SELECT count(*) FROM lock_core.lock"), "0");
        let mark = store.done(&holder.key, &version("v1")).await.unwrap().unwrap();
        assert!(mark.ago > Duration::from_secs(8 * 365 * 24 * 3600), "{mark:?}");
        assert_eq!(store.done(&holder.key, &version("v2")).await, Ok(None));
    });
}

#[test]
#[limit]
fn the_longest_names_are_kept_and_what_nobody_of_ours_wrote_is_named() {
    on_runtime(async {
        let server = PostgresServer::start();
        let store = PostgresStore::new(&server.url()).unwrap();
        let (long, holder) = (version(&"é".repeat(MAX_VERSION_BYTES / 2)), claim(&"ü".repeat(256), LONG));
        granted(&store, &holder).await;
        assert_eq!(store.mark_done(&holder, &long, None).await, Ok(true));
        assert!(store.done(&holder.key, &long).await.unwrap().is_some());
        server.run("INSERT INTO lock_core.done VALUES ('migrate', 'v1', 'by hand', now())");
        let error = store.done(&LockKey::new("migrate").unwrap(), &version("v1")).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("was not written by a lock store") && error.to_string().contains("migrate"));
    });
}

/// A database whose functions were made before there were marks, and a user who may not call them.
#[test]
#[limit]
fn who_may_not_ask_does_not_know_whether_it_is_done() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(&PostgresStore::schema("lock_core"));
        server.run("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lock_core TO app");
        server.run("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO app");
        server.run("REVOKE EXECUTE ON FUNCTION lock_core.done_v1(text[], text) FROM app");
        let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
        let locks = LockManager::connect(&url).await.unwrap();
        drop(locks.lock("before").await.unwrap());
        let error =
            locks.lock("migrate").once_for("v1").run(async |_| Ok::<_, lock_core::LockError>(())).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("unknown whether the work is done"), "{error}");
        drop(locks.lock("after").await.unwrap());
    });
}

/// The mark in the transaction of the work, as a library would write it.
#[test]
#[limit]
fn a_mark_and_its_work_are_committed_together_or_not_at_all() {
    on_runtime(async {
        let server = PostgresServer::start();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        server.run("CREATE TABLE work (n int)");
        let mut client = session(&server).await;
        let v1 = version("v1");
        for (end, done) in [("ROLLBACK", false), ("COMMIT", true)] {
            let guard = locks.lock("migrate").await.unwrap();
            let mark = lock_postgres::mark_done(&guard, &v1);
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&mark.key(), &mark.token(), &mark.version()];
            // Alone it is the whole transaction, and marks nothing.
            assert_eq!(refusal(client.execute(mark.text(), &values).await).0, "LK004");
            client.batch_execute("BEGIN").await.unwrap();
            client.execute(mark.text(), &values).await.unwrap();
            client.batch_execute("INSERT INTO work VALUES (1)").await.unwrap();
            assert_eq!(locks.done("migrate", "v1").await.unwrap(), None, "not before the commit");
            client.batch_execute(end).await.unwrap();
            assert_eq!(locks.done("migrate", "v1").await.unwrap().is_some(), done, "{end}");
            guard.release().await.unwrap();
        }
        assert_eq!(server.run("SELECT count(*) FROM work"), "1");
        let again = locks.lock("migrate").once_for("v1").run(async |_| Ok::<_, lock_core::LockError>(()));
        assert_eq!(again.await.unwrap(), None, "done before");
        // A caller that did not check finds out. For another version, the work is not done.
        let guard = locks.lock("migrate").await.unwrap();
        for (version, code) in [(&v1, Some("LK005")), (&version("v2"), None)] {
            let mark = lock_postgres::mark_done(&guard, version);
            let transaction = client.transaction().await.unwrap();
            let answer = transaction.execute(mark.text(), &[&mark.key(), &mark.token(), &mark.version()]).await;
            match code {
                Some(code) => assert_eq!(refusal(answer).0, code),
                None => drop(answer.unwrap()),
            }
            transaction.rollback().await.unwrap();
        }
        // Lost, and not a version.
        let token = i64::try_from(guard.token().get()).unwrap();
        for (token, text, code) in [(token - 128, "v3", "LK001"), (token, "", "22023")] {
            client.batch_execute("BEGIN").await.unwrap();
            let answer = client.execute("SELECT lock_core.mark_done('migrate', $1, $2)", &[&token, &text]).await;
            assert_eq!(refusal(answer).0, code);
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        assert_eq!(server.run("SELECT string_agg(version, ' ') FROM lock_core.done"), "v1");
    });
}
