//! One election of candidates in Go, which use client-go, and of candidates of this library.
//!
//! All of them write what they do while they lead into one book. Candidates are killed, stopped for 1.5 leases, and asked to
//! resign. The book then shows whether two of them ever led at one time, and whether each side saw the leaders of the other.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lock_core::{LockManager, current_lock};
use lock_testing::{Recorder, freeze, limit, not_run, thaw};
use serde_json::{Value, json};

use crate::servers::{ApiServer, Namespace, candidate as program};
use crate::support::Scratch;

/// The variable with the number of seconds for which candidates are disturbed.
const SECONDS: &str = "LOCK_ELECTION_SECONDS";

/// The variable with the words for a candidate of this library.
const WORDS: &str = "LOCK_KUBERNETES_CANDIDATE";
const BETWEEN: char = '\x1f';

const ELECTION: &str = "shared-with-go";

/// The candidate in Go has a lease of the same length.
const LEASE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(5);

/// How long it may take until somebody leads, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Go,
    Rust,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Go, Self::Rust];

    /// Returns the side of a candidate, as a candidate or an observer names it.
    fn of(name: &str) -> Self {
        if name.contains("client-go-") { Self::Go } else { Self::Rust }
    }
}

/// Another process that stands for election. Killed when it is dropped.
struct Candidate {
    name: String,
    child: Child,
}

impl Candidate {
    fn start(side: Side, place: &Namespace<'_>, book: &Path, number: usize) -> Self {
        let mut command;
        let name;
        match side {
            Side::Go => {
                name = format!("client-go-{number}");
                command = Command::new(program().expect("it is installed"));
                command.args([&place.kubeconfig().display().to_string(), &place.name, ELECTION, &name]).arg(book);
            }
            Side::Rust => {
                name = format!("rust-{number}");
                command = Command::new(std::env::current_exe().unwrap());
                command.args(["client_go::candidate", "--exact", "--nocapture", "--quiet"]);
                command.env(WORDS, [&place.url(), &name, &book.display().to_string()].map(String::as_str).join("\x1f"));
            }
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { name, child }
    }

    fn freeze(&self) {
        freeze(self.child.id());
    }

    fn thaw(&self) {
        thaw(self.child.id());
    }

    /// Asks it to end its work and to give the role back, and waits until it has ended.
    fn resign(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success(), "{} fails as it resigns", self.name);
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the book: a leader worked, at a time at which it had checked that it led.
struct Step {
    who: String,
    term: u64,
    at: u64,
}

/// The book that all candidates write.
struct Book {
    file: File,
    unread: Vec<u8>,
    steps: Vec<Step>,
    /// The candidates that saw a leader, and how each of them named it.
    seen: BTreeSet<(String, String)>,
}

impl Book {
    fn open(path: &Path) -> Self {
        Self { file: File::open(path).unwrap(), unread: Vec::new(), steps: Vec::new(), seen: BTreeSet::new() }
    }

    fn read(&mut self) {
        self.file.read_to_end(&mut self.unread).unwrap();
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.unread.drain(..=end).collect();
        // A candidate that is killed may leave a part of a line.
        let lines = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        for line in lines {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            if line["kind"] == "saw" {
                self.seen.insert((text("who"), text("leader")));
            } else {
                let (term, at) = (line["term"].as_u64().unwrap(), line["at"].as_u64().unwrap());
                self.steps.push(Step { who: text("who"), term, at });
            }
        }
    }

    /// Waits until one of these candidates works, and returns its name.
    fn leader(&mut self, is_expected: impl Fn(&str) -> bool) -> String {
        self.read();
        let (begun, known) = (Instant::now(), self.steps.len());
        loop {
            self.read();
            if let Some(step) = self.steps[known..].iter().find(|step| is_expected(&step.who)) {
                return step.who.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "no candidate leads that should");
            std::thread::sleep(4 * STEP);
        }
    }

    /// Returns who led, in order. Two that led at one time would appear in turns.
    fn leaderships(&mut self) -> Vec<(String, u64)> {
        self.read();
        self.steps.sort_by_key(|step| step.at);
        let mut leaderships: Vec<(String, u64)> = Vec::new();
        for step in &self.steps {
            let leads = (step.who.clone(), step.term);
            if leaderships.last() != Some(&leads) {
                assert!(
                    !leaderships.contains(&leads),
                    "{leads:?} leads beside {:?}, at {}",
                    leaderships.last(),
                    step.at
                );
                leaderships.push(leads);
            }
        }
        leaderships
    }

    /// Returns the sides that saw a leader of the other side.
    fn sides_that_saw_the_other(&self) -> BTreeSet<Side> {
        let crossed = |(who, leader): &&(String, String)| Side::of(who) != Side::of(leader);
        self.seen.iter().filter(crossed).map(|(who, _)| Side::of(who)).collect()
    }
}

#[test]
#[limit(3600)]
fn candidates_in_go_and_of_this_library_never_lead_at_one_time() {
    let Some(server) = ApiServer::shared() else { return };
    if program().is_none() {
        return not_run("the candidate in Go is not built; with Go: sh scripts/need-kubernetes.sh");
    }
    let time = std::env::var(SECONDS).map_or(30, |seconds| seconds.parse().unwrap());
    let time = Duration::from_secs(time);
    let (scratch, place) = (Scratch::new(), server.namespace());
    let path = scratch.history();
    File::create(&path).unwrap();
    let mut book = Book::open(&path);
    let mut count = 0;
    let mut start = |side| {
        count += 1;
        Candidate::start(side, &place, &path, count)
    };
    let mut candidates: Vec<Candidate> = [Side::BOTH; 3].into_iter().flatten().map(&mut start).collect();
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < time || rounds < 6 || book.sides_that_saw_the_other().len() < 2 {
        assert!(begun.elapsed() < time + 4 * PATIENCE, "not every side sees the leaders of the other: {:?}", book.seen);
        let name = book.leader(|_| true);
        let leader = candidates.iter().position(|candidate| candidate.name == name).expect("only candidates lead");
        let side = Side::of(&name);
        let waiter = (leader + 1) % candidates.len();
        match rounds % 6 {
            // A leader is killed.
            0 => {
                candidates[leader] = start(side);
                book.leader(|next| next != name);
            }
            // A leader is stopped for longer than its lease. It must not work when it goes on.
            1 => {
                candidates[leader].freeze();
                book.leader(|next| next != name);
                std::thread::sleep(LEASE / 2);
                candidates[leader].thaw();
            }
            2 => {
                candidates[leader].resign();
                candidates[leader] = start(side);
            }
            // A whole side is stopped, so the role passes to the other side.
            3 => {
                let stopped = || candidates.iter().filter(|candidate| Side::of(&candidate.name) == side);
                stopped().for_each(Candidate::freeze);
                book.leader(|next| Side::of(next) != side);
                std::thread::sleep(LEASE / 2);
                stopped().for_each(Candidate::thaw);
            }
            // A candidate that waits is killed, and in the next round one is stopped.
            4 => candidates[waiter] = start(Side::of(&candidates[waiter].name)),
            _ => {
                candidates[waiter].freeze();
                std::thread::sleep(LEASE + LEASE / 2);
                candidates[waiter].thaw();
            }
        }
        rounds += 1;
    }
    candidates.iter_mut().for_each(Candidate::resign);
    let leaderships = book.leaderships();
    let by = |side| leaderships.iter().filter(|(who, _)| Side::of(who) == side).count();
    let passed = leaderships.windows(2).filter(|pair| Side::of(&pair[0].0) != Side::of(&pair[1].0)).count();
    println!(
        "figure: in {:?} and {rounds} disturbances {} candidates of client-go and {} of this library led, one at a time; \
         {passed} times the role passed from one side to the other; {} steps of work",
        begun.elapsed(),
        by(Side::Go),
        by(Side::Rust),
        book.steps.len(),
    );
    assert!(by(Side::Go) > 0 && by(Side::Rust) > 0);
}

/// Runs a candidate. It does nothing in a run of all tests.
#[test]
#[limit(3600)]
fn candidate() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words: Vec<&str> = words.split(BETWEEN).collect();
    let [url, name, path] = words[..] else { panic!("{words:?}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (asked, resigns) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = asked.send(());
    });
    runtime.block_on(async {
        let book = Recorder::append_to(Path::new(path));
        let locks = LockManager::builder_for(url).unwrap().with_ttl(LEASE).build().unwrap();
        let election = locks.elect(ELECTION).announcing(name);
        let mut leaders = election.observe();
        let sees = async {
            while let Ok(leader) = leaders.changed().await {
                if let Some(leader) = leader {
                    let leader = leader.announced().map_or_else(|| leader.holder().to_string(), str::to_owned);
                    book.record(&json!({"kind": "saw", "who": name, "leader": leader, "at": book.now()}));
                }
            }
        };
        let leads = election.run(async |term| {
            let lock = current_lock().expect("it leads");
            loop {
                // A process that is stopped here writes a line about the time before.
                let at = book.now();
                if lock.ensure_held().is_ok() {
                    book.record(&json!({"kind": "step", "who": name, "term": term.get(), "at": at}));
                }
                tokio::time::sleep(STEP).await;
            }
        });
        tokio::select! {
            () = sees => {}
            ended = leads => panic!("{ended:?}"),
            _ = resigns => {}
        }
        locks.shutdown(2 * LEASE).await;
    });
}
