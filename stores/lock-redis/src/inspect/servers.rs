//! The servers of a fleet: the server of the URL, and if it is a node of a cluster, the masters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};

use crate::cluster::no_cluster;
use crate::connection::greeting::Introduction;
use crate::connection::link;
use crate::connection::slots::Topology;
use crate::connection::url::{Address, Nat};
use crate::masters::Masters;
use crate::server::node::Node;
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Clock;
use lock_store::types::system::sync::Mutex;

/// How long one exchange with a server may take, connecting included.
const PATIENCE: Duration = Duration::from_secs(6);

/// How often a command may be redirected: by a master that does not know of the last failover, to
/// one that does, and to the one that is taking the slot over.
const REDIRECTIONS: usize = 3;

/// How to reach every server of a fleet, with the credentials and settings of one URL.
pub(crate) struct Servers {
    /// The server of the URL.
    pub(super) named: Arc<Node>,
    /// Other nodes of its cluster, by name, with their connections.
    others: Mutex<BTreeMap<String, Arc<Node>>>,
    nat: Nat,
    /// Whether the URL says that they are a cluster.
    of_cluster: bool,
    /// Whether they said so too.
    is_cluster: AtomicBool,
}

/// The servers that keep the locks.
pub(super) enum Fleet {
    /// A server that is not a node of a cluster.
    One(Arc<Node>),
    Cluster(Topology),
}

/// A server's answer to one command.
pub(super) struct Answer {
    pub(super) value: Value,
    /// The server that answered.
    pub(super) from: Arc<Node>,
    /// The server's time, in µs.
    pub(super) now: u64,
}

impl Answer {
    /// Describes an answer that was not expected.
    pub(super) fn refusal(&self, op: &str) -> LockError {
        match &self.value {
            Value::ServerError(error) => self.from.failed(op, &error.clone().into()),
            _ => self.from.unreadable(op),
        }
    }
}

/// Commands for one server.
struct ServerRequest {
    to: Arc<Node>,
    /// Whether the server is taking over the slot from the one that redirected us.
    asking: bool,
    /// Which of the commands.
    which: Vec<usize>,
    /// How often they may still be redirected.
    left: usize,
}

impl Servers {
    /// Knows the servers that a URL names. A store of a cluster routes by its own table; these are followed from one to the
    /// next, as any client may.
    pub(super) fn of(masters: &Masters) -> Self {
        let at = |node: &Node| Arc::new(Node::at(node.pool.target().clone()));
        let (named, others, nat) = match masters {
            Masters::One(node) => (Arc::clone(node), BTreeMap::new(), Nat::default()),
            Masters::Cluster(cluster) => {
                let others = cluster.seeds.iter().skip(1).map(|seed| (seed.name().to_owned(), at(seed)));
                (at(&cluster.seeds[0]), others.collect(), cluster.nat.clone())
            }
        };
        let of_cluster = masters.only().is_none();
        Self { named, others: Mutex::new(others), nat, of_cluster, is_cluster: AtomicBool::default() }
    }

    /// Returns a server that can be reached: the one of the URL, or another node of its cluster.
    ///
    /// The library refuses the URL of a cluster that is none, so nothing is ever locked through it, and nothing is read.
    pub(super) async fn reachable(&self) -> Result<Arc<Node>> {
        let found = self.connected().await?;
        if self.of_cluster && !self.is_cluster.load(Ordering::Relaxed) {
            if introduction(&found).await?.mode.is_some_and(|mode| mode != "cluster") {
                return Err(no_cluster(found.name()));
            }
            self.is_cluster.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    async fn connected(&self) -> Result<Arc<Node>> {
        let Err(away) = self.named.pool.connection().await else { return Ok(Arc::clone(&self.named)) };
        if away.kind() == LockErrorKind::Unavailable {
            let others: Vec<_> = self.others.lock().values().cloned().collect();
            for other in others {
                if other.pool.connection().await.is_ok() {
                    return Ok(other);
                }
            }
        }
        Err(away)
    }

    /// Finds out which servers keep the locks.
    pub(super) async fn look(&self) -> Result<Fleet> {
        let asked = self.reachable().await?;
        if introduction(&asked).await?.mode.as_deref() != Some("cluster") {
            return Ok(Fleet::One(asked));
        }
        let what = "tell who serves which slot";
        // Every version knows this command; 6.2 does not know the one that replaces it since 7.0.
        let slots = send(&asked, what, redis::cmd("CLUSTER").arg("SLOTS")).await?;
        let answer = slots.map_err(|error| asked.failed(what, &error))?;
        let topology = Topology::read(&answer, asked.pool.target().host()).ok_or_else(|| asked.unreadable(what))?;
        match topology.unserved() {
            0 => {
                self.remember(&topology)?;
                Ok(Fleet::Cluster(topology))
            }
            unserved => Err(LockError::not_executed(format!(
                "{} knows of no master for {unserved} of the 16384 slots of its cluster; wait until the cluster is up",
                asked.name(),
            ))),
        }
    }

    /// Returns the master at an address, if it still is one.
    pub(super) async fn master(&self, address: &Address) -> Result<Arc<Node>> {
        let store = self.at(address)?;
        match introduction(&store).await?.role.as_deref() {
            Some("master") => Ok(store),
            _ => Err(LockError::not_executed(format!(
                "{} is no longer a master of its cluster; begin again when the failover has ended",
                store.name(),
            ))),
        }
    }

    /// Returns those masters that are taking over a slot, or just have. Each master is asked about
    /// itself, because it knows first.
    pub(super) async fn grown(&self, topology: &Topology) -> Result<Vec<Address>> {
        let what = "tell which slots it is taking over";
        let mut grown = Vec::new();
        for address in topology.masters() {
            let store = self.at(address)?;
            let answer = send(&store, what, redis::cmd("CLUSTER").arg("NODES")).await?;
            let answer = answer.map_err(|error| store.failed(what, &error))?;
            let nodes: String = redis::from_redis_value(answer).map_err(|_| store.unreadable(what))?;
            if topology.has_grown(address, &nodes).ok_or_else(|| store.unreadable(what))? {
                grown.push(address.clone());
            }
        }
        Ok(grown)
    }

    /// Finds the server that keeps a key.
    pub(super) async fn keeper_of(&self, key: &LockKey) -> Result<Arc<Node>> {
        let what = "find the master of a key";
        let command = redis::cmd("PTTL").arg(key.as_str()).to_owned();
        let mut store = self.reachable().await?;
        for _ in 0..=REDIRECTIONS {
            match send(&store, what, &command).await? {
                Ok(_) => return Ok(store),
                Err(error) => match redirection(&store, &error) {
                    Some((address, false)) => store = self.at(&address)?,
                    _ => return Err(store.failed(what, &error)),
                },
            }
        }
        Err(LockError::not_executed(format!(
            "the nodes of the cluster of {} do not agree who serves the key; wait for the failover to end",
            self.named.name(),
        )))
    }

    /// Sends commands to a server, and those that it does not serve to the nodes that it names. An
    /// error of one command is that command's answer.
    pub(super) async fn ask(&self, first: &Arc<Node>, what: &str, commands: &[Cmd]) -> Result<Vec<Answer>> {
        let all = (0..commands.len()).collect();
        let mut requests = vec![ServerRequest { to: Arc::clone(first), asking: false, which: all, left: REDIRECTIONS }];
        let mut answers: Vec<Option<Answer>> = commands.iter().map(|_| None).collect();
        while let Some(request) = requests.pop() {
            let (values, now) = request.run(what, commands).await?;
            for (&which, value) in request.which.iter().zip(values) {
                let elsewhere = if let Value::ServerError(error) = &value {
                    redirection(&request.to, &error.clone().into()).filter(|_| request.left > 0)
                } else {
                    None
                };
                let Some((address, asking)) = elsewhere else {
                    answers[which] = Some(Answer { value, from: Arc::clone(&request.to), now });
                    continue;
                };
                let (to, left) = (self.at(&address)?, request.left - 1);
                let same = |other: &&mut ServerRequest| {
                    Arc::ptr_eq(&other.to, &to) && (other.asking, other.left) == (asking, left)
                };
                match requests.iter_mut().find(same) {
                    Some(other) => other.which.push(which),
                    None => requests.push(ServerRequest { to, asking, which: vec![which], left }),
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Remembers the masters, and forgets all other nodes.
    fn remember(&self, topology: &Topology) -> Result<()> {
        let masters: Vec<_> = topology.masters().into_iter().map(|address| self.at(address)).collect::<Result<_>>()?;
        self.others.lock().retain(|_, other| masters.iter().any(|master| Arc::ptr_eq(master, other)));
        Ok(())
    }

    /// Returns the node at an address. It keeps its connections for the next time.
    fn at(&self, address: &Address) -> Result<Arc<Node>> {
        let address = self.nat.reach(address.clone());
        let target = self.named.pool.target().sibling(&address.host, address.port)?;
        if target.node() == self.named.name() {
            return Ok(Arc::clone(&self.named));
        }
        let mut others = self.others.lock();
        let known = others.entry(target.node().to_owned());
        Ok(Arc::clone(known.or_insert_with(|| Arc::new(Node::at(target)))))
    }
}

impl ServerRequest {
    /// Sends the commands, and returns their answers with the time on the server.
    async fn run(&self, what: &str, commands: &[Cmd]) -> Result<(Vec<Value>, u64)> {
        let mut pipeline = redis::pipe();
        for &which in &self.which {
            if self.asking {
                // It applies to one command only.
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(commands[which].clone());
        }
        let step = if self.asking { 2 } else { 1 };
        within(&self.to, what, async {
            let connection = self.to.pool.connection().await?;
            let link = &connection.link;
            let answers = link.send_all(&pipeline).await.map_err(|error| self.to.failed(what, &error))?;
            if answers.len() != self.which.len() * step {
                return Err(self.to.unreadable(what));
            }
            let answers = answers.into_iter().skip(step - 1).step_by(step).collect();
            Ok((answers, link.time.estimate(Clock::system().now())))
        })
        .await
    }
}

/// Gives up on a server that does not answer.
pub(super) async fn within<T>(store: &Node, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    link::within(PATIENCE, work).await.unwrap_or_else(|| {
        Err(LockError::unavailable(format!(
            "{} did not {what} within {PATIENCE:?}; check the network and whether it is stalled",
            store.name(),
        )))
    })
}

/// Sends one command. The inner error is the server's answer.
async fn send(store: &Node, what: &str, command: &Cmd) -> Result<std::result::Result<Value, RedisError>> {
    within(store, what, async {
        let connection = store.pool.connection().await?;
        Ok(connection.link.send(command).await)
    })
    .await
}

/// Asks a server what it is. Every user may ask this, whatever its permissions are.
async fn introduction(store: &Node) -> Result<Introduction> {
    match send(store, "say what it is", &redis::cmd("HELLO")).await? {
        Ok(hello @ Value::Map(_)) => Ok(Introduction::read(Some(hello), None)),
        Ok(_) => Err(store.unreadable("say what it is")),
        // A proxy in between that does not know the command is not a node of a cluster.
        Err(error) if error.code() == Some("ERR") => Ok(Introduction::read(None, None)),
        Err(error) => Err(store.failed("say what it is", &error)),
    }
}

/// Returns where an error redirects us, and whether only this once.
fn redirection(from: &Node, error: &RedisError) -> Option<(Address, bool)> {
    let (address, _slot) = error.redirect_node()?;
    Some((Address::redirected(address, from.pool.target().host())?, error.code() == Some("ASK")))
}
