//! Stores of several servers, beside one server.
//!
//! How much more several masters do in a second is not measured: each of them and each client needs a processor for
//! itself. Processor time does not depend on that. Where it is the same for each pair, masters with a processor each do
//! as many times more as there are of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_core::{LockEvent, LockManager, LockObserver, Notice};

use crate::Result;
use crate::bench::{Bench, ONE_WAY, Scale};
use crate::contestant::{Kind, Store};
use crate::fleet::Sample;
use crate::outcome::{Outcome, safety_of};
use crate::proxy::Proxy;
use crate::race::{Line, OURS, Race};
use crate::server::Server;
use crate::site::{self, Site};
use crate::stats::median;
use crate::target::Target;
use crate::work::{Pace, Work};

const ACKED: &str = "us, acks=1";
const SENTINEL: &str = "us, sentinel";
const CLUSTERS: [(&str, usize); 3] = [("us, cluster of 1", 1), ("us, cluster of 2", 2), ("us, cluster of 4", 4)];
const MEMBERS: [&str; 3] = ["us, member 1", "us, member 2", "us, member 3"];
const THREE: &str = "us, quorum of 3";
const FIVE: &str = "us, quorum of 5";

/// How long observers may take to be told how many rounds there were.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn replicas(bench: &mut Bench) -> Result<Outcome> {
    let (site, sentinel) = Site::watched(&bench.program)?;
    let (port, work) = (site.port(), Work::distinct(64));
    let line = |name, store| (0, Line { name, kind: Kind::Over(store), work, port });
    let lines =
        [line(OURS, Store::Server(port)), line(SENTINEL, Store::Sentinel(sentinel)), line(ACKED, Store::Acked(port))];
    let race = Race::among(bench.rounds, pace(bench), &mut [site], &lines)?;
    let targets = vec![
        Target::at_least("rate, acks=1 / without", race.ratio(ACKED, OURS, rate), 0.7),
        Target::at_least("rate, by sentinels / by address", race.ratio(SENTINEL, OURS, rate), 0.95),
        Target::at_most("client µs, by sentinels / by address", race.ratio(SENTINEL, OURS, client), 1.05),
    ];
    Ok(with_safety(race, targets))
}

pub(super) fn cluster(bench: &mut Bench) -> Result<Outcome> {
    let alone = Site::alone(&bench.program)?;
    let line = |name, store, tasks| Line { name, kind: Kind::Over(store), work: Work::distinct(tasks), port: 0 };
    let mut lines = vec![(0, line(OURS, Store::Server(alone.port()), 64))];
    let mut sites = vec![alone];
    for (name, masters) in CLUSTERS {
        let site = Site::cluster(&bench.program, masters)?;
        let tasks = 64 * u32::try_from(masters)?;
        lines.push((sites.len(), line(name, Store::Cluster(site.port()), tasks)));
        sites.push(site);
    }
    let race = Race::among(bench.rounds, pace(bench), &mut sites, &lines)?;
    let [one, two, four] = CLUSTERS.map(|(name, _)| name);
    let targets = vec![
        Target::at_most("server µs, cluster of 1 / one server", race.ratio(one, OURS, server), 1.3),
        Target::at_most("server µs, cluster of 2 / one server", race.ratio(two, OURS, server), 1.3),
        Target::at_most("server µs, cluster of 4 / one server", race.ratio(four, OURS, server), 1.3),
        Target::at_most("server µs, cluster of 4 / cluster of 1", race.ratio(four, one, server), 1.1),
        Target::at_most("client µs, cluster of 1 / one server", race.ratio(one, OURS, client), 1.05),
    ];
    Ok(with_safety(race, targets))
}

pub(super) fn quorum(bench: &mut Bench) -> Result<Outcome> {
    let mut quorums = Quorums::start(&bench.program, None)?;
    let race = quorums.race(bench)?;
    let mut targets = beside_members(&race);
    let grants = bench.scale.pick(1000, 300, 20);
    let [three, five] = &mut quorums.sites;
    three.flush()?;
    five.flush()?;
    let (three, five) = (in_one_round(quorums.three, grants)?, in_one_round(quorums.five, grants)?);
    targets.push(Target::at_least("share of grants in one round, quorum of 3", Some(three), 0.8));
    targets.push(Target::at_least("share of grants in one round, quorum of 5", Some(five), 0.8));
    Ok(with_safety(race, targets))
}

pub(super) fn quorum_network(bench: &mut Bench) -> Result<Outcome> {
    let race = Quorums::start(&bench.program, Some(ONE_WAY))?.race(bench)?;
    let targets = beside_members(&race);
    Ok(with_safety(race, targets))
}

/// Two quorums: a server serves one list of members.
struct Quorums {
    sites: [Site; 2],
    members: [u16; 3],
    three: Store,
    five: Store,
    _network: Vec<Proxy>,
}

impl Quorums {
    /// Starts members, perhaps each behind a proxy, and has them count from now on.
    fn start(program: &str, one_way: Option<Duration>) -> Result<Self> {
        let ((first, mut members), (second, mut more)) = (Site::members(program)?, Site::members(program)?);
        let mut network = Vec::new();
        if let Some(one_way) = one_way {
            for port in members.iter_mut().chain(&mut more) {
                let proxy = Proxy::start(*port, one_way)?;
                *port = proxy.port;
                network.push(proxy);
            }
        }
        let (three, five) = (Store::Three(members), Store::Five(more));
        site::begin(three)?;
        site::begin(five)?;
        Ok(Self { sites: [first, second], members, three, five, _network: network })
    }

    /// Measures both quorums beside the members of the first. All members are alike.
    fn race(&mut self, bench: &Bench) -> Result<Race> {
        let line = |name, store, port| Line { name, kind: Kind::Over(store), work: Work::distinct(1), port };
        let servers = self.sites[0].servers.iter().map(Server::port);
        let members = MEMBERS.iter().zip(self.members.into_iter().zip(servers));
        let mut lines: Vec<_> =
            members.map(|(name, (reached, port))| (0, line(*name, Store::Server(reached), port))).collect();
        lines.extend([(0, line(THREE, self.three, 0)), (1, line(FIVE, self.five, 0))]);
        Race::among(bench.rounds, pace(bench), &mut self.sites, &lines)
    }
}

/// Compares the median wait of each quorum with that of its median member.
fn beside_members(race: &Race) -> Vec<Target> {
    let waits = |name: &str| {
        let lane = race.lanes.iter().find(|lane| lane.name == name);
        lane.into_iter().flat_map(|lane| &lane.rounds).map(|sample| sample.found.wait_p50_us)
    };
    let members: Vec<Vec<f64>> = MEMBERS.iter().map(|name| waits(name).collect()).collect();
    let of_round = |(round, wait): (usize, f64)| {
        let alone = members.iter().filter_map(|waits| waits.get(round).copied()).collect();
        Some(wait / median(alone)?)
    };
    let beside = |quorum| median(waits(quorum).enumerate().filter_map(of_round).collect());
    vec![
        Target::at_most("wait p50, quorum of 3 / its median member", beside(THREE), 1.3),
        Target::at_most("wait p50, quorum of 5 / its median member", beside(FIVE), 1.3),
    ]
}

/// How many first and second rounds the observers of a quorum were told of.
#[derive(Clone, Default)]
struct Rounds(Arc<Mutex<(u64, u64)>>);

impl LockObserver for Rounds {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Quorum { health, .. } = notice {
            let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.0 += health.rounds;
            rounds.1 += health.second_rounds;
        }
    }
}

/// Takes locks that nobody else wants, and returns the share of them that were granted in one round.
fn in_one_round(store: Store, grants: u64) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rounds = Rounds::default();
    runtime.block_on(async {
        let locks = LockManager::builder_for(&store.url())?.observer(rounds.clone()).build()?;
        for grant in 0..grants {
            locks.lock(format!("bench:round:{grant}")).await?.release().await?;
        }
        let since = Instant::now();
        loop {
            let (first, second) = *rounds.0.lock().unwrap_or_else(PoisonError::into_inner);
            if first >= grants {
                return Ok(1.0 - second as f64 / first as f64);
            }
            if since.elapsed() > REPORTED_WITHIN {
                return Err(format!("of {grants} grants, observers were told of {first}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Shorter windows than where peers of other lines matter: there are many lines.
fn pace(bench: &Bench) -> Pace {
    match bench.scale {
        Scale::Full => Pace { warm_up: bench.pace.warm_up / 2, window: bench.pace.window / 2 },
        Scale::Quick | Scale::Smoke => bench.pace,
    }
}

fn with_safety(race: Race, mut targets: Vec<Target>) -> Outcome {
    let all: Vec<&str> = race.lanes.iter().map(|lane| lane.name).collect();
    targets.extend(safety_of(&race, &all));
    Outcome { race, targets, ..Outcome::default() }
}

fn rate(sample: &Sample) -> f64 {
    sample.found.rate
}

fn client(sample: &Sample) -> f64 {
    sample.client_us.unwrap_or(f64::NAN)
}

fn server(sample: &Sample) -> f64 {
    sample.server_us.unwrap_or(f64::NAN)
}
