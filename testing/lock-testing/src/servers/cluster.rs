//! A real Redis Cluster, started for one test.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use crate::servers::process::wait_until;
use crate::servers::server::{RedisServer, RedisServerBuilder};
use crate::servers::session::Session;
use crate::{Reply, Stopwatch};

/// How many slots a cluster has.
const SLOTS: i64 = 16384;

/// Masters that share the slots evenly, and optional replicas. They are killed when this is dropped.
///
/// No node counts as failed within a minute, however slow the machine is. A failover therefore happens only when a test
/// makes it happen.
///
/// ```no_run
/// use lock_testing::RedisCluster;
///
/// let cluster = RedisCluster::start(3);
/// println!("{}", cluster.masters()[0].url());
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<RedisServer>,
    settings: RedisServerBuilder,
}

impl RedisCluster {
    /// Starts `masters` masters and waits until each of them knows that the cluster is complete.
    ///
    /// # Panics
    ///
    /// Panics if `redis-server` is not installed or does not start.
    #[must_use]
    pub fn start(masters: usize) -> Self {
        Self::with(RedisServer::builder(), masters)
    }

    /// Starts masters that share the same settings.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn with(settings: RedisServerBuilder, masters: usize) -> Self {
        let mut settings = settings.with("cluster-enabled", "yes").with("cluster-node-timeout", "60000");
        // A replica need not wait for others that may come later.
        settings = settings.with("repl-diskless-sync-delay", "0");
        if let Some(password) = settings.password().map(str::to_owned) {
            settings = settings.with("masterauth", &password);
        }
        let cluster = Self { masters: (0..masters).map(|_| settings.clone().start()).collect(), settings };
        for (index, master) in cluster.masters.iter().enumerate() {
            // Two nodes with the same epoch would first have to agree which of them gets another epoch.
            ok(master, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            let [first, next] = [index, index + 1].map(|index| SLOTS * index as i64 / masters as i64);
            let slots: Vec<String> = (first..next).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            ok(master, &words);
            cluster.masters[..index].iter().for_each(|known| meet(master, known));
        }
        wait_until_all_know(cluster.masters.iter());
        cluster
    }

    /// Starts a replica of a master and waits until it has the master's data.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_replica_of(&self, master: usize) -> RedisServer {
        let replica = self.settings.clone().start();
        self.masters.iter().for_each(|known| meet(&replica, known));
        wait_until_all_know(self.masters.iter().chain([&replica]));
        ok(&replica, &["CLUSTER", "REPLICATE", &id(&self.masters[master])]);
        let follows = || replica.command(&["INFO", "replication"]).text().contains("master_link_status:up");
        assert!(wait_until(follows), "the replica does not follow its master");
        replica
    }

    /// Returns a URL that names every master.
    #[must_use]
    pub fn url(&self) -> String {
        let login = self.settings.password().map_or_else(String::new, |password| format!(":{password}@"));
        let hosts: Vec<String> = self.masters.iter().map(|master| format!("127.0.0.1:{}", master.port())).collect();
        format!("redis+cluster://{login}{}", hosts.join(","))
    }

    /// Returns the masters, in the order of their slots.
    #[must_use]
    pub fn masters(&self) -> &[RedisServer] {
        &self.masters
    }

    /// Kills a master.
    pub fn kill(&mut self, master: usize) {
        self.masters[master].kill();
    }

    /// Restarts a master that was killed. It has its place in the cluster, and no data.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn restart(&mut self, master: usize) {
        self.masters[master].restart();
    }

    /// Returns a key with this prefix whose slot was on a master at the start.
    ///
    /// # Panics
    ///
    /// Panics if a server does not answer.
    #[must_use]
    pub fn key_on(&self, master: usize, prefix: &str) -> String {
        let count = self.masters.len() as i64;
        let home = |key: &String| (0..count).rev().find(|at| self.slot(key) >= SLOTS * at / count);
        let mut keys = (0..).map(|number| format!("{prefix}{number}"));
        keys.find(|key| home(key) == i64::try_from(master).ok()).expect("some key lies there")
    }

    /// Returns a key with this prefix in one of these slots.
    ///
    /// # Panics
    ///
    /// Like [`key_on`](Self::key_on).
    #[must_use]
    pub fn key_among(&self, slots: Range<u16>, prefix: &str) -> String {
        let among = |key: &String| slots.contains(&u16::try_from(self.slot(key)).unwrap_or(u16::MAX));
        (0..).map(|number| format!("{prefix}{number}")).find(among).expect("some key lies there")
    }

    /// Moves slots one after the other, with every key in them, without waiting until other masters know. Begins a move
    /// each time that `apart` has passed.
    ///
    /// # Panics
    ///
    /// Like [`move_slot`](Self::move_slot).
    pub fn move_slots(&self, slots: Range<u16>, from: usize, to: usize, apart: Duration) {
        let [source_id, target_id] = [from, to].map(|at| id(&self.masters[at]));
        let [mut source, mut target] = [from, to].map(|at| self.masters[at].session());
        let set = |master: &mut Session, slot: &str, state: &str, other: &str| {
            let words = ["CLUSTER", "SETSLOT", slot, state, other];
            assert_eq!(master.command(&words), Reply::Text("OK".to_owned()), "{words:?}");
        };
        for slot in slots {
            let (slot, begun) = (slot.to_string(), Stopwatch::start());
            set(&mut target, &slot, "IMPORTING", &source_id);
            set(&mut source, &slot, "MIGRATING", &target_id);
            self.drain(&slot, &mut source, to);
            for master in [&mut target, &mut source] {
                set(master, &slot, "NODE", &target_id);
            }
            #[expect(clippy::disallowed_methods, reason = "tests move slots outside of any runtime")]
            thread::sleep(apart.saturating_sub(begun.elapsed()));
        }
    }

    /// Begins to move the slot of a key from one master to another. No key is moved yet.
    ///
    /// # Panics
    ///
    /// Panics if the slot is not served by `from`.
    pub fn open_slot(&self, key: &str, from: usize, to: usize) {
        let (slot, [from, to]) = (self.slot(key).to_string(), [from, to].map(|at| &self.masters[at]));
        ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves keys of one slot that is being moved.
    ///
    /// # Panics
    ///
    /// Panics if none of them exists.
    pub fn move_keys(&self, keys: &[&str], from: usize, to: usize) {
        let moved = self.migrate(keys, &mut self.masters[from].session(), to);
        assert_eq!(moved, Reply::Text("OK".to_owned()), "{keys:?}");
    }

    fn migrate(&self, keys: &[&str], from: &mut Session, to: usize) -> Reply {
        let port = self.masters[to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "60000"];
        if let Some(password) = self.settings.password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        words.extend(keys);
        from.command(&words)
    }

    /// Ends the move of a slot, and waits until every master knows.
    ///
    /// # Panics
    ///
    /// Panics if the old master still has keys of the slot.
    pub fn close_slot(&self, key: &str, from: usize, to: usize) {
        let (slot, owner) = (self.slot(key).to_string(), id(&self.masters[to]));
        for master in [to, from] {
            ok(&self.masters[master], &["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        }
        let known = || {
            self.masters.iter().all(|master| {
                let Reply::Error(moved) = master.command(&["EXISTS", key]) else {
                    return master.port() == self.masters[to].port();
                };
                moved.ends_with(&format!(":{}", self.masters[to].port()))
            })
        };
        assert!(wait_until(known), "the masters do not agree on the slot");
    }

    /// Moves the slot of a key, with every key in it, and waits until every master knows.
    ///
    /// # Panics
    ///
    /// Panics if a key cannot be moved, for example because it was also made at the other master in the meantime.
    pub fn move_slot(&self, key: &str, from: usize, to: usize) {
        self.open_slot(key, from, to);
        self.drain_slot(key, from, to);
        self.close_slot(key, from, to);
    }

    /// Moves every key of a slot that is being moved.
    ///
    /// # Panics
    ///
    /// Like [`move_slot`](Self::move_slot).
    pub fn drain_slot(&self, key: &str, from: usize, to: usize) {
        self.drain(&self.slot(key).to_string(), &mut self.masters[from].session(), to);
    }

    fn drain(&self, slot: &str, from: &mut Session, to: usize) {
        loop {
            let Reply::List(keys) = from.command(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]) else {
                panic!("the keys of a slot are a list")
            };
            let keys: Vec<&str> = keys.iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            let moved = self.migrate(&keys, from, to);
            // They may have been deleted in the meantime.
            assert!(matches!(moved.text(), "OK" | "NOKEY"), "{keys:?}: {moved:?}");
        }
    }

    fn slot(&self, key: &str) -> i64 {
        let alive = self.masters.iter().find(|master| master.is_running()).expect("a master runs");
        alive.command(&["CLUSTER", "KEYSLOT", key]).int()
    }
}

fn wait_until_all_know<'a>(nodes: impl Iterator<Item = &'a RedisServer>) {
    let nodes: Vec<_> = nodes.collect();
    let knows = |node: &&RedisServer| {
        let info = node.command(&["CLUSTER", "INFO"]);
        let known = info.text().lines().find_map(|line| line.strip_prefix("cluster_known_nodes:")?.trim().parse().ok());
        // Replicas that were started earlier are known too.
        info.text().contains("cluster_state:ok") && known.is_some_and(|known: usize| known >= nodes.len())
    };
    assert!(wait_until(|| nodes.iter().all(knows)), "the nodes do not find together");
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text().to_owned()
}

fn meet(node: &RedisServer, other: &RedisServer) {
    ok(node, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
}

fn ok(node: &RedisServer, words: &[&str]) {
    assert_eq!(node.command(words), Reply::Text("OK".to_owned()), "{words:?}");
}
