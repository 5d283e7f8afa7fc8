//! Examines whether the servers behind a store are as locks need them: what works, what is lost, what to set.
//!
//! Each check has a bound of its own, and a connection that no lock uses. Its keys have an expiry from their first moment.

mod commands;
mod judge;
mod probe;
mod servers;
mod settings;

use tokio::task::JoinSet;

use crate::RedisStore;
use crate::doctor::probe::Probe;
use crate::server::checks::{Exposure, replication};
use lock_store::contract::backend::{Doctor, Finding, FindingGrade};
use lock_store::types::options::Durability;

impl Doctor for RedisStore {
    async fn examine(&self) -> Vec<Finding> {
        let servers = servers::of(&self.masters).await;
        let (is_cluster, fails_over) = (servers.is_cluster, servers.fails_over);
        let first = self.masters.first();
        let (durability, accepts_loss) = (first.durability, first.accepts_loss);
        let mut asking = JoinSet::new();
        for (at, mut probe) in servers.masters.into_iter().enumerate() {
            asking.spawn(async move {
                let mut found = server(&mut probe, durability, is_cluster).await;
                if found.len() > 1 {
                    found.push(replicas(&mut probe, durability, accepts_loss, fails_over).await);
                }
                (at, probe.target.node().to_owned(), found)
            });
        }
        let mut all = asking.join_all().await;
        all.sort_by_key(|(at, ..)| *at);
        let mut found = servers.found;
        let all: Vec<_> = all.into_iter().map(|(_, node, found)| (node, found)).collect();
        found.extend(merged(&all));
        found
    }
}

/// Examines one server. A single finding says that it cannot be reached, or why nothing else counts.
async fn server(probe: &mut Probe, durability: Durability, is_cluster: bool) -> Vec<Finding> {
    if let Err(error) = probe.connect().await {
        return vec![judge::failed("server", &error)];
    }
    let mut found = settings::about(probe).await.to_vec();
    let is_replica = found[1].grade == FindingGrade::Refused;
    // A replica refuses each of them, for the reason that is known already.
    if !is_replica {
        found.extend(commands::examine(probe, durability, is_cluster).await);
    }
    found.extend(settings::examine(probe).await);
    found
}

/// Says whether a failover may lose locks.
async fn replicas(probe: &mut Probe, durability: Durability, accepts_loss: bool, fails_over: bool) -> Finding {
    let known = probe.with(async |link| Ok(replication(link).await)).await.ok().flatten();
    let Some((replicas, _)) = known else {
        return Finding::unknown("replicas", "the server does not report its replicas; permit INFO");
    };
    let exposure = Exposure { replicas, fails_over, durability, accepts_loss };
    if exposure.is_unguarded() {
        return Finding::warning("replicas", exposure.says()).with_remedy(Exposure::REMEDY);
    }
    let says = match (replicas, durability, accepts_loss) {
        (0, Durability::Master, false) => "none: no failover can lose locks".to_owned(),
        (_, Durability::Master, _) => format!("{replicas}; no lock waits for them, as chosen (acks=0, or a quorum)"),
        _ => format!("{replicas}; {durability}"),
    };
    Finding::works("replicas", says)
}

/// Puts together what several servers say: once what all say, else with the name of the server.
fn merged(all: &[(String, Vec<Finding>)]) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for (node, found) in all {
        for finding in found {
            if all.iter().all(|(_, others)| others.contains(finding)) {
                if !merged.contains(finding) {
                    merged.push(finding.clone());
                }
            } else {
                let mut of_one = finding.clone();
                of_one.says = format!("{node}: {}", finding.says);
                merged.push(of_one);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests;
