//! Stores of several servers, beside one server.
//!
//! The total rate of several masters is not measured: each master and each client would need a processor of its own.
//! Processor time does not depend on that. If it is the same for each pair, *n* masters with a processor each do *n*
//! times as many pairs.

use std::time::Duration;

use crate::Result;
use crate::bench::{Bench, ONE_WAY};
use crate::contestant::{Kind, Store};
use crate::outcome::{Outcome, Target};
use crate::process::work::{Pace, Work};
use crate::race::{Line, OURS, Race};
use crate::row::{client, rate, server};
use crate::servers::proxy::Proxy;
use crate::servers::server::Server;
use crate::servers::site::{self, Site};
use crate::stats::median;

const ACKED: &str = "us, acks=1";
const SENTINEL: &str = "us, sentinel";
const CLUSTER: &str = "us, cluster of 1";
const FOUR: &str = "us, cluster of 4";
const MEMBERS: [&str; 3] = ["us, member 1", "us, member 2", "us, member 3"];
const QUORUMS: [(&str, &str); 2] = [("us, quorum of 3", "of 3"), ("us, quorum of 5", "of 5")];

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let (alone, (watched, sentinel)) = (Site::alone(&bench.program)?, Site::watched(&bench.program)?);
    let (one, four) = (Site::cluster(&bench.program, 1)?, Site::cluster(&bench.program, 4)?);
    let line = |name, site, store, tasks| {
        let work = Work::distinct(tasks);
        Line { name, kind: Kind::Over(store), work, port: 0, site }
    };
    let lines = [
        line(OURS, 0, Store::Server(alone.port()), 64),
        line(SENTINEL, 1, Store::Sentinel(sentinel), 64),
        line(ACKED, 1, Store::Acked(watched.port()), 64),
        line(CLUSTER, 2, Store::Cluster(one.port()), 64),
        line(FOUR, 3, Store::Cluster(four.port()), 4 * 64),
    ];
    let race = Race::among(bench.rounds, pace(bench), &mut [alone, watched, one, four], &lines)?;
    let mut outcome = Outcome::default();
    outcome.targets.extend([
        Target::at_least("rate, by sentinels / one server", race.ratio(SENTINEL, OURS, rate), 0.95),
        Target::at_least("rate, acks=1 / one server", race.ratio(ACKED, OURS, rate), 0.7),
        Target::at_most("server µs, cluster of 1 / one server", race.ratio(CLUSTER, OURS, server), 1.3),
        Target::at_most("client µs, cluster of 1 / one server", race.ratio(CLUSTER, OURS, client), 1.05),
        Target::at_most("server µs, cluster of 4 / cluster of 1", race.ratio(FOUR, CLUSTER, server), 1.1),
    ]);
    outcome.add("64 tasks for each master", race);
    Ok(outcome)
}

pub(super) fn quorum(bench: &mut Bench) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (about, far, one_way) in
        [("loopback", "loopback", None), ("a round trip of 5 ms or more to each member", "5 ms away", Some(ONE_WAY))]
    {
        let race = beside_members(bench, one_way)?;
        for (quorum, of) in QUORUMS {
            let what = format!("wait p50, quorum {of} / its median member, {far}");
            outcome.targets.push(Target::at_most(what, of_member(&race, quorum), 1.3));
        }
        outcome.add(about, race);
    }
    Ok(outcome)
}

/// Measures a quorum of three and one of five, and the members of the first, which are all alike. A server takes part
/// in only one quorum.
fn beside_members(bench: &Bench, one_way: Option<Duration>) -> Result<Race> {
    let (first, mut three) = Site::members(&bench.program)?;
    let (second, mut five) = Site::members(&bench.program)?;
    let mut network = Vec::new();
    if let Some(one_way) = one_way {
        for port in three.iter_mut().chain(&mut five) {
            let proxy = Proxy::start(*port, one_way)?;
            *port = proxy.port;
            network.push(proxy);
        }
    }
    let stores = [Store::Three(three), Store::Five(five)];
    stores.into_iter().try_for_each(site::begin)?;
    let line = |name, store, port, site| Line { name, kind: Kind::Over(store), work: Work::distinct(1), port, site };
    let members = MEMBERS.iter().zip(three.into_iter().zip(first.servers.iter().map(Server::port)));
    let mut lines: Vec<_> =
        members.map(|(name, (reached, port))| line(*name, Store::Server(reached), port, 0)).collect();
    lines.extend(stores.into_iter().enumerate().map(|(site, store)| line(QUORUMS[site].0, store, 0, site)));
    Race::among(bench.rounds, pace(bench), &mut [first, second], &lines)
}

/// Divides the median wait of a quorum by that of its median member.
fn of_member(race: &Race, quorum: &str) -> Option<f64> {
    let waits = |name: &str| race.rounds(name, |sample| sample.found.wait_p50_us);
    let members = MEMBERS.map(waits);
    let of_round = |(round, wait): (usize, f64)| {
        let alone = members.iter().filter_map(|waits| waits.get(round).copied()).collect();
        Some(wait / median(alone)?)
    };
    median(waits(quorum).into_iter().enumerate().filter_map(of_round).collect())
}

/// Shorter windows than the default: there are many lines.
fn pace(bench: &Bench) -> Pace {
    let part = bench.scale.pick(2, 1, 1);
    Pace { warm_up: bench.pace.warm_up / part, window: bench.pace.window / part }
}
