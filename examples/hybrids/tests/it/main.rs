//! Runs both hybrids on real servers, which are killed and stopped too.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lock_testing::{PostgresServer, RedisServer, limit};

#[path = "../../../../stores/lock-zookeeper/tests/it/servers.rs"]
#[allow(dead_code, reason = "most of it is for the tests of the store")]
mod servers;

use servers::{Pace, Servers};

const SECOND: Duration = Duration::from_secs(1);

fn start(hybrid: &str, redis: &RedisServer, postgres: &PostgresServer, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock-hybrids"));
    command.args([hybrid, "--redis", &redis.url(), "--postgres", &postgres.url()]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[limit(180)]
fn the_books_in_postgresql_agree_with_a_fence_under_kills_and_stops() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let mut running = start("fenced", &redis, &postgres, &["--seconds", "20"]);
    // The lock itself is lost, and the fence is not.
    for _ in 0..3 {
        sleep(5 * SECOND);
        assert!(running.try_wait().unwrap().is_none(), "it still runs");
        redis.command(&["FLUSHALL"]);
    }
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    println!("figure: {}", said(&ended));
}

/// An audit that cannot fail shows nothing.
#[test]
#[limit(180)]
fn without_the_fence_entries_are_lost() {
    // If the machine is busy, no process may be stopped between its check and its write within 20 s.
    let is_lost = (0..5).any(|_| {
        let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
        let running = start("fenced", &redis, &postgres, &["--seconds", "20", "--without-admit"]);
        let ended = running.wait_with_output().unwrap();
        let is_lost = said(&ended).contains("entries were lost");
        assert_ne!(ended.status.success(), is_lost, "{}", said(&ended));
        println!("figure: {}", said(&ended));
        is_lost
    });
    assert!(is_lost, "the books agree without the fence");
}

/// The books of one run, in a folder of their own.
struct Books(PathBuf);

impl Books {
    fn new() -> Self {
        let books = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("books-{}", std::process::id()));
        fs::write(&books, "").unwrap();
        Self(books)
    }

    /// Waits until lines are added that were not asked for before now.
    fn grow(&self, running: &mut Child, while_so: &str) {
        let lines = || fs::read_to_string(&self.0).unwrap_or_default().lines().count();
        let (enough, begun) = (lines() + 20, Instant::now());
        while lines() < enough {
            assert!(running.try_wait().unwrap().is_none(), "it has ended: {while_so}");
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody writes: {while_so}");
            sleep(SECOND / 50);
        }
        println!("figure: twenty more lines after {:?}: {while_so}", begun.elapsed());
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
#[limit(300)]
fn the_books_of_a_quorum_of_unlike_stores_agree_while_each_of_them_fails() {
    let Some(mut zookeeper) = Servers::one(Pace::PATIENT) else { return };
    let (mut redis, postgres, books) = (RedisServer::start(), PostgresServer::start(), Books::new());
    let url = zookeeper.url("/locks?session=6s");
    let more = ["--zookeeper", &url, "--books", books.path().to_str().unwrap(), "--seconds", "240"];
    let mut running = start("unlike", &redis, &postgres, &more);
    books.grow(&mut running, "all are there");
    redis.kill();
    books.grow(&mut running, "Redis is killed");
    redis.restart();
    books.grow(&mut running, "Redis is back, and empty");
    zookeeper.kill(0);
    books.grow(&mut running, "ZooKeeper is killed");
    zookeeper.restart(0);
    books.grow(&mut running, "ZooKeeper is back");
    postgres.pause(true);
    books.grow(&mut running, "PostgreSQL stands still");
    postgres.pause(false);
    books.grow(&mut running, "PostgreSQL goes on");
    let told = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(told.unwrap().success());
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    println!("figure: {}", said(&ended));
}
