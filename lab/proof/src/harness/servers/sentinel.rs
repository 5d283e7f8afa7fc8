//! A master, two replicas, and the sentinels that publish the master.

use fastrand::Rng;
use lock_testing::{RedisSentinels, RedisServer};

use crate::harness::servers::{Change, Topology, eventually, follows, without_snapshot};

pub(crate) struct Sentinels {
    servers: RedisSentinels,
    /// Whether a lock counts only after all replicas have confirmed it.
    confirmed: bool,
    master: usize,
    /// The server that the fault strikes.
    struck: usize,
}

impl Sentinels {
    pub(crate) fn start(confirmed: bool) -> Self {
        let server = RedisServer::builder().with("repl-timeout", "5");
        let servers = RedisSentinels::builder().with_servers(server).with_replicas(2).start();
        Self { servers, confirmed, master: 0, struck: 0 }
    }

    fn replicas(&self) -> impl Iterator<Item = usize> {
        let master = self.master;
        (0..self.servers.servers().len()).filter(move |place| *place != master)
    }

    /// Waits until the sentinels have replaced a master that does not answer.
    fn replace(&mut self) {
        self.servers.notice_within(1_000);
        self.master = self.servers.wait_for_another_than(self.master);
        self.servers.notice_within(60_000);
    }

    /// Waits until every server and sentinel knows the result of earlier changes.
    fn in_step(&self) {
        self.replicas().for_each(|place| follows(self.server(place)));
        eventually("the sentinels agree on the master", || self.servers.master() == Some(self.master));
    }
}

impl Topology for Sentinels {
    fn addresses(&self) -> usize {
        self.servers.servers().len()
    }

    fn port(&self, address: usize) -> u16 {
        self.server(address).port()
    }

    fn url(&self, proxies: &[u16]) -> String {
        let reached = |(address, proxy)| format!("127.0.0.1:{}>127.0.0.1:{proxy}", self.port(address));
        let nat: Vec<String> = proxies.iter().enumerate().map(reached).collect();
        let acks = if self.confirmed { "&acks=all" } else { "" };
        format!("{}?nat={}{acks}", self.servers.url(), nat.join(","))
    }

    fn server(&self, place: usize) -> &RedisServer {
        &self.servers.servers()[place]
    }

    fn serving(&self) -> Vec<usize> {
        vec![self.master]
    }

    fn may_be_demoted(&self) -> bool {
        true
    }

    fn any_change(&self, random: &mut Rng) -> Change {
        match random.u8(0..6) {
            0 | 1 => Change::FailOver(0),
            2 | 3 => Change::Outlive(0),
            4 => Change::Freeze(0),
            _ => Change::HangReplica(0),
        }
    }

    /// A planned failover forgets too: the old master takes writes until it is demoted.
    fn forgets(&self, change: Change) -> bool {
        !self.confirmed && !matches!(change, Change::HangReplica(_))
    }

    fn begin(&mut self, change: Change) {
        self.in_step();
        self.struck = match change {
            Change::HangReplica(_) => self.replicas().next().unwrap(),
            _ => self.master,
        };
        match change {
            Change::FailOver(_) => self.master = self.servers.fail_over(),
            Change::Outlive(_) => {
                self.servers.kill(self.struck);
                self.replace();
            }
            Change::Freeze(_) => {
                self.server(self.struck).pause();
                self.replace();
            }
            Change::HangReplica(_) => self.server(self.struck).pause(),
            _ => {}
        }
    }

    fn end(&mut self, change: Change) {
        match change {
            Change::Outlive(_) => {
                let killed = self.struck;
                without_snapshot(self.server(killed));
                self.servers.restart(killed);
                // A configuration file would make the restarted server a replica; there is none. A sentinel may have
                // done it already.
                let port = self.server(self.master).port().to_string();
                self.server(killed).command(&["REPLICAOF", "127.0.0.1", &port]);
            }
            Change::Freeze(_) | Change::HangReplica(_) => self.server(self.struck).resume(),
            _ => {}
        }
    }
}
