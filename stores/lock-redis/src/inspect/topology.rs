//! Which servers a URL leads to, and what of the locks would survive the loss of one.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::RedisStore;
use crate::connection::greeting::line;
use crate::connection::link::{self, Link};
use crate::inspect::servers::{Fleet, within};
use crate::protocol::keys::{BIRTH, MEMBERS};
use crate::sentinel::place::Place;
use crate::server::checks::{open_slots, replication};
use crate::server::node::Node;
use lock_store::contract::backend::MemberList;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::command_timeout;
use lock_store::types::system::clock::Clock;

/// How long a member of a quorum may take: the others are shown soon, also if one hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// One server. See the example of `lock_core::inspect::Topology`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Server {
    /// Its address, without credentials.
    pub name: String,
    /// Its role for the locks.
    pub part: Part,
    /// For a master or a member: how many replicas are connected.
    pub replicas: Option<u32>,
    /// For a master or a member: it refuses writes with fewer connected replicas.
    pub min_replicas: Option<u32>,
    /// For a master of a cluster: how many slots it serves.
    pub slots: Option<u32>,
    /// For a master of a cluster: how many slots it is giving away or taking over.
    pub slots_open: Option<u32>,
    /// For a sentinel: the master that it names. For a master behind sentinels: the address on which they agree.
    pub names: Option<String>,
    /// Of a member: the lists of members that it remembers.
    pub lists: Vec<MemberList>,
    /// Of a member: whether one of those lists does not fit that of the URL. Then no process of that URL is granted a lock.
    pub disagrees: bool,
    /// Of a member: for how much longer it does not count, because its data are too young. `Duration::MAX` if it has
    /// never been asked for a lock.
    pub excluded_for: Option<Duration>,
    /// Its problems.
    pub problem: Option<String>,
}

/// The role of a server for the locks. See the example of `lock_core::inspect::Topology`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// It gives locks.
    #[default]
    Master,
    /// It follows the master above it.
    Replica,
    /// It says where the master is.
    Sentinel,
    /// It is one of those whose majority gives locks.
    Member,
}

impl Part {
    /// Returns the name for programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Replica => "replica",
            Self::Sentinel => "sentinel",
            Self::Member => "member",
        }
    }
}

impl Server {
    fn new(name: impl Into<String>, part: Part) -> Self {
        Self { name: name.into(), part, ..Self::default() }
    }

    fn failed(mut self, error: &LockError) -> Self {
        self.problem = Some(error.to_string());
        self
    }
}

/// Asks every server of a store: one server, one behind sentinels, or those of a cluster. Returns the kind with them.
#[doc(hidden)]
pub async fn of_store(store: &RedisStore) -> Result<(&'static str, Vec<Server>)> {
    let (all, is_cluster) = (store.servers(), store.masters.only().is_none());
    let named = &all.named;
    if let Place::Sentinels(sentinels) = &named.pool.place {
        let mut servers = master(named).await;
        for (address, says) in sentinels.ask_all().await? {
            let mut server = Server::new(address.to_string(), Part::Sentinel);
            server.names = says.as_ref().ok().map(ToString::to_string);
            server.problem = says.err().map(|error| error.to_string());
            servers.push(server);
        }
        servers[0].names = agreed(&servers);
        return Ok(("sentinel", servers));
    }
    let topology = match all.look().await {
        Ok(Fleet::Cluster(topology)) => topology,
        Ok(Fleet::One(node)) => return Ok(("server", master(&node).await)),
        Err(error) => {
            let away = Server::new(named.name(), Part::Master).failed(&error);
            return Ok((if is_cluster { "cluster" } else { "server" }, vec![away]));
        }
    };
    let mut servers = Vec::new();
    for address in topology.masters() {
        let mut followed = match all.master(address).await {
            Ok(node) => master(&node).await,
            Err(error) => vec![Server::new(address.to_string(), Part::Master).failed(&error)],
        };
        followed[0].slots = u32::try_from(topology.served_by(address)).ok();
        servers.append(&mut followed);
    }
    Ok(("cluster", servers))
}

/// Asks the members of a quorum, all at once.
#[doc(hidden)]
pub async fn of_members(members: Vec<RedisStore>, list: &MemberList) -> Vec<Server> {
    let mut asking = JoinSet::new();
    for (at, store) in members.into_iter().enumerate() {
        let list = list.clone();
        asking.spawn(async move {
            let node = &store.servers().named;
            let said = link::within(PATIENCE, member(node, &list)).await.unwrap_or_else(|| {
                Server::new(node.name(), Part::Member).failed(&LockError::unavailable(format!(
                    "{} did not answer within {PATIENCE:?}; check whether it is stalled",
                    node.name()
                )))
            });
            (at, said)
        });
    }
    let mut servers = asking.join_all().await;
    servers.sort_by_key(|(at, _)| *at);
    servers.into_iter().map(|(_, server)| server).collect()
}

/// Returns the master that every sentinel names which names one.
fn agreed(servers: &[Server]) -> Option<String> {
    let mut named = servers.iter().filter_map(|server| server.names.as_ref());
    let first = named.next()?;
    named.all(|other| other == first).then(|| first.clone())
}

/// Describes a master, and its replicas.
async fn master(node: &Node) -> Vec<Server> {
    let mut found = Server::new(node.name(), Part::Master);
    let asked = within(node, "say who follows it", async {
        let connection = node.pool.connection().await?;
        let link = &connection.link;
        Ok((open_slots(link).await, info(node, link).await?, replication(link).await))
    });
    let (slots_open, info, known) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return vec![found.failed(&error)],
    };
    found.slots_open = slots_open;
    (found.replicas, found.min_replicas) = known.unzip();
    found.problem = of_replica(&info);
    let mut servers = vec![found];
    servers.extend(info.lines().filter_map(replica));
    servers
}

/// Describes a member of a quorum.
async fn member(node: &Node, list: &MemberList) -> Server {
    let mut found = Server::new(node.name(), Part::Member);
    let asked = within(node, "say since when it has kept its data", async {
        let connection = node.pool.connection().await?;
        let link = &connection.link;
        let info = info(node, link).await?;
        let failed = |error| node.failed("say since when it has kept its data", &error);
        let birth = link.send(redis::cmd("GET").arg(BIRTH)).await.map_err(failed)?;
        let lists = link.send(redis::cmd("HGETALL").arg(MEMBERS)).await.map_err(failed)?;
        let now = link.time.estimate(Clock::system().now()) / 1000;
        Ok((replication(link).await, info, birth, lists, now))
    });
    let (known, info, birth, lists, now) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return found.failed(&error),
    };
    (found.replicas, found.min_replicas) = known.unzip();
    found.problem = of_replica(&info);
    let lists: Vec<(String, u64)> = redis::from_redis_value(lists).unwrap_or_default();
    let used = lists.iter().filter(|(_, until)| *until > now);
    found.lists = used.filter_map(|(list, _)| MemberList::from_text(list)).collect();
    let birth: Option<String> = redis::from_redis_value(birth).unwrap_or_default();
    let since = birth.as_deref().and_then(|birth| {
        let (history, since) = birth.split_once('|')?;
        (Some(history) == line(&info, "master_replid:")).then_some(since.parse::<u64>().ok()?)
    });
    let longest = found.lists.iter().map(|other| other.max_ttl).max().unwrap_or_default().max(list.max_ttl);
    found.excluded_for = match since {
        None => Some(Duration::MAX),
        Some(since) => {
            let kept = Duration::from_millis(now.saturating_sub(since));
            (longest + command_timeout(longest)).checked_sub(kept).filter(|left| !left.is_zero())
        }
    };
    found
}

async fn info(node: &Node, link: &Link) -> Result<String> {
    let answer = link.send(redis::cmd("INFO").arg("replication")).await;
    let answer = answer.map_err(|error| node.failed("say who follows it", &error))?;
    redis::from_redis_value(answer).map_err(|_| node.unreadable("say who follows it"))
}

/// Says what is wrong with a server that should be a master.
fn of_replica(info: &str) -> Option<String> {
    let is_master = line(info, "role:") == Some("master");
    (!is_master).then(|| "it is a replica, and gives no locks; name its master".to_owned())
}

/// Reads `slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0`.
fn replica(line: &str) -> Option<Server> {
    let (name, fields) = line.trim().split_once(':')?;
    name.strip_prefix("slave")?.parse::<u32>().ok()?;
    let field = |name: &str| fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let (host, port) = (field("ip")?, field("port")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut found = Server::new(format!("{host}:{port}"), Part::Replica);
    found.problem = match (field("state"), field("lag").and_then(|lag| lag.parse::<u64>().ok())) {
        (Some("online"), Some(lag)) if lag > 10 => Some(format!("it has not confirmed anything for {lag} s")),
        (Some("online"), _) => None,
        (state, _) => Some(format!("it has not caught up yet ({})", state.unwrap_or("unknown"))),
    };
    Some(found)
}

#[cfg(test)]
#[path = "tests/topology.rs"]
mod tests;
