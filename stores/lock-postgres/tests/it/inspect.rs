//! The operators' view of the locks in a database.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::inspect::{EntryState, FleetReader, ScanOptions};
use lock_core::{AnyBackend, LockBackend as _, LockErrorKind, LockKey, LockManager, Renew};
use lock_postgres::PostgresStore;
use lock_store::{Freed, Inspector as _, JobRun, Release};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, ended, granted, on_runtime, pid, pin, session, store};

fn fleet(server: &PostgresServer) -> FleetReader {
    FleetReader::of(AnyBackend::new(PostgresStore::new(&server.url()).unwrap()))
}

#[test]
#[limit]
fn a_transaction_that_keeps_a_lock_is_named_also_after_the_lease() {
    on_runtime(async {
        let (server, store) = store();
        let (fleet, client) = (fleet(&server), session(&server).await);
        let key = LockKey::new("seen: pinned").unwrap();
        let short = Duration::from_millis(300);
        let token = granted(&store, &claim(key.as_str(), short)).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, key.as_str(), token).await.unwrap();
        ended(&session(&server).await, key.as_str()).await;
        let entry = fleet.entry(&key).await.unwrap().expect("nobody else is granted it, so it is not free");
        let told = format!("the transaction of session {}, open for", pid(&client).await);
        let (name, value) = &entry.details[0];
        assert!(*name == "pinned by" && value.starts_with(&told), "{entry:?}");
        let by = format!("session {}", pid(&client).await);
        assert!(entry.pinned_for.is_some() && entry.pinned_by == Some(by), "{entry:?}");
        assert_eq!((entry.state, entry.holder.ttl_left), (EntryState::Held, Some(Duration::ZERO)));
        assert_eq!((entry.is_only_pinned(), entry.renewed_ago()), (true, None));
        client.batch_execute("COMMIT").await.unwrap();
        assert!(fleet.entry(&key).await.unwrap().is_none(), "free with the end of the transaction");
    });
}

#[test]
#[limit]
fn a_prepared_transaction_that_keeps_a_lock_is_seen_although_it_has_no_session() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("max_prepared_transactions", "1")]);
        let (fleet, client) = (fleet(&server), session(&server).await);
        let held = claim("prepared", LONG);
        let store = PostgresStore::new(&server.url()).unwrap();
        let token = granted(&store, &held).await;
        client.batch_execute("BEGIN").await.unwrap();
        pin(&client, "prepared", token).await.unwrap();
        client.batch_execute("PREPARE TRANSACTION 'one'").await.unwrap();
        let entry = fleet.entry(&held.key).await.unwrap().expect("held");
        let (_, told) = &entry.details[0];
        assert!(told.starts_with("a prepared transaction") && told.ends_with("ROLLBACK PREPARED 'one'"), "{entry:?}");
        assert_eq!(entry.ttl, Some(LONG));
    });
}

#[test]
#[limit]
fn a_walk_finds_locks_and_jobs_page_by_page_and_nothing_beside_its_prefix() {
    on_runtime(async {
        let (server, store) = store();
        let mut expected = BTreeMap::new();
        for number in 0..130 {
            let held = claim(&format!("walk:{number}"), LONG);
            granted(&store, &held).await;
            if number % 10 == 0 {
                let mut release = Release::new(held);
                release.run = Some(JobRun::new(LONG, true));
                store.release(&release).await.unwrap();
            } else {
                expected.insert(held.key, held.owner);
            }
        }
        for beside in ["walk", "walk;", "wall:1"] {
            granted(&store, &claim(beside, LONG)).await;
        }
        let fleet = fleet(&server);
        let mut scan = fleet.scan(ScanOptions::new().with_prefix("walk:"));
        let (mut found, mut pages) = (BTreeMap::new(), 0);
        while let Some(batch) = scan.next().await.unwrap() {
            pages += 1;
            found.extend(batch.into_iter().filter_map(|entry| Some((entry.key, entry.holder.owner?))));
        }
        assert_eq!((found, pages), (expected, 2));
        assert_eq!(scan.jobs().count(), 13, "jobs that ran and are not running");
    });
}

#[test]
#[limit]
fn whoever_only_looks_makes_no_tables() {
    on_runtime(async {
        let server = PostgresServer::start();
        let fleet = fleet(&server);
        let key = LockKey::new("nothing").unwrap();
        let refused = [
            fleet.entry(&key).await.map(drop),
            fleet.waiters(&key).await.map(drop),
            fleet.job(&key).await.map(drop),
            fleet.blocked(&key).await.map(drop),
            fleet.scan(ScanOptions::new()).next().await.map(drop),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert!(
                error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("not installed"),
                "{error}"
            );
        }
        assert_eq!(server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_core'"), "0");
    });
}

/// The time-out of a waiter, and the refusal of a caller that does not wait, say what is in the way.
#[test]
#[limit]
fn whoever_is_refused_a_pinned_lock_is_told_which_session_has_it_and_what_ends_that() {
    on_runtime(async {
        let (server, _) = store();
        let [one, two] =
            [LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap()];
        let client = session(&server).await;
        for (key, released) in [("told: lease", false), ("told: released", true)] {
            let guard = one
                .lock(key)
                .with_site("shop::charge")
                .with_ttl(Duration::from_millis(500))
                .with_renew(Renew::Off)
                .await
                .unwrap();
            client.batch_execute("BEGIN").await.unwrap();
            pin(&client, key, guard.token()).await.unwrap();
            if released {
                guard.release().await.unwrap();
            }
            ended(&session(&server).await, key).await;
            let pid = pid(&client).await;
            let session = format!("pinned by the transaction of session {pid}, open for ");
            let ends = format!("(COMMIT or ROLLBACK there, or SELECT pg_terminate_backend({pid}))");
            let waited = two.lock(key).with_wait(Duration::from_millis(500)).await.unwrap_err();
            let all = two.lock_all([key, "told: beside"]).with_wait(Duration::from_millis(500)).await.unwrap_err();
            let busy = two.lock(key).without_waiting().await.unwrap_err();
            for error in [waited, all, busy] {
                let text = error.to_string();
                assert!(text.contains(&session) && text.contains(&ends), "{text}");
                assert!(!text.contains("lease ends in") && text.contains("shop::charge"), "{text}");
            }
            client.batch_execute("COMMIT").await.unwrap();
        }
    });
}

/// A transaction that has locked the row, by whatever statement, holds up every call for the lock.
#[test]
#[limit(120)]
fn a_transaction_that_keeps_a_row_locked_is_named_with_what_ends_it() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("max_prepared_transactions", "5")]);
        let store = PostgresStore::new(&server.url()).unwrap();
        let held = claim("k", LONG);
        granted(&store, &held).await;
        let (user, other) = (session(&server).await, session(&server).await);
        let (first, second) = (pid(&user).await, pid(&other).await);
        let row = |lock: &str| format!("SELECT FROM lock_core.lock WHERE key = 'k' FOR {lock}");
        let prepare = format!("BEGIN; {}; PREPARE TRANSACTION 'kept'", row("UPDATE"));
        let alone = format!("session {first}");
        for (begins, words, ends) in [
            (format!("BEGIN; {}", row("UPDATE")), vec![alone.clone()], "ROLLBACK"),
            (format!("BEGIN; SAVEPOINT s; {}", row("NO KEY UPDATE")), vec![alone.clone()], "ROLLBACK"),
            (
                "BEGIN; UPDATE lock_core.lock SET about = about WHERE key = 'k'".to_owned(),
                vec![alone.clone()],
                "ROLLBACK",
            ),
            ("BEGIN; DELETE FROM lock_core.lock WHERE key = 'k'".to_owned(), vec![alone.clone()], "ROLLBACK"),
            (format!("BEGIN; {}", row("SHARE")), vec![alone.clone(), format!("session {second}")], "ROLLBACK"),
            ("BEGIN; LOCK TABLE lock_core.lock IN SHARE MODE".to_owned(), vec![alone, "table".to_owned()], "ROLLBACK"),
            (prepare, vec!["'kept'".to_owned()], "ROLLBACK PREPARED 'kept'"),
        ] {
            user.batch_execute(&begins).await.unwrap();
            if words.len() == 2 && begins.contains("FOR SHARE") {
                other.batch_execute(&begins).await.unwrap();
            }
            let error = store.release(&Release::new(held.clone())).await.unwrap_err();
            let entry = store.entry(&held.key).await.unwrap().unwrap();
            let kept = entry.holder.kept_by.map(|text| text.to_string()).unwrap_or_default();
            for text in [error.to_string(), kept] {
                assert!(words.iter().all(|word| text.contains(word)) && text.contains("ROLLBACK"), "{begins}: {text}");
            }
            assert!(error.is_transient() && error.to_string().contains("lock timeout"), "{error}");
            let _ = other.batch_execute("ROLLBACK").await;
            user.batch_execute(ends).await.unwrap();
            let entry = store.entry(&held.key).await.unwrap().unwrap();
            assert_eq!(entry.holder.kept_by, None, "after {begins}");
        }
        // A pin is a share of the key, which no call but a takeover waits for.
        user.batch_execute("BEGIN; SELECT FROM lock_core.lock WHERE key = 'k' FOR KEY SHARE").await.unwrap();
        assert_eq!(store.entry(&held.key).await.unwrap().unwrap().holder.kept_by, None);
        assert_eq!(store.release(&Release::new(held)).await, Ok(Freed::Released));
    });
}
