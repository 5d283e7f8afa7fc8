//! The findings of the doctor on real servers. The settings that it names repair them.

use lock_core::LockBackend as _;
use lock_postgres::PostgresStore;
use lock_store::{Doctor as _, Finding, FindingGrade};
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, claim, granted, on_runtime, pid, session};

async fn examine(url: &str) -> Vec<Finding> {
    PostgresStore::new(url).unwrap().examine().await
}

fn url(server: &PostgresServer, user: &str, rest: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/postgres{rest}", server.port())
}

#[track_caller]
fn about<'a>(found: &'a [Finding], subject: &str) -> &'a Finding {
    found.iter().find(|one| one.subject == subject).unwrap_or_else(|| panic!("nothing about {subject} in {found:#?}"))
}

#[track_caller]
fn says(found: &[Finding], subject: &str, grade: FindingGrade, words: &[&str]) {
    let finding = about(found, subject);
    assert!(finding.grade == grade && words.iter().all(|word| finding.says.contains(word)), "{finding:#?}");
    assert_eq!(
        finding.remedy.is_some(),
        grade != FindingGrade::Works,
        "what to do, where there is something: {finding:#?}"
    );
}

/// A server that is set as an application would have it.
fn sound() -> PostgresServer {
    PostgresServer::start_with(&[("fsync", "on"), ("idle_in_transaction_session_timeout", "60s")])
}

#[test]
#[limit]
fn a_sound_server_has_no_warning_and_nothing_is_made_of_it() {
    on_runtime(async {
        let server = sound();
        let found = examine(&server.url()).await;
        assert!(found.iter().all(|one| one.grade == FindingGrade::Works), "{found:#?}");
        says(&found, "schema", FindingGrade::Works, &["not there yet"]);
        assert_eq!(server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'lock_core'"), "0");
        let never = examine(&url(&server, "test", "?migrate=never")).await;
        says(&never, "schema", FindingGrade::Refused, &["is not there", "migrate=never"]);
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        let found = examine(&server.url()).await;
        assert!(found.iter().all(|one| one.grade == FindingGrade::Works), "{found:#?}");
        says(&found, "schema", FindingGrade::Works, &["lock_core, of version 6"]);
        says(&found, "functions", FindingGrade::Works, &["all are there"]);
        says(&found, "waiters", FindingGrade::Works, &["told at once"]);
    });
}

#[test]
#[limit]
fn what_a_user_is_set_to_is_named_and_mended_by_what_is_said() {
    on_runtime(async {
        let server = sound();
        for (number, (setting, value, grade, words)) in [
            ("idle_in_transaction_session_timeout", "0", FindingGrade::Warning, "keeps it for ever"),
            ("statement_timeout", "'200ms'", FindingGrade::Works, "200 ms for this user's own transactions; a call"),
            ("statement_timeout", "0", FindingGrade::Works, "ends after 8 s"),
            ("lock_timeout", "0", FindingGrade::Works, "a pin waits until the one before it ends; a call"),
            ("lock_timeout", "1", FindingGrade::Works, "1 ms for this user's own transactions; a call"),
            ("idle_session_timeout", "'5s'", FindingGrade::Works, "5000 ms for this user's own sessions"),
            ("default_transaction_isolation", "serializable", FindingGrade::Works, "serializable; sessions"),
            ("default_transaction_read_only", "on", FindingGrade::Refused, "only read"),
        ]
        .into_iter()
        .enumerate()
        {
            let user = format!("user {number}");
            server
                .run(&format!("CREATE ROLE \"{user}\" LOGIN SUPERUSER; ALTER ROLE \"{user}\" SET {setting} = {value}"));
            let subject = if grade == FindingGrade::Refused { "primary" } else { setting };
            let url = url(&server, &user.replace(' ', "%20"), "");
            let found = examine(&url).await;
            says(&found, subject, grade, &[words]);
            if let Some(remedy) = about(&found, subject).remedy.clone() {
                server.run(&format!("SET default_transaction_read_only = off; {remedy}"));
                let found = examine(&url).await;
                assert_eq!(about(&found, subject).grade, FindingGrade::Works, "after {remedy}: {found:#?}");
            }
        }
    });
}

#[test]
#[limit]
fn what_a_user_may_not_do_is_named_and_mended_by_what_is_said() {
    on_runtime(async {
        let server = sound();
        server.run("CREATE ROLE app LOGIN");
        let app = url(&server, "app", "");
        says(&examine(&app).await, "schema", FindingGrade::Refused, &["is not there", "this user may not make it"]);
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        for (subject, words) in
            [("schema", "may not use the schema lock_core"), ("functions", "may not call any function")]
        {
            let found = examine(&app).await;
            says(&found, subject, FindingGrade::Refused, &[words]);
            server.run(about(&found, subject).remedy.as_deref().unwrap());
        }
        let found = examine(&app).await;
        assert!(found.iter().all(|one| one.grade == FindingGrade::Works), "{found:#?}");
        server.run("REVOKE EXECUTE ON FUNCTION lock_core.done_v1(text[], text) FROM app");
        says(&examine(&app).await, "functions", FindingGrade::Warning, &["may not call done_v1"]);
        server.run("REVOKE ALL ON FUNCTION lock_core.renew_v2(text[], uuid[], bigint[], text, bigint) FROM app");
        says(&examine(&app).await, "functions", FindingGrade::Refused, &["done_v1, renew_v2"]);
        for (version, oldest, words) in [(0, 0, "has version 0"), (9, 8, "from version 8 on")] {
            server.run(&format!("UPDATE lock_core.meta SET version = {version}, oldest = {oldest}"));
            let found = examine(&server.url()).await;
            let schema = about(&found, "schema");
            assert!(schema.grade == FindingGrade::Refused && schema.says.contains(words), "{schema:#?}");
        }
        // As earlier builds made it.
        let drop =
            "DROP FUNCTION lock_core.mark_done(text, bigint, text); UPDATE lock_core.meta SET version = 1, oldest = 1";
        for (drop, words) in [
            (drop, "has version 1 and lacks"),
            ("DROP FUNCTION lock_core.done_v1(text[], text)", "run the files of sql/"),
        ] {
            server.run(drop);
            // The sentence itself says what to run.
            let found = examine(&server.url()).await;
            let functions = about(&found, "functions");
            assert!(functions.grade == FindingGrade::Refused && functions.says.contains(words), "{functions:#?}");
            server.run("UPDATE lock_core.meta SET version = 3");
        }
    });
}

#[test]
#[limit(120)]
fn a_pooler_and_where_to_listen_past_it_are_found() {
    on_runtime(async {
        let (server, other) = (sound(), sound());
        let found = examine(&server.pooler().url()).await;
        says(&found, "statement_timeout", FindingGrade::Warning, &["through a pooler"]);
        server.run(about(&found, "statement_timeout").remedy.as_deref().unwrap());
        let (pooler, port) = (server.pooler(), server.port());
        says(&examine(&pooler.url()).await, "waiters", FindingGrade::Warning, &["pooler by transaction"]);
        let listening = |port: u16| format!("{}?listen=127.0.0.1:{port}", pooler.url());
        let found = examine(&listening(port)).await;
        says(&found, "waiters", FindingGrade::Works, &["past the pooler"]);
        assert!(found.iter().all(|one| one.grade == FindingGrade::Works), "{found:#?}");
        says(&examine(&listening(other.port())).await, "waiters", FindingGrade::Warning, &["is not heard"]);
        let second = pooler.url().rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap();
        says(&examine(&listening(second)).await, "waiters", FindingGrade::Warning, &["leads to a pooler"]);
        server.run("ALTER ROLE test SET default_transaction_isolation = serializable");
        let strict = server.pooler();
        let found = examine(&strict.url()).await;
        says(&found, "default_transaction_isolation", FindingGrade::Refused, &["would stay with others"]);
        server.run(about(&found, "default_transaction_isolation").remedy.as_deref().unwrap());
        drop(strict);
        let found = examine(&server.pooler().url()).await;
        says(&found, "default_transaction_isolation", FindingGrade::Works, &[]);
    });
}

#[test]
#[limit]
fn what_a_commit_and_a_failover_lose_is_said() {
    on_runtime(async {
        let server = PostgresServer::start();
        says(&examine(&server.url()).await, "synchronous_commit", FindingGrade::Warning, &["fsync is off"]);
        let server = sound();
        let with = async |rest: &str| examine(&url(&server, "test", rest)).await;
        says(&with("?commit=off").await, "synchronous_commit", FindingGrade::Warning, &["forgets locks"]);
        let found = with("?commit=remote_apply").await;
        says(&found, "synchronous_commit", FindingGrade::Works, &["remote_apply for grants"]);
        says(&found, "synchronous_standby_names", FindingGrade::Warning, &["waits for nobody"]);
        says(&with("").await, "synchronous_standby_names", FindingGrade::Works, &["nobody follows"]);
        server.run("ALTER SYSTEM SET synchronous_standby_names = 'ANY 2 (*)'; SELECT pg_reload_conf()");
        while server.run("SHOW synchronous_standby_names").is_empty() {}
        says(&with("").await, "synchronous_standby_names", FindingGrade::Refused, &["waits for 2", "0 of them"]);
        says(&with("?commit=off").await, "synchronous_standby_names", FindingGrade::Warning, &["waits for nobody"]);
    });
}

#[test]
#[limit]
fn what_makes_a_database_slow_or_full_is_found_before() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("max_connections", "12"), ("track_counts", "off")]);
        let found = examine(&server.url()).await;
        says(&found, "max_connections", FindingGrade::Warning, &["of 12 connections are free"]);
        says(&found, "autovacuum", FindingGrade::Warning, &["track_counts is off"]);
        let server = sound();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run("ALTER TABLE lock_core.waiter SET (autovacuum_enabled = off)");
        let found = examine(&server.url()).await;
        says(&found, "autovacuum", FindingGrade::Warning, &["lock_core.waiter", "without end"]);
        server.run(about(&found, "autovacuum").remedy.as_deref().unwrap());
        says(&examine(&server.url()).await, "autovacuum", FindingGrade::Works, &[]);
        server.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
        let latin = examine(&server.url().replace("/postgres", "/latin")).await;
        says(&latin, "encoding", FindingGrade::Warning, &["LATIN1"]);
    });
}

/// Ends so many transactions that each had a number.
fn pass(server: &PostgresServer, transactions: u32) {
    server.run(&format!(
        "DO $$ BEGIN FOR i IN 1 .. {transactions} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
    ));
}

#[test]
#[limit(150)]
fn what_keeps_dead_rows_is_named_with_what_ends_it() {
    on_runtime(async {
        let server = PostgresServer::start_with(&[("max_prepared_transactions", "1")]);
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run("CREATE DATABASE other");
        let beside = server.url().replace("/postgres", "/other");
        let (dump, driver) = tokio_postgres::connect(&beside, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(driver);
        // It reads of another database, whose rows alone it keeps.
        dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
        pass(&server, 20_000);
        says(&examine(&server.url()).await, "old transactions", FindingGrade::Works, &["none keeps dead rows"]);
        dump.batch_execute("ROLLBACK").await.unwrap();

        let dump = session(&server).await;
        dump.batch_execute("SET application_name = pg_dump; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            .await
            .unwrap();
        pass(&server, 20_000);
        let found = examine(&server.url()).await;
        let session = format!("session {} (pg_dump) has been open for", pid(&dump).await);
        says(&found, "old transactions", FindingGrade::Warning, &[&session, "half a millisecond"]);
        let remedy = about(&found, "old transactions").remedy.clone().unwrap();
        server.run(remedy.split_once("or ").unwrap().1);
        says(&examine(&server.url()).await, "old transactions", FindingGrade::Works, &[]);

        server.run("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'it''s one'");
        pass(&server, 20_000);
        let found = examine(&server.url()).await;
        says(&found, "old transactions", FindingGrade::Warning, &["prepared transaction it's one of test"]);
        let remedy = about(&found, "old transactions").remedy.clone().unwrap();
        server.run(remedy.split_once("or ").unwrap().1);
    });
}

#[test]
#[limit(150)]
fn what_a_standby_keeps_is_named_with_what_ends_it() {
    on_runtime(async {
        let server = PostgresServer::start();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        // A standby that says what its queries read.
        server.run("ALTER SYSTEM SET hot_standby_feedback = on");
        server.run("ALTER SYSTEM SET wal_receiver_status_interval = '1s'");
        let standby = server.standby("follower", server.port());
        let (reader, driver) = tokio_postgres::connect(&standby.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(driver);
        reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
        while server.run("SELECT count(backend_xmin) FROM pg_stat_replication") == "0" {}
        pass(&server, 20_001);
        says(
            &examine(&server.url()).await,
            "old transactions",
            FindingGrade::Warning,
            &["standby follower", "hot_standby_feedback"],
        );
        // A slot keeps what it was told, also when its standby has gone.
        server.run("SELECT pg_create_physical_replication_slot('left_behind')");
        standby.run("ALTER SYSTEM SET primary_slot_name = 'left_behind'; SELECT pg_reload_conf()");
        while server.run("SELECT count(xmin) FROM pg_replication_slots") == "0" {}
        drop(standby);
        while server.run("SELECT count(*) FROM pg_replication_slots WHERE active") != "0" {}
        pass(&server, 20_001);
        let found = examine(&server.url()).await;
        says(&found, "old transactions", FindingGrade::Warning, &["slot left_behind, used by nobody"]);
        let remedy = about(&found, "old transactions").remedy.clone().unwrap();
        server.run(remedy.split_once("or ").unwrap().1.trim_end_matches(" if nothing needs it"));
        says(&examine(&server.url()).await, "old transactions", FindingGrade::Works, &[]);
    });
}

#[test]
#[limit]
fn a_limit_on_the_connections_of_a_user_or_a_database_is_found() {
    on_runtime(async {
        let server = sound();
        granted(&PostgresStore::new(&server.url()).unwrap(), &claim("makes the schema", LONG)).await;
        server.run(
            "CREATE ROLE few LOGIN CONNECTION LIMIT 6; GRANT USAGE ON SCHEMA lock_core TO few;
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_core TO few; ALTER ROLE test CONNECTION LIMIT 1",
        );
        for (subject, limit) in [
            ("CONNECTION LIMIT of the user", ""),
            ("CONNECTION LIMIT of the database", "ALTER DATABASE postgres CONNECTION LIMIT 7"),
        ] {
            server.run(limit);
            let found = examine(&url(&server, "few", "")).await;
            says(&found, subject, FindingGrade::Warning, &["connections are free", "a process takes"]);
            server.run(about(&found, subject).remedy.as_deref().unwrap());
            says(&examine(&url(&server, "few", "")).await, subject, FindingGrade::Works, &[]);
        }
        // Neither is for a superuser.
        let found = examine(&server.url()).await;
        assert!(found.iter().all(|one| !one.subject.contains("LIMIT")), "{found:#?}");
    });
}

/// A setting for a user in one database, or of the URL, has more weight than one for the user.
#[test]
#[limit]
fn a_setting_is_mended_where_it_was_set() {
    on_runtime(async {
        let server = sound();
        server.run("CREATE ROLE app LOGIN SUPERUSER; ALTER ROLE app IN DATABASE postgres SET default_transaction_read_only = on");
        let found = examine(&url(&server, "app", "")).await;
        says(&found, "primary", FindingGrade::Refused, &["only read"]);
        let remedy = about(&found, "primary").remedy.clone().unwrap();
        server.run(&format!("SET default_transaction_read_only = off; {remedy}"));
        let found = examine(&url(&server, "app", "?options=-c%20default_transaction_read_only%3Don")).await;
        assert!(about(&found, "primary").remedy.as_deref().unwrap().contains("options="), "{found:#?}");
        assert!(examine(&url(&server, "app", "")).await.iter().all(|one| one.grade == FindingGrade::Works));
    });
}

#[test]
#[limit]
fn where_nobody_answers_nothing_counts_as_healthy() {
    on_runtime(async {
        let found = examine("postgres://test@127.0.0.1:1/postgres").await;
        assert_eq!((found.len(), found[0].grade), (1, FindingGrade::Unknown), "{found:#?}");
        assert!(found[0].says.contains("there is no PostgreSQL at 127.0.0.1:1"), "{found:#?}");
        let server = PostgresServer::shared();
        let found = examine(&server.url().replace("/postgres", "/nowhere")).await;
        assert_eq!((found.len(), found[0].grade), (1, FindingGrade::Refused), "{found:#?}");
        // Any store has the part, through its contract.
        assert!(PostgresStore::new(&server.url()).unwrap().doctor().is_some());
    });
}
