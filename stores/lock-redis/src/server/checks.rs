//! Checks the settings of a server that decide whether locks can get lost.

use std::sync::atomic::Ordering;

use redis::Value;

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
    let is_unguarded = replicas > 0 && min_replicas == 0 && server.durability == Durability::Master;
    if is_unguarded && !server.warned_of_replicas.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            node,
            replicas,
            "a failover of this server may lose locks that are held; set min-replicas-to-write 1, or add acks=1 to \
             the URL",
        );
    }
}

/// Asks what runs on a server.
async fn version(link: &Link) -> Option<String> {
    let mut info = redis::cmd("INFO");
    info.arg("server");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    let told = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
    // Valkey also tells the version of Redis that it is like.
    let others = ["valkey", "dragonfly"].into_iter().find_map(|name| Some((name, told(&format!("{name}_version:"))?)));
    let (name, version) = others.or_else(|| Some(("redis", told("redis_version:")?)))?;
    Some(format!("{name} {version}"))
}

/// Asks for the eviction policy, in the way that managed servers allow if they forbid the direct
/// one.
async fn eviction_policy(link: &Link) -> Option<String> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy");
    if let Ok(Value::Map(found)) = link.send(&config).await
        && let Some((_, Value::BulkString(policy))) = found.into_iter().next()
    {
        return String::from_utf8(policy).ok();
    }
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(|policy| policy.trim().to_owned())
}

/// Asks how many replicas are connected, and without how many the server refuses writes.
pub(crate) async fn replication(link: &Link) -> Option<(u32, u32)> {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let text: String = redis::from_redis_value(link.send(&info).await.ok()?).ok()?;
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let replicas = number("connected_slaves:")?;
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("min-replicas-to-write");
    let exactly = match link.send(&config).await {
        Ok(Value::Map(found)) => found.into_iter().next().and_then(|(_, least)| redis::from_redis_value(least).ok()),
        _ => None,
    };
    // Only a server that requires some counts those that are close enough.
    let at_least = u32::from(number("min_slaves_good_slaves:").is_some());
    Some((replicas, exactly.unwrap_or(at_least)))
}

/// Asks how many slots are being moved, which a node tells only of its own.
pub(crate) async fn open_slots(link: &Link) -> Option<u32> {
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let text: String = redis::from_redis_value(link.send(&nodes).await.ok()?).ok()?;
    slots::open(&text)
}
