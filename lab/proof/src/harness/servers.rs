//! Servers of locks, and the changes that only one kind of server goes through.

mod clock;
mod cluster;
mod ensemble;
mod kubernetes;
mod one;
mod postgres;
mod quorum;
mod sentinel;

use std::time::{Duration, Instant};

use fastrand::Rng;
use lock_testing::{RedisServer, Reply};

pub(crate) use cluster::Cluster;
pub(crate) use ensemble::Ensemble;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use one::One;
pub(crate) use postgres::Database;
pub(crate) use quorum::Members;
pub(crate) use sentinel::Sentinels;

const PATIENCE: Duration = Duration::from_secs(60);

/// Servers, each with its number. Waiting in these methods blocks the thread.
/// The bodies are those of a store without Redis, which nobody changes.
pub(crate) trait Topology: Send {
    /// How many addresses the processes connect to.
    fn addresses(&self) -> usize;
    /// The port behind an address.
    fn port(&self, address: usize) -> u16;
    /// The URL for a process that reaches each address through a proxy of its own.
    fn url(&self, proxies: &[u16]) -> String;
    fn server(&self, _place: usize) -> &RedisServer {
        unreachable!("there is no Redis here")
    }
    /// The numbers of the servers that decide on locks when nothing fails.
    fn serving(&self) -> Vec<usize> {
        Vec::new()
    }
    /// Whether a server may be made to follow another one for a while.
    fn may_be_demoted(&self) -> bool {
        false
    }

    /// Stops one of the servers that decide on locks.
    fn pause(&self, number: usize) {
        self.one_of_serving(number).pause();
    }

    fn resume(&self, number: usize) {
        self.one_of_serving(number).resume();
    }

    /// Ends the connections of all clients to one of these servers.
    fn kill_clients(&self, number: usize) {
        let reply = self.one_of_serving(number).command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }

    /// A server that decides on locks now.
    fn one_of_serving(&self, number: usize) -> &RedisServer {
        let serving = self.serving();
        self.server(serving[number % serving.len()])
    }

    /// The rest of locks in a store that is not Redis.
    fn remnants(&self) -> Vec<String> {
        Vec::new()
    }

    /// The sets in the database, and their elements.
    fn sets(&self) -> Vec<(String, Vec<u64>)> {
        Vec::new()
    }

    /// Draws a change that only such servers go through. Its numbers mean the same at any time.
    fn any_change(&self, _random: &mut Rng) -> Change {
        unreachable!("it is changed by nobody")
    }
    /// Whether the change may make a store forget granted locks.
    fn forgets(&self, _change: Change) -> bool {
        false
    }
    fn begin(&mut self, _change: Change) {}
    fn end(&mut self, _change: Change) {}
}

/// A change of the servers, with a beginning and an end. The numbers are servers, or what else the topology counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Everything is deleted.
    Flush(usize),
    /// The process ends, and starts without its data.
    Restart(usize),
    /// A replica takes over from a live master in a planned failover.
    FailOver(usize),
    /// A replica takes over from a master that still takes writes, and misses some of them.
    Usurp,
    /// A replica takes over from a master whose process ends (`Outlive`) or is stopped (`Freeze`).
    Outlive(usize),
    Freeze(usize),
    /// A replica is stopped.
    HangReplica(usize),
    /// So many members are stopped that a majority is missing.
    HangMost(usize),
    /// The wall clock of the server jumps ahead by more than any lease.
    Leap,
    /// All members but one forget their locks, and look as if they remembered.
    ForgetMost(usize),
    /// The slot of a key moves to another master while callers continue.
    MoveSlot(usize),
}

impl Change {
    /// Whether a replica is promoted and gets a new replication ID. `MoveSlot` may promote one first, so it counts too.
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

/// Deletes the snapshot that a replica received. The server would start again with this old data.
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
