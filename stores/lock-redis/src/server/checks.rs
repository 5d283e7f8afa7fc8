//! Checks the settings of a server that decide whether locks can get lost.

use std::sync::atomic::Ordering;

use crate::connection::greeting::line;
use crate::connection::link::Link;
use crate::connection::slots;
use crate::sentinel::place::Place;
use crate::server::node::Node;
use lock_store::contract::backend::Inbox;
use lock_store::contract::event::Notice;
use lock_store::types::options::Durability;

/// Reports whether the server may evict locks when its memory is full.
pub(crate) async fn check_eviction(server: &Node, link: &Link, inbox: &Inbox) {
    let Some(policy) = eviction_policy(link).await else { return };
    inbox.notice(&Notice::EvictionPolicy { node: server.name(), policy: &policy });
    if policy != "noeviction" && !server.warned_of_eviction.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            node = server.name(),
            policy,
            "this server evicts keys when its memory is full, and locks are the first to go; \
             set maxmemory-policy to noeviction",
        );
    }
}

/// Reports what may change while the server is connected to.
pub(crate) async fn check_state(server: &Node, link: &Link, inbox: &Inbox) {
    check_replication(server, link, inbox).await;
    check_server(server, link, inbox).await;
    if server.cluster.is_some()
        && let Some(slots) = open_slots(link).await
    {
        inbox.notice(&Notice::SlotsOpen { node: server.name(), slots });
    }
}

/// Reports which server it is: two may have one name.
async fn check_server(server: &Node, link: &Link, inbox: &Inbox) {
    let (Some(id), Some(version)) = (server.pool.history.name(), version(link).await) else { return };
    let kind = match &server.pool.place {
        _ if server.cluster.is_some() => "cluster",
        Place::Fixed(_) => "server",
        Place::Sentinels(_) => "sentinel",
    };
    inbox.notice(&Notice::Server { node: server.name(), id: &id, version: &version, kind });
}

/// Reports who has a copy of the locks, and whether a failover may lose some.
async fn check_replication(server: &Node, link: &Link, inbox: &Inbox) {
    let Some((replicas, min_replicas)) = replication(link).await else { return };
    let node = server.name();
    inbox.notice(&Notice::Replication { node, replicas, min_replicas });
    let exposure = Exposure {
        replicas,
        fails_over: matches!(server.pool.place, Place::Sentinels(_)),
        durability: server.durability,
        accepts_loss: server.accepts_loss,
    };
    // Once for each URL: a cluster has many masters.
    let warned = server.cluster.as_ref().map_or(&server.warned_of_replicas, |cluster| &cluster.warned_of_replicas);
    if exposure.is_unguarded() && !warned.swap(true, Ordering::Relaxed) {
        tracing::warn!(node, replicas, "{}; {}", exposure.says(), Exposure::REMEDY);
    }
    inbox.notice(&Notice::FailoverExposure { node, exposed: exposure.is_unguarded() });
}

/// The risk of a failover.
pub(crate) struct Exposure {
    /// How many replicas are connected.
    pub(crate) replicas: u32,
    /// Whether a replica may take over that is not connected now.
    pub(crate) fails_over: bool,
    pub(crate) durability: Durability,
    pub(crate) accepts_loss: bool,
}

impl Exposure {
    pub(crate) const REMEDY: &'static str = "set acks=1 or fsync=1 in the URL, so that a lock counts once a replica has it; or add acks=0 if \
                                             a lost lock is harmless, for example because of fencing tokens";

    /// Returns whether a failover may lose locks, and nobody has chosen that.
    pub(crate) fn is_unguarded(&self) -> bool {
        let alone = matches!(self.durability, Durability::Master | Durability::Fsync { replicas: 0, .. });
        (self.replicas > 0 || self.fails_over) && alone && !self.accepts_loss
    }

    pub(crate) fn says(&self) -> String {
        let who = match self.replicas {
            0 => "sentinels may promote a replica".to_owned(),
            1 => "1 replica may take over".to_owned(),
            more => format!("{more} replicas may take over"),
        };
        format!("{who} without the newest locks, because no lock waits for replicas: then a lock has two holders")
    }
}

/// Asks what runs on a server.
pub(crate) async fn version(link: &Link) -> Option<String> {
    let info = link.info("server").await.ok()?;
    // Valkey also tells the version of Redis that it is like.
    ["valkey", "dragonfly", "redis"].into_iter().find_map(|name| {
        let version = line(&info, &format!("{name}_version:"))?;
        Some(format!("{name} {version}"))
    })
}

/// Asks for the eviction policy, in the way that managed servers allow if they forbid the direct
/// one.
pub(crate) async fn eviction_policy(link: &Link) -> Option<String> {
    match link.setting("maxmemory-policy").await {
        None => line(&link.info("memory").await.ok()?, "maxmemory_policy:").map(str::to_owned),
        policy => policy,
    }
}

/// Asks how many replicas are connected, and without how many the server refuses writes.
pub(crate) async fn replication(link: &Link) -> Option<(u32, u32)> {
    let info = link.info("replication").await.ok()?;
    let replicas = line(&info, "connected_slaves:")?.parse().ok()?;
    let exactly = link.setting("min-replicas-to-write").await.and_then(|least| least.parse().ok());
    // Only a server that requires some counts those that are close enough.
    let at_least = u32::from(line(&info, "min_slaves_good_slaves:").is_some());
    Some((replicas, exactly.unwrap_or(at_least)))
}

/// Asks how many slots are being moved, which a node tells only of its own.
pub(crate) async fn open_slots(link: &Link) -> Option<u32> {
    let nodes = link.send(redis::cmd("CLUSTER").arg("NODES")).await.ok()?;
    let text: String = redis::from_redis_value(nodes).ok()?;
    slots::open(&text)
}
