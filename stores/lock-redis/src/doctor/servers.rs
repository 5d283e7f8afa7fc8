//! Which servers a store leads to: one, the master that sentinels name, or the masters of a cluster.

use redis::cmd;
use tokio::task::JoinSet;

use crate::cluster::no_cluster;
use crate::connection::connect::Target;
use crate::connection::greeting::Introduction;
use crate::connection::slots::Topology;
use crate::connection::url::Nat;
use crate::doctor::judge::{Failure, Need, failed, judge};
use crate::doctor::probe::{Probe, within};
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

impl Servers {
    fn one(target: Target) -> Self {
        Self { masters: vec![Probe::new(target, 0)], ..Self::default() }
    }

    fn none(finding: Finding) -> Self {
        Self { found: vec![finding], ..Self::default() }
    }
}

/// Finds the servers.
pub(super) async fn of(masters: &Masters) -> Servers {
    match masters {
        Masters::One(node) => match &node.pool.place {
            Place::Fixed(target) => at(target).await,
            Place::Sentinels(sentinels) => behind(sentinels).await,
        },
        Masters::Cluster(cluster) => {
            // All at once: a node that does not answer must not cost the time of the others.
            let mut asking = JoinSet::new();
            for seed in &cluster.seeds {
                let mut probe = Probe::new(seed.pool.target().clone(), 0);
                asking.spawn(async move { (topology(&mut probe).await, probe) });
            }
            let mut why = None;
            while let Some(Ok((known, probe))) = asking.join_next().await {
                match known {
                    Ok(topology) => return of_cluster(&topology, &probe, &cluster.nat, false),
                    Err(found) => why = Some(found),
                }
            }
            Servers::none(why.unwrap_or_else(|| Finding::unknown("server", "no node of the cluster was asked")))
        }
    }
}

/// The server of the URL, and if it is a node of a cluster, all masters.
async fn at(target: &Target) -> Servers {
    let mut probe = Probe::new(target.clone(), 0);
    if let Err(error) = probe.connect().await {
        return Servers::none(failed("server", &error));
    }
    let about = Introduction::read(probe.ask(&cmd("HELLO")).await.ok(), None);
    if let Err(error) = about.check(target.node(), false) {
        return Servers::none(failed("server", &error));
    }
    if about.mode.as_deref() != Some("cluster") {
        return Servers { masters: vec![probe], ..Servers::default() };
    }
    match topology(&mut probe).await {
        Ok(topology) => of_cluster(&topology, &probe, &Nat::default(), true),
        Err(found) => Servers::none(found),
    }
}

async fn behind(sentinels: &Sentinels) -> Servers {
    let said = match within(sentinels.template().settings.connect_within, sentinels.ask_all()).await {
        Some(Ok(said)) => said,
        Some(Err(error)) => return Servers::none(failed("sentinels", &error)),
        None => return Servers::none(Finding::unknown("sentinels", "no sentinel answers in time")),
    };
    let all = said.len();
    let mut named: Vec<_> = said.iter().filter_map(|(_, said)| said.as_ref().ok()).collect();
    let Some(&master) = named.first() else {
        let why = said.into_iter().find_map(|(_, said)| said.err());
        let unknown = || Finding::unknown("sentinels", "no sentinel names a master");
        return Servers::none(why.map_or_else(unknown, |error| failed("sentinels", &error)));
    };
    let target = match sentinels.template().sibling(&master.host, master.port) {
        Ok(target) => target,
        Err(error) => return Servers::none(failed("sentinels", &error)),
    };
    let answered = named.len();
    named.dedup();
    let found = if named.len() > 1 {
        Finding::warning("sentinels", "they name different masters: a failover is in progress")
            .with_remedy("wait until it has, or correct `sentinel monitor` where it names another")
    } else {
        Finding::works("sentinels", format!("{answered} of {all} answer, and name {master}"))
    };
    Servers { found: vec![found], fails_over: true, ..Servers::one(target) }
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
