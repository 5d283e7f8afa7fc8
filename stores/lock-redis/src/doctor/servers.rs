//! Which servers a store leads to: one, the master that sentinels name, or the masters of a cluster.

use redis::cmd;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, no_cluster};
use crate::connection::connect::Target;
use crate::connection::greeting::Introduction;
use crate::connection::link::within;
use crate::connection::slots::Topology;
use crate::connection::url::Nat;
use crate::doctor::judge::{Failure, Need, failed, judge};
use crate::doctor::probe::Probe;
use crate::masters::Masters;
use crate::sentinel::Sentinels;
use crate::sentinel::place::Place;
use lock_store::contract::backend::Finding;

/// What is found: the servers, and what can be said before they are asked.
#[derive(Default)]
pub(super) struct Servers {
    /// A connection to each that takes locks.
    pub(super) masters: Vec<Probe>,
    pub(super) found: Vec<Finding>,
    pub(super) is_cluster: bool,
    /// Whether a replica may take over although none is connected now.
    pub(super) fails_over: bool,
}

/// Finds the servers.
pub(super) async fn of(masters: &Masters) -> Servers {
    let found = match masters {
        Masters::One(node) => match &node.pool.place {
            Place::Fixed(target) => at(target).await,
            Place::Sentinels(sentinels) => behind(sentinels).await,
        },
        Masters::Cluster(cluster) => among(cluster).await,
    };
    found.unwrap_or_else(|why| Servers { found: vec![why], ..Servers::default() })
}

/// The masters of the cluster of the URL.
async fn among(cluster: &Cluster) -> Result<Servers, Finding> {
    // All at once: a node that does not answer must not cost the time of the others.
    let mut asking = JoinSet::new();
    for seed in &cluster.seeds {
        let mut probe = Probe::new(seed.pool.target().clone(), 0);
        asking.spawn(async move { (topology(&mut probe).await, probe) });
    }
    let mut why = Finding::unknown("server", "no node of the cluster was asked");
    while let Some(Ok((known, probe))) = asking.join_next().await {
        match known {
            Ok(topology) => return Ok(of_cluster(&topology, &probe, &cluster.nat, false)),
            Err(found) => why = found,
        }
    }
    Err(why)
}

/// The server of the URL, and if it is a node of a cluster, all masters.
async fn at(target: &Target) -> Result<Servers, Finding> {
    let mut probe = Probe::new(target.clone(), 0);
    let failed = |error| failed("server", &error);
    probe.connect().await.map_err(failed)?;
    let about = Introduction::read(probe.ask(&cmd("HELLO")).await.ok(), None);
    about.check(target.node(), false).map_err(failed)?;
    if about.mode.as_deref() != Some("cluster") {
        return Ok(Servers { masters: vec![probe], ..Servers::default() });
    }
    Ok(of_cluster(&topology(&mut probe).await?, &probe, &Nat::default(), true))
}

async fn behind(sentinels: &Sentinels) -> Result<Servers, Finding> {
    let (subject, template) = ("sentinels", &sentinels.master);
    let failed = |error| failed(subject, &error);
    let said = within(template.settings.connect_within, sentinels.ask_all()).await;
    let said = said.ok_or_else(|| Finding::unknown(subject, "no sentinel answers in time"))?.map_err(failed)?;
    let all = said.len();
    let mut named: Vec<_> = said.iter().filter_map(|(_, said)| said.as_ref().ok()).collect();
    let Some(&master) = named.first() else {
        let why = said.into_iter().find_map(|(_, said)| said.err());
        return Err(why.map_or_else(|| Finding::unknown(subject, "no sentinel names a master"), failed));
    };
    let target = template.sibling(&master.host, master.port).map_err(failed)?;
    let answered = named.len();
    named.dedup();
    let found = if named.len() > 1 {
        Finding::warning(subject, "they name different masters: a failover is in progress")
            .with_remedy("wait until it has, or correct `sentinel monitor` where it names another")
    } else {
        Finding::works(subject, format!("{answered} of {all} answer, and name {master}"))
    };
    Ok(Servers { masters: vec![Probe::new(target, 0)], found: vec![found], is_cluster: false, fails_over: true })
}

/// Asks a node which masters serve which slots.
async fn topology(probe: &mut Probe) -> Result<Topology, Finding> {
    let host = probe.target.host().to_owned();
    let answer = probe.ask(cmd("CLUSTER").arg("SLOTS")).await;
    let read = |answer| Topology::read(&answer, &host).ok_or_else(Failure::unreadable);
    match answer.and_then(read) {
        Ok(topology) => Ok(topology),
        Err(Failure::Refused(error))
            if error.detail().is_some_and(|text| text.contains("cluster support disabled")) =>
        {
            Err(failed("server", &no_cluster(probe.target.node())))
        }
        Err(failure) => Err(judge("slots", &Need::Required, Err(failure))),
    }
}

fn of_cluster(topology: &Topology, asked: &Probe, nat: &Nat, is_named_as_one: bool) -> Servers {
    let (mut found, mut masters) = (Vec::new(), Vec::new());
    found.push(match topology.unserved() {
        0 => Finding::works("slots", "all 16384 slots have a master"),
        unserved => {
            let says = format!("{unserved} of the 16384 slots have no master: their locks cannot be taken");
            Finding::refused("slots", says).with_remedy("start their masters, or run redis-cli --cluster fix")
        }
    });
    for address in topology.masters() {
        let Some((slot, _)) = topology.found_of(address).ends() else { continue };
        let reached = nat.reach(address.clone());
        match asked.target.sibling(&reached.host, reached.port) {
            Ok(target) => masters.push(Probe::new(target, slot)),
            Err(error) => found.push(failed("slots", &error)),
        }
    }
    if is_named_as_one && masters.len() > 1 {
        let says = format!(
            "the URL names one of the {} masters of a cluster: locks of other slots are refused",
            masters.len()
        );
        found.push(
            Finding::warning("URL", says)
                .with_remedy("write redis+cluster:// in the URL, or rediss+cluster:// for TLS"),
        );
    }
    Servers { masters, found, is_cluster: true, fails_over: false }
}
