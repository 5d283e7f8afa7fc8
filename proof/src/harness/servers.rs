//! Where the locks lie, and what only servers of that kind go through.

mod clock;
mod cluster;
mod one;
mod postgres;
mod quorum;
mod sentinel;

use std::time::{Duration, Instant};

use fastrand::Rng;
use lock_core::testing::{RedisServer, Reply};

pub(crate) use cluster::Cluster;
pub(crate) use one::One;
pub(crate) use postgres::Database;
pub(crate) use quorum::Members;
pub(crate) use sentinel::Sentinels;

const PATIENCE: Duration = Duration::from_secs(60);

/// Servers, each at its place. What waits here blocks its thread.
pub(crate) trait Topology: Send {
    /// How many addresses there are that processes reach.
    fn addresses(&self) -> usize;
    /// Where an address leads to.
    fn port(&self, address: usize) -> u16;
    /// The URL for a process that reaches each address by a proxy of its own.
    fn url(&self, proxies: &[u16]) -> String;
    fn server(&self, place: usize) -> &RedisServer;
    /// The places of the servers that decide on locks, when nothing fails.
    fn serving(&self) -> Vec<usize>;
    /// Whether a server may be told to follow another, and be told otherwise later.
    fn may_be_demoted(&self) -> bool;

    /// Lets one of those that serve stand still.
    fn pause(&self, number: usize) {
        self.one_of_serving(number).pause();
    }

    fn resume(&self, number: usize) {
        self.one_of_serving(number).resume();
    }

    /// Ends the connections of all clients to one of those that serve.
    fn kill_clients(&self, number: usize) {
        let reply = self.one_of_serving(number).command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }

    /// A server that decides on locks now.
    fn one_of_serving(&self, number: usize) -> &RedisServer {
        let serving = self.serving();
        self.server(serving[number % serving.len()])
    }

    /// What is left of locks where there is no Redis.
    fn remnants(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sets in the database, and their elements.
    fn sets(&self) -> Vec<(String, Vec<u64>)> {
        Vec::new()
    }

    /// Chooses what only such servers go through, by numbers that mean the same at any time.
    fn any_change(&self, random: &mut Rng) -> Change;
    /// Whether locks that were granted may be forgotten by it.
    fn forgets(&self, change: Change) -> bool;
    fn begin(&mut self, change: Change);
    fn end(&mut self, change: Change);
}

/// A change of the servers, which begins and ends. Numbers are places, or whatever else the topology counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Everything is deleted.
    Flush(usize),
    /// The process ends, and starts without its data.
    Restart(usize),
    /// A replica takes over from a master that lives, in good order.
    FailOver(usize),
    /// A replica takes over from a master that still takes writes, and misses some of them.
    Usurp,
    /// A replica takes over from a master whose process ends, or hangs.
    Outlive(usize),
    Freeze(usize),
    /// A replica hangs.
    HangReplica(usize),
    /// So many members hang that there is no majority.
    HangMost(usize),
    /// The clock of the server goes ahead by more than any lease.
    Leap,
    /// All members but one forget, and look as if they had not.
    ForgetMost(usize),
    /// The slot of a key moves to another master while callers go on.
    MoveSlot(usize),
}

impl Change {
    /// Whether a replica becomes a master, with a history of its own: also before a slot moves, where one had.
    pub(crate) fn promotes(self) -> bool {
        matches!(self, Self::FailOver(_) | Self::Usurp | Self::Outlive(_) | Self::Freeze(_) | Self::MoveSlot(_))
    }
}

pub(crate) fn ok(server: &RedisServer, words: &[&str]) {
    assert_eq!(server.command(words), Reply::Text("OK".to_owned()), "{words:?}");
}

/// Waits until a server follows its master.
pub(crate) fn follows(replica: &RedisServer) {
    let info = || replica.command(&["INFO", "replication"]).text().to_owned();
    let started = Instant::now();
    while !(info().contains("role:slave") && info().contains("master_link_status:up")) {
        assert!(started.elapsed() < PATIENCE, "it follows nobody within {PATIENCE:?}: {}", info());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Forgets what a replica was sent as a file, from which it would start again with old data.
pub(crate) fn without_snapshot(server: &RedisServer) {
    let _ = std::fs::remove_file(server.directory().join("dump.rdb"));
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
