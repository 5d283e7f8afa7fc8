//! Locks on a Redis Cluster: each at the master that serves its slot.
//!
//! One table says which master serves which slot. A redirected call corrects it at once, and the keeper refreshes it
//! whenever something is wrong; see `look.rs`. Calls follow it until their deadline; see `route.rs` and `watch.rs`.

mod look;
mod route;
mod table;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::cluster::table::{Failovers, Table};
use crate::connection::connect::{Settings, Target};
use crate::connection::url::{Address, Nat, Several};
use crate::server::common::Common;
use crate::server::node::Node;
use lock_store::types::error::{LockError, Result};
use lock_store::types::options::Durability;
use lock_store::types::system::clock::Timestamp;
use lock_store::types::url::StoreUrl;

/// How such a URL is written.
const SHAPE: &str = "redis+cluster://[user:password@]host[:6379],host…, or rediss+cluster:// for TLS";

/// The error of a URL that says cluster of a server that is none.
pub(crate) fn no_cluster(node: &str) -> LockError {
    LockError::misconfigured(format!("{node} is no node of a cluster; write redis:// in the URL, or rediss:// for TLS"))
}

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The nodes of the URL, by whatever name it gives them.
    pub(crate) seeds: Vec<Arc<Node>>,
    /// Which addresses are reached at others.
    pub(crate) nat: Nat,
    /// Where a lock must have arrived before it counts, if its request does not say.
    durability: Durability,
    common: Arc<Common>,
    table: Table,
    /// When the last look began. Held during a look, so that there is one at a time.
    looked: tokio::sync::Mutex<Timestamp>,
    /// How many looks there were.
    looks: AtomicUsize,
    /// How many keepers look by themselves.
    keepers: AtomicUsize,
    /// How often slots got other masters, since observers were told.
    slots_moved: AtomicU64,
    failovers: Failovers,
}

impl Cluster {
    /// Reads a URL. Opens nothing.
    pub(crate) fn parse(
        url: &StoreUrl,
        settings: &Settings,
        (durability, accepts_loss): (Durability, bool),
    ) -> Result<Self> {
        let Several { tls, login, hosts, path, nat, .. } = Several::read(url, 6379, &[], SHAPE)?;
        if !matches!(path, "" | "0") {
            return Err(LockError::misconfigured(format!(
                "locks of a cluster lie in its database 0; remove what follows the hosts, and write {SHAPE}",
            )));
        }
        let mut common = Common::default();
        common.accepts_loss = accepts_loss;
        let common = Arc::new(common);
        let seed = |host: &Address| {
            let target = Target::one_of(tls, &login, host, 0, settings.clone())?;
            Ok(Arc::new(Node::in_cluster(target, durability, &common)))
        };
        Ok(Self {
            seeds: hosts.iter().map(seed).collect::<Result<_>>()?,
            nat,
            durability,
            common,
            table: Table::default(),
            looked: tokio::sync::Mutex::new(Timestamp::from_nanos(0)),
            looks: AtomicUsize::new(0),
            keepers: AtomicUsize::new(0),
            slots_moved: AtomicU64::new(0),
            failovers: Failovers::default(),
        })
    }

    /// Returns the names of the nodes of the URL.
    pub(crate) fn name(&self) -> String {
        self.seeds.iter().map(|seed| seed.name()).collect::<Vec<_>>().join(",")
    }

    /// Returns the node that has or had a lane, if any.
    pub(crate) fn node(&self, lane: u16) -> Option<&Node> {
        self.table.node(lane).map(|node| &**node)
    }

    /// Returns all nodes, those of the URL last, which are others than the same by the names that the cluster gives them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        (0..=u16::MAX).map_while(|lane| self.node(lane)).chain(self.seeds.iter().map(|seed| &**seed))
    }

    /// Returns a number that is another one for a lane that replaced another.
    pub(crate) fn takeovers(&self, lane: u16) -> u64 {
        self.failovers.of(lane)
    }
}
