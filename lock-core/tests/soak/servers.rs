//! Two servers behind one address: a master, and a replica that may take over without the last writes.

use std::time::Duration;

use lock_core::testing::{FaultProxy, RedisServer, Reply};

/// How long a remnant of a lease may still be there when everybody has gone.
const REMNANT: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Servers {
    both: [RedisServer; 2],
    /// In front of each, for the other to replicate from.
    links: [FaultProxy; 2],
    master: usize,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        let start = || RedisServer::builder().with("repl-diskless-sync-delay", "0").with("repl-timeout", "5").start();
        let both = [start(), start()];
        let links = [FaultProxy::start(both[0].port()), FaultProxy::start(both[1].port())];
        let servers = Self { both, links, master: 0 };
        servers.follow(1);
        servers.in_step().await;
        servers
    }

    /// Where the master listens.
    pub(crate) fn port(&self) -> u16 {
        self.master().port()
    }

    pub(crate) fn master(&self) -> &RedisServer {
        &self.both[self.master]
    }

    fn follow(&self, replica: usize) {
        let url = self.links[1 - replica].url();
        let (_, port) = url.rsplit_once(':').unwrap();
        self.both[replica].command(&["REPLICAOF", "127.0.0.1", port]);
    }

    /// Waits until the replica has everything.
    async fn in_step(&self) {
        let replica = &self.both[1 - self.master];
        eventually("the replica follows", || {
            replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
        })
        .await;
    }

    /// Ends the master and starts it without its data.
    pub(crate) async fn restart(&mut self) {
        self.both[self.master].restart();
        self.in_step().await;
    }

    /// From now on the replica misses what is written.
    pub(crate) async fn cut_replication(&self) {
        self.in_step().await;
        self.links[self.master].black_hole(lock_core::testing::Direction::ToClient);
    }

    /// The replica takes over, and the master follows it.
    pub(crate) async fn fail_over(&mut self) {
        let demoted = self.master;
        self.master = 1 - demoted;
        self.master().command(&["REPLICAOF", "NO", "ONE"]);
        self.follow(demoted);
        self.links[demoted].kill_connections();
        self.links[demoted].resume();
        self.in_step().await;
    }

    /// Checks that nothing is left but what tokens come from.
    pub(crate) async fn assert_empty(&self) {
        let started = std::time::Instant::now();
        loop {
            let Reply::List(keys) = self.master().command(&["KEYS", "*"]) else { panic!("no list of keys") };
            let left: Vec<&str> = keys.iter().map(Reply::text).filter(|key| !is_clock(key)).collect();
            if left.is_empty() {
                return;
            }
            assert!(started.elapsed() < REMNANT, "left behind: {left:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn is_clock(key: &str) -> bool {
    key.starts_with("distributed-lock:clock")
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
