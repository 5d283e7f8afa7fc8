//! Six processes add to one counter, each in a transaction that reads and then writes, with nothing but the lock to keep them apart. Some
//! bodies outlive their lease, processes are killed, sessions are cut. Under a pin the counter is the number of commits; without, it is not.
//!
//! And processes that migrate once, killed right before or right after the commit in which work and mark are: it is done exactly once.
//!
//! `LOCK_PIN_MINUTES=30 cargo test -p lock-postgres --test kills` goes on for so long under a pin, and for a tenth of that with each of the others.

mod worker;

use std::env;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::testing::{PostgresServer, within};

/// How many processes work at a time.
const WORKERS: usize = 6;

/// How many processes are killed, and how often one is killed right before and right after its commit, where nobody says for how long.
const KILLS: u64 = 12;
const ROUNDS: u64 = 3;

/// How many commits there are between two processes that are killed.
const COMMITS: u64 = 6;

fn main() {
    if let Ok(role) = env::var("LOCK_PIN_WORKER") {
        return worker::work(&role);
    }
    let minutes: Option<u64> =
        env::var("LOCK_PIN_MINUTES").ok().map(|text| text.parse().expect("LOCK_PIN_MINUTES is a number"));
    let time = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let patience = time.unwrap_or_default() + Duration::from_secs(360);
    within("under_a_pin_the_counter_is_the_number_of_commits", patience, move || {
        let ended = Fleet::start("pin").run(|so_far| time.map_or(so_far.killed >= KILLS, |time| so_far.time >= time));
        println!("under a pin: {ended}");
        assert_eq!(ended.counter, ended.commits, "a write was lost under a pin");
    });
    let tenth = time.map(|time| time / 10);
    within("without_a_pin_writes_are_lost", patience, move || {
        let ended = Fleet::start("check")
            .run(|so_far| tenth.map_or(so_far.counter < so_far.commits, |time| so_far.time >= time));
        println!("with a check before the write instead: {ended}");
        assert!(ended.counter < ended.commits, "a check loses no write, so this test shows nothing");
    });
    within("work_is_done_once_although_its_process_is_killed_around_the_commit", patience, move || {
        #[expect(clippy::disallowed_methods, reason = "it kills for so long in real time")]
        let begun = Instant::now();
        let mut rounds = 0;
        while tenth.map_or(rounds < ROUNDS, |time| begun.elapsed() < time) {
            for stops in ["before", "after"] {
                migrate(stops, rounds);
            }
            rounds += 1;
        }
        println!("{} migrations, each done once, although a process was killed before or after its commit", rounds * 2);
    });
}

/// Kills a process that stands right before or after the commit of its work, and has another one do what is left.
fn migrate(stops: &'static str, round: u64) {
    let server = PostgresServer::shared();
    let _ = server.try_run("CREATE TABLE work (version text NOT NULL)");
    let version = format!("{stops} {round}");
    let start = |stops: &str| {
        let program = env::current_exe().expect("this program has a path");
        let mut worker = Command::new(program);
        worker.env("LOCK_PIN_WORKER", "migrate").env("LOCK_PIN_URL", server.url()).env("LOCK_PIN_STOPS", stops);
        worker.env("LOCK_PIN_VERSION", &version).stdin(Stdio::piped()).stdout(Stdio::piped());
        worker.spawn().expect("this program runs once more")
    };
    let said = |worker: &mut Child| {
        let mut line = String::new();
        let out = worker.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says something");
        line.trim().to_owned()
    };
    let done = || server.run(&format!("SELECT count(*) FROM work WHERE version = '{version}'"));
    let mut first = start(stops);
    assert_eq!(said(&mut first), stops);
    assert_eq!(done(), if stops == "after" { "1" } else { "0" });
    first.kill().expect("a process can be killed");
    first.wait().expect("and ends");
    let mut second = start("never");
    assert_eq!(said(&mut second), if stops == "after" { "done before" } else { "done" });
    second.wait().expect("it ends");
    assert_eq!(done(), "1", "exactly once");
}

/// The results of a fleet so far.
struct Ended {
    killed: u64,
    counter: u64,
    commits: u64,
    time: Duration,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { killed, counter, commits, time } = self;
        let lost = commits.saturating_sub(*counter);
        write!(
            f,
            "{killed} processes killed in {} s, {commits} commits, counter {counter}, {lost} writes lost",
            time.as_secs()
        )
    }
}

/// The processes, and the server.
struct Fleet {
    server: PostgresServer,
    role: &'static str,
    workers: Vec<Child>,
}

impl Fleet {
    fn start(role: &'static str) -> Self {
        let server = PostgresServer::start();
        server.run("CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0); CREATE TABLE done (pid int NOT NULL)");
        let mut fleet = Self { server, role, workers: Vec::new() };
        fleet.workers = (0..WORKERS).map(|_| fleet.worker()).collect();
        fleet
    }

    fn worker(&self) -> Child {
        let program = env::current_exe().expect("this program has a path");
        let mut worker = Command::new(program);
        worker.env("LOCK_PIN_WORKER", self.role).env("LOCK_PIN_URL", self.server.url()).stdin(Stdio::piped());
        worker.spawn().expect("this program runs once more")
    }

    /// Returns the counter and the number of commits, both of one moment.
    fn counted(&self) -> (u64, u64) {
        let row = self.server.run("SELECT n, (SELECT count(*) FROM done) FROM counter");
        let mut numbers = row.split('|').map(|number| number.parse().expect("a number"));
        (numbers.next().expect("two columns"), numbers.next().expect("two columns"))
    }

    /// Kills a process each time the fleet has got on, and cuts a session, until it is enough.
    fn run(mut self, enough: impl Fn(&Ended) -> bool) -> Ended {
        #[expect(clippy::disallowed_methods, reason = "it kills for so long in real time")]
        let begun = Instant::now();
        let (mut killed, mut before) = (0, 0);
        loop {
            let (counter, commits) = self.counted();
            if enough(&Ended { killed, counter, commits, time: begun.elapsed() }) {
                break;
            }
            if commits < before + COMMITS {
                continue;
            }
            before = commits;
            let victim = usize::try_from(killed).unwrap_or(0) % WORKERS;
            self.workers[victim].kill().expect("a process can be killed");
            self.workers[victim].wait().expect("and ends");
            self.workers[victim] = self.worker();
            killed += 1;
            self.server.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid() \
                 ORDER BY random() LIMIT 1",
            );
        }
        // Commands in flight end: no process writes when both are counted for the last time.
        self.stop();
        self.server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()");
        while self.server.run("SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres'") != "1" {}
        let (counter, commits) = self.counted();
        Ended { killed, counter, commits, time: begun.elapsed() }
    }

    fn stop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop();
    }
}
