//! Locks on a Redis Cluster: each at the master that serves its slot.
//!
//! One table says which master serves which slot. Whoever is redirected corrects it at once, and the keeper looks
//! at the cluster whenever something is wrong; see `look.rs`. Calls follow it until their deadline; see `route.rs`.

pub(super) mod redirect;
pub(super) mod slots;

mod failovers;
mod look;
mod route;
mod table;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::backend::Grant;
use crate::clock::Timestamp;
use crate::error::{LockError, Result};
use crate::fencing::FencingToken;
use crate::options::Durability;
use crate::owner::OwnerId;
use crate::redis::clock::Floor;
use crate::redis::cluster::failovers::Failovers;
use crate::redis::cluster::table::Table;
use crate::redis::connect::Target;
use crate::redis::discovery::durability_of;
use crate::redis::keys::SLOTS;
use crate::redis::node::Node;
use crate::redis::settings::Settings;
use crate::redis::url::{Address, Nat, Several};

/// How such a URL is written.
const SHAPE: &str = "redis+cluster://[user:password@]host[:6379],host…, or rediss+cluster:// for TLS";

/// How many grants are remembered, to recognise their copies.
const COPIES: usize = 64;

/// What the masters of one cluster have in common.
pub(super) struct Common {
    /// By slot, because each has a clock of its own.
    floors: Box<[Floor]>,
    /// The last grants that were delivered: the cluster passes each on to all of its nodes.
    delivered: Mutex<VecDeque<(OwnerId, FencingToken)>>,
    /// Notified when something is wrong with a master.
    trouble: Notify,
}

impl Common {
    /// Returns the floor of the clock of a slot.
    pub(super) fn floor(&self, slot: usize) -> &Floor {
        &self.floors[slot]
    }

    /// Has the keeper look at the cluster.
    pub(super) fn look_soon(&self) {
        self.trouble.notify_one();
    }

    /// Returns whether a grant is not a copy of one that was delivered.
    pub(super) fn is_news(&self, grant: &Grant) -> bool {
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let this = (grant.claim.owner, grant.token);
        if delivered.contains(&this) {
            return false;
        }
        if delivered.len() == COPIES {
            delivered.pop_front();
        }
        delivered.push_back(this);
        true
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Common")
    }
}

/// What the URL of a cluster says.
pub(super) struct Seeds {
    /// Some of its nodes, at least one.
    pub(super) targets: Vec<Target>,
    pub(super) nat: Nat,
}

impl Seeds {
    /// Returns whether a URL is one of a cluster.
    pub(super) fn are_named_by(url: &str) -> bool {
        url.starts_with("redis+cluster://") || url.starts_with("rediss+cluster://")
    }

    /// Reads a URL.
    pub(super) fn parse(url: &str, settings: &Settings) -> Result<Self> {
        let Several { tls, login, hosts, path, nat, .. } = Several::read(url, 6379, &[], SHAPE)?;
        if !matches!(path, "" | "0") {
            return Err(LockError::misconfigured(format!(
                "a Redis Cluster has only database 0; remove what follows the hosts, and write {SHAPE}",
            )));
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let target = |host: &Address| Target::parse(&format!("{scheme}://{login}{host}"), settings.clone());
        Ok(Self { targets: hosts.iter().map(target).collect::<Result<_>>()?, nat })
    }
}

/// A cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The nodes of the URL, by whatever name it gives them.
    seeds: Vec<Arc<Node>>,
    nat: Nat,
    /// Where a lock must have arrived before it counts, if its request does not say.
    pub(super) durability: Durability,
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
    pub(super) fn parse(url: &str, settings: &Settings) -> Result<Self> {
        let (url, durability) = durability_of(url)?;
        let Seeds { targets, nat } = Seeds::parse(&url, settings)?;
        let common = Arc::new(Common {
            floors: (0..SLOTS).map(|_| Floor::default()).collect(),
            delivered: Mutex::default(),
            trouble: Notify::new(),
        });
        Ok(Self {
            seeds: targets.into_iter().map(|target| Arc::new(Node::in_cluster(target, durability, &common))).collect(),
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
    pub(super) fn name(&self) -> String {
        self.seeds.iter().map(|seed| seed.name()).collect::<Vec<_>>().join(",")
    }

    /// Returns how many runtimes have a connection, counted for each node.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn connections(&self) -> usize {
        let nodes = (0..=u16::MAX).map_while(|lane| self.table.node(lane));
        nodes.chain(&self.seeds).map(|node| node.pool.connections()).sum()
    }
}
