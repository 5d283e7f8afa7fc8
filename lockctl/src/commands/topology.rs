//! The command that shows the servers behind a URL.

use std::time::Duration;

use lock_core::inspect::{Part, Server, Topology};
use lock_core::{Durability, LockError};
use serde_json::{Value, json};

use crate::end::{End, Failure};
use crate::output::{Output, Table};
use lock_core::store::text::human;

pub(crate) async fn topology(url: &str, out: &mut Output) -> Result<End, Failure> {
    if url.starts_with("postgres") {
        return Err(Failure::Url(LockError::misconfigured(
            "the servers of PostgreSQL are not read; ask the database itself: SELECT * FROM pg_stat_replication",
        )));
    }
    let topology = Topology::read(url).await.map_err(Failure::Url)?;
    if out.is_json() {
        out.document(&document(&topology))?;
    } else {
        out.line(&table(&topology))?;
        out.line(&summary(&topology))?;
    }
    Ok(if gives_locks(&topology) { End::Ok } else { End::Unavailable })
}

fn document(topology: &Topology) -> Value {
    let server = |server: &Server| {
        let mut document = json!({
            "node": server.name,
            "part": server.part.as_str(),
            "replicas": server.replicas,
            "min_replicas": server.min_replicas,
            "slots": server.slots,
            "slots_open": server.slots_open,
            "names": server.names,
        });
        add_vote(&mut document, server);
        document
    };
    json!({
        "kind": topology.kind,
        "durability": topology.durability.to_string(),
        "majority": topology.majority,
        "gives_locks": gives_locks(topology),
        "nodes": topology.servers.iter().map(server).collect::<Vec<_>>(),
    })
}

/// Adds whether a member grants locks, and why not.
pub(crate) fn add_vote(document: &mut Value, server: &Server) {
    document["counts"] = json!((server.part == Part::Member).then(|| counts(server)));
    document["excluded_for_ms"] = json!(server.excluded_for.and_then(|left| match left {
        Duration::MAX => None,
        left => u64::try_from(left.as_millis()).ok(),
    }));
    document["member_lists"] = server.lists.iter().map(lock_core::store::MemberList::to_text).collect();
    document["problem"] = json!(server.problem);
}

fn table(topology: &Topology) -> String {
    let mut table = Table::new(&["NODE", "PART", "STATE", "PROBLEM"]);
    for server in &topology.servers {
        let problem = server.problem.clone().unwrap_or_else(|| "-".to_owned());
        table.row([server.name.clone(), server.part.as_str().to_owned(), state(server), problem]);
    }
    table.render()
}

/// Says in words what is known of a server.
fn state(server: &Server) -> String {
    let mut said = Vec::new();
    if let Some(slots) = server.slots {
        said.push(format!("{slots} slots"));
    }
    if let Some(open) = server.slots_open.filter(|open| *open > 0) {
        said.push(format!("{open} half moved"));
    }
    if server.part == Part::Member && server.problem.is_none() {
        said.push(match server.excluded_for {
            None => "counts".to_owned(),
            Some(Duration::MAX) => "new data: counts max_ttl after its next vote".to_owned(),
            Some(left) => format!("counts in {}", human(left)),
        });
    }
    if let (Some(replicas), true) = (server.replicas, server.part == Part::Master || server.replicas > Some(0)) {
        let least = server.min_replicas.filter(|least| *least > 0);
        let least = least.map_or(String::new(), |least| format!(", {least} needed"));
        let noun = if replicas == 1 { "replica" } else { "replicas" };
        said.push(format!("{replicas} {noun}{least}"));
    }
    match &server.names {
        Some(address) if server.part == Part::Master => said.insert(0, format!("at {address}")),
        Some(master) => said.push(format!("names {master}")),
        None => {}
    }
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}

pub(crate) fn summary(topology: &Topology) -> String {
    if let Some(majority) = topology.majority {
        let (all, counted) = (topology.servers.len(), topology.servers.iter().filter(|member| counts(member)).count());
        let end = match counted.checked_sub(majority) {
            _ if disagree(topology) => {
                "this list grants no lock while members remember another one: name the same members everywhere"
                    .to_owned()
            }
            None => format!("no lock is granted, {}", until(&topology.servers, majority)),
            Some(0) => "the next failure ends all locks".to_owned(),
            Some(_) => "a minority may fail".to_owned(),
        };
        return format!("quorum: {counted} of {all} members count, {majority} must grant a lock: {end}");
    }
    let has_replicas = topology.servers.iter().any(|server| server.replicas > Some(0));
    let requires = topology.servers.iter().any(|server| server.min_replicas > Some(0));
    let survives = match topology.durability {
        Durability::Master if !has_replicas => "no replica takes over from a master",
        Durability::Master if requires => "a master that is cut off stops giving locks; the last ones may be lost",
        Durability::Master => {
            "a failover may lose locks that are held; add acks=1 to the URL, or set min-replicas-to-write 1"
        }
        _ => "locks count when they have arrived there",
    };
    format!("{}: durability {}: {survives}", topology.kind, topology.durability)
}

/// Says when so many members count as must.
fn until(members: &[Server], majority: usize) -> String {
    let sound = members.iter().filter(|member| member.problem.is_none());
    let mut left: Vec<Duration> = sound.map(|member| member.excluded_for.unwrap_or_default()).collect();
    left.sort_unstable();
    match left.get(majority - 1) {
        None => "until the problems that are named are mended".to_owned(),
        Some(&Duration::MAX) => {
            "until max_ttl after the next vote; for a new quorum, see `lockctl quorum init`".to_owned()
        }
        Some(left) => format!("for another {}", human(*left)),
    }
}

fn counts(member: &Server) -> bool {
    member.part == Part::Member && member.problem.is_none() && member.excluded_for.is_none()
}

/// Whether a list of members is remembered that does not fit that of the URL: then every process is refused.
fn disagree(topology: &Topology) -> bool {
    topology.servers.iter().any(|member| member.disagrees)
}

/// Whether locks can be taken: at every master, or at a majority of the members.
pub(crate) fn gives_locks(topology: &Topology) -> bool {
    match topology.majority {
        Some(majority) => {
            !disagree(topology) && topology.servers.iter().filter(|member| counts(member)).count() >= majority
        }
        None => {
            let mut masters = topology.servers.iter().filter(|server| server.part == Part::Master);
            masters.all(|master| master.problem.is_none())
        }
    }
}
