//! The processes that take locks, each behind proxies of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lock_testing::FaultProxy;

use crate::harness::resource::Resource;
use crate::harness::servers::Topology;
use crate::harness::worker::Worker;
use crate::harness::{KEYS, LONGEST_LEASE, SERVED_WITHIN, TTL};

pub(crate) struct Fleet {
    members: Vec<Member>,
    workload: Workload,
    history: String,
    resource: String,
    random: fastrand::Rng,
}

struct Member {
    /// One proxy for each address.
    proxies: Vec<FaultProxy>,
    worker: Worker,
}

/// The work of the processes.
#[derive(Clone, Debug)]
pub(crate) enum Workload {
    /// Callers of every kind, in every mode, with jobs and roles.
    Mixed,
    /// One caller in each process, with this library or an adapter. `looks`: it checks its hold before it writes, up to
    /// `gap_ms` earlier.
    Plain { adapter: Option<String>, looks: bool, gap_ms: u32 },
    /// This many processes with one caller each. Every second caller wants the same lock, waits for its turn, and holds
    /// the lock for longer.
    Crowd(usize),
    /// One caller in each process that adds to a set in the database. Its transaction pins the lock, or checks it first.
    Set { adapter: Option<String>, pins: bool },
}

impl Workload {
    pub(crate) fn processes(&self) -> usize {
        match self {
            Self::Mixed => 3,
            Self::Crowd(processes) => *processes,
            Self::Plain { .. } | Self::Set { .. } => 4,
        }
    }
}

impl Fleet {
    pub(crate) async fn start(
        workload: Workload,
        servers: &dyn Topology,
        history: &Path,
        resource: &Resource,
        random: fastrand::Rng,
    ) -> Self {
        let (history, resource) = (history.display().to_string(), resource.address());
        let count = workload.processes();
        let mut fleet = Self { members: Vec::new(), workload, history, resource, random };
        for index in 0..count {
            let addresses = 0..servers.addresses();
            let proxies: Vec<_> = addresses.map(|address| FaultProxy::start(servers.port(address))).collect();
            let worker = fleet.hire(index, servers, &proxies).await;
            fleet.members.push(Member { proxies, worker });
        }
        fleet
    }

    async fn hire(&mut self, index: usize, servers: &dyn Topology, proxies: &[FaultProxy]) -> Worker {
        let ports: Vec<u16> = proxies.iter().map(FaultProxy::port).collect();
        let mut args = vec![
            ("url", servers.url(&ports)),
            ("history", self.history.clone()),
            ("resource", self.resource.clone()),
            ("seed", self.random.u64(..).to_string()),
            ("ttl_ms", TTL.as_millis().to_string()),
            ("max_ttl_ms", LONGEST_LEASE.as_millis().to_string()),
        ];
        let workload = match &self.workload {
            Workload::Mixed => {
                args.extend([("keys", KEYS.to_string()), ("tasks", "4".to_owned()), ("threads", "1".to_owned())]);
                "mixed"
            }
            Workload::Plain { adapter, looks, gap_ms } => {
                args.extend([("keys", "2".to_owned()), ("looks", looks.to_string()), ("gap_ms", gap_ms.to_string())]);
                args.extend([("adapter", adapter.clone().unwrap_or_default()), ("long", false.to_string())]);
                "plain"
            }
            Workload::Crowd(_) => {
                let long = index % 2 == 1;
                args.extend([("keys", "2".to_owned()), ("looks", true.to_string()), ("gap_ms", "15".to_owned())]);
                args.extend([("adapter", String::new()), ("long", long.to_string())]);
                "plain"
            }
            Workload::Set { adapter, pins } => {
                args.extend([("keys", "2".to_owned()), ("pins", pins.to_string())]);
                args.push(("adapter", adapter.clone().unwrap_or_default()));
                "set"
            }
        };
        let mut worker = Worker::start(workload, &args);
        assert_eq!(worker.next().await, "ready");
        worker
    }

    pub(crate) fn proxies(&self, process: usize) -> &[FaultProxy] {
        &self.members[process].proxies
    }

    pub(crate) fn stop_one(&self, index: usize) {
        self.members[index].worker.stop();
    }

    pub(crate) fn resume_one(&self, index: usize) {
        self.members[index].worker.resume();
    }

    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.members[index].worker.pid()
    }

    pub(crate) async fn kill(&mut self, index: usize) {
        self.members[index].worker.kill().await;
    }

    /// Starts a new process in the place of a killed one.
    pub(crate) async fn replace(&mut self, index: usize, servers: &dyn Topology) {
        let mut member = self.members.remove(index);
        member.worker = self.hire(index, servers, &member.proxies).await;
        self.members.insert(index, member);
    }

    /// Redirects every proxy to the port that its address has now.
    pub(crate) fn lead_to(&self, servers: &dyn Topology) {
        for (address, proxy) in self.members.iter().flat_map(|member| member.proxies.iter().enumerate()) {
            proxy.lead_to(servers.port(address));
        }
    }

    /// Ends every connection to the servers.
    pub(crate) fn disconnect(&self) {
        self.members.iter().flat_map(|member| &member.proxies).for_each(FaultProxy::kill_connections);
    }

    /// Waits until every process has got locks of every kind again. Returns how long that took, or `None` if it took too long.
    pub(crate) async fn served_again(&mut self) -> Option<Duration> {
        let started = Instant::now();
        let mut before = Vec::new();
        for member in &mut self.members {
            before.push(served(&mut member.worker).await);
        }
        for (member, before) in self.members.iter_mut().zip(before) {
            while !served(&mut member.worker).await.iter().zip(&before).all(|(now, before)| now > before) {
                if started.elapsed() > SERVED_WITHIN {
                    return None;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Some(started.elapsed())
    }

    /// Ends all processes cleanly, and adds up what their callers counted.
    pub(crate) async fn stop(&mut self) -> BTreeMap<String, u64> {
        let mut tally = BTreeMap::<String, u64>::new();
        for member in &mut self.members {
            member.worker.send("stop").await;
        }
        for member in self.members.drain(..) {
            let mut worker = member.worker;
            let said = worker.next().await;
            let entries = said.strip_prefix("stopped").unwrap_or_else(|| panic!("{said}")).split_whitespace();
            for (what, count) in entries.filter_map(|entry| entry.split_once('=')) {
                *tally.entry(what.to_owned()).or_default() += count.parse::<u64>().unwrap();
            }
            worker.ended().await;
        }
        tally
    }
}

/// How many locks of each kind a process has got so far.
async fn served(worker: &mut Worker) -> Vec<u64> {
    worker.order("served").await.split(' ').map(|count| count.parse().unwrap()).collect()
}
