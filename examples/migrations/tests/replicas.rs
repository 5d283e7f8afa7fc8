//! Twenty replicas at once behind PgBouncer by transaction, with what can go wrong.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lock_testing::{PostgresServer, RedisServer, limit};

/// The migrations of one test, as a folder of files.
struct Folder(PathBuf);

impl Folder {
    fn of(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let folder = Self(folder);
        files.iter().for_each(|(name, sql)| folder.write(name, sql));
        folder
    }

    fn write(&self, name: &str, sql: &str) {
        fs::write(self.0.join(name), sql).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with its test.
struct Replica(Option<Child>);

impl Replica {
    fn start(url: &str, variables: &[(&str, &str)]) -> Self {
        let mut replica = Command::new(env!("CARGO_BIN_EXE_migrations"));
        replica.env("DATABASE_URL", url).env_remove("LOCK_URL").env_remove("MIGRATIONS");
        replica.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(replica.spawn().unwrap()))
    }

    fn ended(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(count: usize, url: &str, variables: &[(&str, &str)]) -> Vec<Replica> {
    (0..count).map(|_| Replica::start(url, variables)).collect()
}

/// Asserts that all of them serve.
fn all_serve(replicas: Vec<Replica>) {
    for replica in replicas {
        let output = replica.ended();
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.starts_with("serving"), "{said}{complained}");
    }
}

/// Waits until the server says so.
fn until(server: &PostgresServer, question: &str) {
    while server.try_run(question).as_deref() != Ok("t") {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The orders of a table that the migrations made, once each.
const RUN: &str =
    "SELECT string_agg(version || CASE WHEN success THEN '' ELSE '!' END, ' ' ORDER BY version) FROM _sqlx_migrations";

#[test]
#[limit]
fn of_twenty_replicas_one_migrates_and_all_serve() {
    let server = PostgresServer::start();
    // Fewer sessions than replicas: the pooler gives each transaction another one.
    let pooler = server.pooler_of(5);
    all_serve(start(20, &pooler.url(), &[]));
    assert_eq!(server.run(RUN), "1 2");
    assert_eq!(server.run("SELECT count(*) FROM orders WHERE paid_at IS NULL"), "0");
    // A restart finds nothing to do.
    all_serve(start(3, &pooler.url(), &[]));
}

#[test]
#[limit]
fn a_replica_that_is_killed_half_way_leaves_nothing_and_another_one_migrates() {
    let server = PostgresServer::start();
    let pooler = server.pooler_of(10);
    server.run("CREATE TABLE pause (seconds int); INSERT INTO pause VALUES (600)");
    let slow = "CREATE TABLE half (id int); SELECT pg_sleep(seconds) FROM pause; CREATE TABLE whole (id int);";
    let folder = Folder::of("killed", &[("0001_slow.sql", slow)]);
    let variables = [("MIGRATIONS", folder.0.to_str().unwrap())];
    let mut first = Replica::start(&pooler.url(), &variables);
    until(&server, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    let others = start(4, &pooler.url(), &variables);
    server.run("UPDATE pause SET seconds = 0");
    first.0.as_mut().unwrap().kill().unwrap();
    all_serve(others);
    assert_eq!(server.run(RUN), "1");
    assert_eq!(server.run("SELECT count(*) FROM pg_tables WHERE tablename IN ('half', 'whole')"), "2");
}

#[test]
#[limit]
fn a_migration_that_fails_is_told_by_each_replica_and_none_serves() {
    let server = PostgresServer::start();
    let pooler = server.pooler_of(5);
    let folder = Folder::of(
        "failing",
        &[("0001_good.sql", "CREATE TABLE good (id int);"), ("0002_bad.sql", "ALTER TABLE bad ADD id int;")],
    );
    let variables = [("MIGRATIONS", folder.0.to_str().unwrap())];
    for replica in start(5, &pooler.url(), &variables) {
        let output = replica.ended();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "it does not serve: {complained}");
        assert!(complained.contains("relation \"bad\" does not exist"), "{complained}");
    }
    // The migration before it went with it: the database is as it was.
    assert_eq!(server.run("SELECT count(*) FROM pg_tables WHERE tablename = 'good'"), "0");
    folder.write("0002_bad.sql", "ALTER TABLE good ADD name text;");
    all_serve(start(5, &pooler.url(), &variables));
    assert_eq!(server.run(RUN), "1 2");
}

#[test]
#[limit]
fn a_database_that_was_made_anew_beside_an_old_redis_is_migrated_again() {
    let (server, redis) = (PostgresServer::start(), RedisServer::start());
    let pooler = server.pooler_of(5);
    let lock_url = redis.url();
    let variables = [("LOCK_URL", &*lock_url)];
    for _ in 0..2 {
        all_serve(start(3, &pooler.url(), &variables));
        assert_eq!(server.run(RUN), "1 2");
        server.run("DROP TABLE orders, _sqlx_migrations");
    }
}
