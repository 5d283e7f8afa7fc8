//! A database whose schema an earlier build has made.

use lock_core::{FencingToken, HolderInfo, LockBackend, LockErrorKind};
use lock_postgres::PostgresStore;
use lock_store::AcquireRequest;
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime, pin, refusal, refused, session};

/// The schema that builds of the first version made, and the part that those of the second added.
const FIRST: &str = include_str!("../fixtures/v1.sql");
const SECOND: &str = include_str!("../fixtures/v2.sql");

/// The functions that builds of the third version had, over the tables of today.
const THIRD: &str = include_str!("../fixtures/v3.sql");

/// The pins that builds of the fourth version had.
const FOURTH: &str = include_str!("../fixtures/v4.sql");

/// How builds of the fifth version took locks and renewed.
const FIFTH: &str = include_str!("../fixtures/v5.sql");

/// Holds a lock as a program of the first version does.
const HELD: &str = "SELECT outcome FROM lock_core.acquire_v1('{held}', '{00000000-0000-0000-0000-000000000001}', '{600000}', '{0}', '{x}', \
                    '{9000000000000000}', '{NULL}', '{0}', '{0}', 'on')";

fn url(server: &PostgresServer, user: &str, rest: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres{rest}", server.port())
}

#[track_caller]
fn says(error: Result<(), lock_core::LockError>, words: &[&str]) {
    let error = error.expect_err("it is refused");
    let text = error.to_string();
    assert!(error.kind() == LockErrorKind::Misconfigured && words.iter().all(|word| text.contains(word)), "{text}");
}

async fn connects(url: &str) -> Result<(), lock_core::LockError> {
    let store = PostgresStore::new(url).unwrap();
    let request = AcquireRequest::new(claim("connects", LONG), HolderInfo::new("here", 1, "test"));
    store.try_acquire(&request).await.map(drop)
}

#[test]
#[limit]
fn an_earlier_schema_is_migrated_by_its_owner_and_others_are_told_what_to_run() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(FIRST);
        server.run("CREATE ROLE app LOGIN; CREATE ROLE stranger; GRANT USAGE ON SCHEMA lock_core TO app");
        server.run("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO app");
        assert_eq!(server.run(HELD), "granted");
        for url in [url(&server, "app", ""), url(&server, "test", "?migrate=never")] {
            says(
                connects(&url).await,
                &["has version 1", "version 6", "run the files of sql/ of", "owner of the schema lock_core"],
            );
        }
        let versions = "SELECT version, oldest FROM lock_core.meta";
        assert_eq!(server.run(versions), "1|1", "nothing was changed");

        let owner = PostgresStore::new(&server.url()).unwrap();
        granted(&owner, &claim("migrates", LONG)).await;
        assert_eq!(server.run(versions), "6|1", "programs of the first version go on");
        assert!(refused(&owner, &claim("held", LONG)).await, "whoever had a lock has it still");
        connects(&url(&server, "app", "?migrate=never")).await.unwrap();
        let may = |user: &str| {
            server.run(&format!(
                "SELECT has_function_privilege('{user}', 'lock_core.mark_done(text, bigint, text)', 'EXECUTE')"
            ))
        };
        assert_eq!([may("app"), may("stranger")], ["t", "f"], "whoever may pin may mark");
    });
}

#[test]
#[limit]
fn whoever_only_looks_migrates_nothing() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(FIRST);
        let looks = PostgresStore::new(&server.url()).unwrap();
        let seen = looks.holder(&claim("held", LONG).key).await;
        says(seen.map(drop), &["has version 1", "run the files of sql/ of"]);
        assert_eq!(server.run("SELECT version FROM lock_core.meta"), "1");
    });
}

#[test]
#[limit]
fn a_migration_that_is_run_again_takes_no_later_version_back() {
    let server = PostgresServer::start();
    server.run(&PostgresStore::schema("lock_core"));
    server.run("UPDATE lock_core.meta SET version = 7");
    server.run(&PostgresStore::schema("lock_core"));
    assert_eq!(server.run("SELECT version FROM lock_core.meta"), "7");
}

#[test]
#[limit]
fn whoever_may_pin_may_mark_whatever_the_name_and_nobody_else() {
    let server = PostgresServer::start();
    server.run("CREATE ROLE \"the App; of 2\"; CREATE ROLE stranger");
    let first = |schema: &str| {
        FIRST.replace("lock_core.", &format!("{schema}.")).replace("SCHEMA lock_core", &format!("SCHEMA {schema}"))
    };
    for (schema, who) in [("one", "\"the App; of 2\""), ("all_of_them", "PUBLIC")] {
        server.run(&first(schema));
        server.run(&format!("GRANT EXECUTE ON FUNCTION {schema}.pin(text, bigint) TO {who}"));
        server.run(&PostgresStore::schema(schema));
    }
    let may = |role: &str, schema: &str| {
        server.run(&format!(
            "SELECT has_function_privilege('{role}', '{schema}.mark_done(text, bigint, text)', 'EXECUTE')"
        ))
    };
    assert_eq!([may("the App; of 2", "one"), may("stranger", "one")], ["t", "f"]);
    assert_eq!([may("the App; of 2", "all_of_them"), may("stranger", "all_of_them")], ["t", "t"]);
}

#[test]
#[limit]
fn an_earlier_schema_is_migrated_by_hand_or_by_one_of_many() {
    on_runtime(async {
        let server = PostgresServer::start();
        let earlier = |schema: &str| {
            format!("DROP FUNCTION {schema}.mark_done(text, bigint, text); UPDATE {schema}.meta SET version = 1")
        };
        server.run(&PostgresStore::schema("locks"));
        server.run(&earlier("locks"));
        let never = url(&server, "test", "?schema=locks&migrate=never");
        says(connects(&never).await, &["run the files of sql/ of", "owner of the schema locks"]);
        for _ in 0..2 {
            server.run(&PostgresStore::schema("locks"));
            connects(&never).await.unwrap();
        }
        // Made by a build that had the function, and called that the first version.
        server.run("UPDATE locks.meta SET version = 1");
        connects(&url(&server, "test", "?schema=locks")).await.unwrap();
        assert_eq!(server.run("SELECT version FROM locks.meta"), "6");

        server.run(FIRST);
        for _ in 0..2 {
            let come = |_| {
                tokio::spawn({
                    let url = server.url();
                    async move { connects(&url).await }
                })
            };
            for one in (0..8).map(come).collect::<Vec<_>>() {
                one.await.unwrap().unwrap();
            }
            server.run(&earlier("lock_core"));
        }
    });
}

#[test]
#[limit]
fn functions_that_are_missing_are_made_by_the_owner_and_named_to_others() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(&PostgresStore::schema("lock_core"));
        server.run("DROP FUNCTION lock_core.done_v1(text[], text)");
        says(
            connects(&url(&server, "test", "?migrate=never")).await,
            &["lacks lock_core.done_v1,", "run the files of sql/ of"],
        );
        connects(&server.url()).await.unwrap();
        connects(&url(&server, "test", "?migrate=never")).await.unwrap();
    });
}

/// Rights that an administrator has granted since stay, and no other role may call a new function.
#[test]
#[limit]
fn a_schema_of_each_version_is_brought_up_to_date_with_the_rights_that_were_granted() {
    let server = PostgresServer::start();
    server.run("CREATE ROLE stranger");
    for before in [FIRST.to_owned(), format!("{FIRST}{SECOND}")] {
        server.run(&before);
        server.run("GRANT EXECUTE ON FUNCTION lock_core.admit(text, bigint) TO PUBLIC");
        server.run(&PostgresStore::schema("lock_core"));
        let open = "SELECT string_agg(p.proname, ' ') FROM pg_proc p WHERE p.pronamespace = 'lock_core'::regnamespace \
                    AND has_function_privilege('stranger', p.oid, 'EXECUTE')";
        assert_eq!(server.run(open), "admit");
        server.run("DROP SCHEMA lock_core CASCADE");
    }
}

/// A program of the third version is in the middle of a call while another one migrates. Both lock the same row.
#[test]
#[limit]
fn calls_of_the_version_before_exclude_those_of_today() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(&PostgresStore::schema("lock_core"));
        server.run(THIRD);
        let never = url(&server, "test", "?migrate=never");
        says(connects(&never).await, &["has version 3", "version 6", "run the files of sql/ of"]);
        // The row of one lock is new, and that of the other is there and free.
        server.run(&HELD.replace("{held}", "{free}"));
        server.run("UPDATE lock_core.lock SET owner = NULL, until = 'epoch' WHERE key = 'free'");
        let before = session(&server).await;
        before.batch_execute(&format!("BEGIN; {HELD}; {}", HELD.replace("{held}", "{free}"))).await.unwrap();
        let today = PostgresStore::new(&server.url()).unwrap();
        granted(&today, &claim("migrates", LONG)).await;
        assert_eq!(server.run("SELECT version FROM lock_core.meta"), "6");
        let (held, free) = (claim("held", LONG), claim("free", LONG));
        let commits = async {
            let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
            while server.run(waits) == "0" {}
            before.batch_execute("COMMIT").await.unwrap();
        };
        let (new, ()) = tokio::join!(refused(&today, &held), commits);
        assert!(new && refused(&today, &free).await);
        let owner = "00000000-0000-0000-0000-000000000001";
        let frees = format!(
            "SELECT freed FROM lock_core.release_v1('{{held}}', '{{{owner}}}', '{{0}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', 'on')"
        );
        assert_eq!(server.run(&frees), "t");
        granted(&today, &held).await;
    });
}

/// A transaction pins a lock before a migration replaces the functions of the pin, and commits after it.
#[test]
#[limit]
fn a_pin_of_the_version_before_lasts_over_a_migration() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(&PostgresStore::schema("lock_core"));
        server.run(FOURTH);
        server.run(HELD);
        let token = server.run("SELECT token FROM lock_core.lock").parse().unwrap();
        let user = session(&server).await;
        user.batch_execute("BEGIN").await.unwrap();
        pin(&user, "held", FencingToken::new(token)).await.unwrap();
        let today = PostgresStore::new(&server.url()).unwrap();
        granted(&today, &claim("migrates", LONG)).await;
        assert_eq!(server.run("SELECT version FROM lock_core.meta"), "6");
        server.run("UPDATE lock_core.lock SET until = 'epoch' WHERE key = 'held'");
        assert!(refused(&today, &claim("held", LONG)).await);
        user.batch_execute("COMMIT; BEGIN").await.unwrap();
        pin(&user, "held", FencingToken::new(token)).await.unwrap();
        assert!(refused(&today, &claim("held", LONG)).await);
        user.batch_execute("COMMIT").await.unwrap();
        assert_eq!(refusal(pin(&user, "held", FencingToken::new(token)).await).0, "LK004");
    });
}

/// A program of the fifth version is in the middle of its renewals while another one migrates. It has prepared its statement.
#[test]
#[limit]
fn renewals_of_the_version_before_go_on_over_a_migration() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run(&PostgresStore::schema("lock_core"));
        server.run(FIFTH);
        says(connects(&url(&server, "test", "?migrate=never")).await, &["has version 5", "version 6"]);
        server.run(HELD);
        let renews = "SELECT renewed FROM lock_core.renew_v2('{held, never}', \
                      '{00000000-0000-0000-0000-000000000001, 00000000-0000-0000-0000-000000000001}', '{600000, 600000}', 'on', 0)";
        let before = session(&server).await;
        let statement = before.prepare(renews).await.unwrap();
        let renewed = async || {
            let rows = before.query(&statement, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect::<Vec<bool>>()
        };
        before.batch_execute("BEGIN").await.unwrap();
        assert_eq!(renewed().await, [true, false]);
        let today = PostgresStore::new(&server.url()).unwrap();
        granted(&today, &claim("migrates", LONG)).await;
        assert_eq!(server.run("SELECT version FROM lock_core.meta"), "6");
        assert_eq!(renewed().await, [true, false], "in the transaction that began before");
        before.batch_execute("COMMIT").await.unwrap();
        assert_eq!(renewed().await, [true, false]);
        assert!(refused(&today, &claim("held", LONG)).await);
    });
}

/// An administrator makes the schema for a role that may make none.
#[test]
#[limit]
fn a_schema_that_is_empty_is_filled_by_its_owner() {
    on_runtime(async {
        let server = PostgresServer::start();
        server.run("CREATE ROLE app LOGIN; CREATE SCHEMA lock_core AUTHORIZATION app");
        connects(&url(&server, "app", "")).await.unwrap();
        connects(&url(&server, "app", "?migrate=never")).await.unwrap();
    });
}
