//! Three masters that share the slots, each with a replica.

use std::time::{Duration, Instant};

use fastrand::Rng;
use lock_testing::{RedisCluster, RedisServer, Reply};

use crate::harness::KEYS;
use crate::harness::servers::{Change, Topology, eventually, follows, ok, without_snapshot};

const MASTERS: usize = 3;

pub(crate) struct Cluster {
    cluster: RedisCluster,
    replicas: Vec<RedisServer>,
    /// Whether a lock counts only after the replica has confirmed it.
    confirmed: bool,
    /// The master of each pair: the number of the first server, or that of its replica.
    leads: [usize; MASTERS],
    /// The slot that is being moved: its key, its old master, its new master.
    moving: Option<(String, usize, usize)>,
}

impl Cluster {
    pub(crate) fn start(confirmed: bool) -> Self {
        // A replica must not take over by itself: a master may have got no processor for a while.
        let settings = RedisServer::builder().with("repl-timeout", "5").with("cluster-replica-no-failover", "yes");
        let cluster = RedisCluster::with(settings, MASTERS);
        let replicas = (0..MASTERS).map(|master| cluster.start_replica_of(master)).collect();
        Self { cluster, replicas, confirmed, leads: [0, 1, 2], moving: None }
    }

    /// The other server of a pair.
    fn second(&self, pair: usize) -> usize {
        2 * pair + MASTERS - self.leads[pair]
    }

    fn has_role(&self, place: usize, role: &str) -> bool {
        self.server(place).command(&["INFO", "replication"]).text().contains(role)
    }

    /// Orders the replica of a pair to take over.
    fn take_over(&mut self, pair: usize, how: &[&str]) {
        let promoted = self.second(pair);
        let mut asked: Option<Instant> = None;
        eventually("the replica has taken over", || {
            let leads = self.has_role(promoted, "role:master");
            // A server gives up an election after five seconds, and masters vote only seldom, so the order is repeated.
            if !leads && asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
                self.server(promoted).command(&[&["CLUSTER", "FAILOVER"], how].concat());
                asked = Some(Instant::now());
            }
            leads
        });
        self.leads[pair] = promoted;
    }

    /// Promotes a replica that has all data, without a loss.
    fn fail_over(&mut self, pair: usize) {
        let replica = self.server(self.second(pair));
        follows(replica);
        // The voting masters must know it as a replica. They vote again only after two node time-outs.
        self.known_as("slave", replica);
        // The time-out is shortened on the replica too: after a lost election it waits four node time-outs.
        self.notice_within(pair, "2000");
        loop {
            self.take_over(pair, &[]);
            let (now, before) = (self.leads[pair], self.second(pair));
            let follows = |place| self.has_role(place, "role:slave");
            eventually("one of them follows the other", || follows(now) || follows(before));
            if follows(before) {
                break;
            }
            // Both servers claimed the same epoch and the old master won, so it still leads.
            self.leads[pair] = before;
        }
        self.notice_within(pair, "60000");
        follows(self.server(self.second(pair)));
    }

    /// Waits until every master knows the role of a server.
    fn known_as(&self, role: &str, server: &RedisServer) {
        let line = format!("127.0.0.1:{}@", server.port());
        let known = |nodes: &Reply| nodes.text().lines().any(|node| node.contains(&line) && node.contains(role));
        eventually("every master knows who is a master and who a replica", || {
            self.leads.iter().all(|master| known(&self.server(*master).command(&["CLUSTER", "NODES"])))
        });
    }

    fn notice_within(&self, pair: usize, millis: &str) {
        for server in self.leads.into_iter().chain([self.second(pair)]) {
            ok(self.server(server), &["CONFIG", "SET", "cluster-node-timeout", millis]);
        }
    }
}

impl Topology for Cluster {
    fn addresses(&self) -> usize {
        2 * MASTERS
    }

    fn port(&self, address: usize) -> u16 {
        self.server(address).port()
    }

    fn url(&self, proxies: &[u16]) -> String {
        let reached = |(address, proxy)| format!("127.0.0.1:{}>127.0.0.1:{proxy}", self.port(address));
        let nat: Vec<String> = proxies.iter().enumerate().map(reached).collect();
        let acks = if self.confirmed { "&acks=all" } else { "" };
        format!("{}?nat={}{acks}", self.cluster.url(), nat.join(","))
    }

    fn server(&self, place: usize) -> &RedisServer {
        self.cluster.masters().iter().chain(&self.replicas).nth(place).unwrap()
    }

    fn serving(&self) -> Vec<usize> {
        self.leads.to_vec()
    }

    fn may_be_demoted(&self) -> bool {
        false
    }

    fn any_change(&self, random: &mut Rng) -> Change {
        let pair = random.usize(..MASTERS);
        match random.u8(0..8) {
            0 | 1 => Change::FailOver(pair),
            2 | 3 => Change::Outlive(pair),
            4 => Change::Freeze(pair),
            5 => Change::HangReplica(pair),
            _ => Change::MoveSlot(random.usize(..usize::try_from(KEYS).unwrap())),
        }
    }

    fn forgets(&self, change: Change) -> bool {
        !self.confirmed && matches!(change, Change::Outlive(_) | Change::Freeze(_))
    }

    fn begin(&mut self, change: Change) {
        match change {
            Change::FailOver(pair) => self.fail_over(pair),
            Change::Outlive(pair) => {
                match self.leads[pair] {
                    master if master < MASTERS => self.cluster.kill(master),
                    replica => self.replicas[replica - MASTERS].kill(),
                }
                self.take_over(pair, &["TAKEOVER"]);
            }
            Change::Freeze(pair) => {
                self.server(self.leads[pair]).pause();
                self.take_over(pair, &["TAKEOVER"]);
            }
            Change::HangReplica(pair) => self.server(self.second(pair)).pause(),
            Change::MoveSlot(number) => {
                // `open_slot` knows only the masters of the start, so these are promoted again first.
                for pair in (0..MASTERS).filter(|pair| self.leads[*pair] != *pair).collect::<Vec<_>>() {
                    self.fail_over(pair);
                }
                self.leads.iter().for_each(|master| self.known_as("master", self.server(*master)));
                let key = format!("soak:{number}");
                let serves = |place: &usize| !matches!(self.server(*place).command(&["EXISTS", &key]), Reply::Error(_));
                let from = (0..MASTERS).find(serves).expect("a master has the slot");
                let to = (from + 1) % MASTERS;
                self.cluster.open_slot(&key, from, to);
                self.moving = Some((key, from, to));
            }
            _ => {}
        }
    }

    fn end(&mut self, change: Change) {
        match change {
            Change::Outlive(pair) => {
                without_snapshot(self.server(self.second(pair)));
                match self.second(pair) {
                    master if master < MASTERS => self.cluster.restart(master),
                    replica => self.replicas[replica - MASTERS].restart(),
                }
                follows(self.server(self.second(pair)));
            }
            Change::Freeze(pair) | Change::HangReplica(pair) => {
                self.server(self.second(pair)).resume();
                follows(self.server(self.second(pair)));
            }
            Change::MoveSlot(_) => {
                let (key, from, to) = self.moving.take().unwrap();
                self.cluster.drain_slot(&key, from, to);
                self.cluster.close_slot(&key, from, to);
            }
            _ => {}
        }
    }
}
