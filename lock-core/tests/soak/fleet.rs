//! The processes that want locks, each behind proxies of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lock_core::testing::FaultProxy;

use crate::resource::Resource;
use crate::topology::Topology;
use crate::worker::{Scratch, Worker};
use crate::{KEYS, LONGEST_LEASE, PROCESSES, TTL};

/// How long a process may need to get a lock once nothing fails any more.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Fleet {
    members: Vec<Member>,
    history: String,
    notes: String,
    resource: String,
    random: fastrand::Rng,
}

struct Member {
    /// One for each address.
    proxies: Vec<FaultProxy>,
    worker: Worker,
}

impl Fleet {
    pub(crate) async fn start(
        servers: &dyn Topology,
        scratch: &Scratch,
        resource: &Resource,
        random: fastrand::Rng,
    ) -> Self {
        let (history, notes, resource) = (scratch.path("history"), scratch.path("notes"), resource.address());
        let mut fleet = Self { members: Vec::new(), history, notes, resource, random };
        for _ in 0..PROCESSES {
            let addresses = 0..servers.addresses();
            let proxies: Vec<_> = addresses.map(|address| FaultProxy::start(servers.port(address))).collect();
            let worker = fleet.hire(servers, &proxies).await;
            fleet.members.push(Member { proxies, worker });
        }
        fleet
    }

    async fn hire(&mut self, servers: &dyn Topology, proxies: &[FaultProxy]) -> Worker {
        let ports: Vec<u16> = proxies.iter().map(FaultProxy::port).collect();
        let args = [
            ("url", servers.url(&ports)),
            ("history", self.history.clone()),
            ("notes", self.notes.clone()),
            ("resource", self.resource.clone()),
            ("seed", self.random.u64(..).to_string()),
            ("keys", KEYS.to_string()),
            ("tasks", "4".to_owned()),
            ("threads", "1".to_owned()),
            ("ttl_ms", TTL.as_millis().to_string()),
            ("max_ttl_ms", LONGEST_LEASE.as_millis().to_string()),
        ];
        let args: Vec<(&str, &str)> = args.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut worker = Worker::start("soak", &args);
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

    /// Kills a process and returns its id.
    pub(crate) async fn kill(&mut self, index: usize) -> u32 {
        let worker = &mut self.members[index].worker;
        let pid = worker.pid();
        worker.kill().await;
        pid
    }

    /// Starts another process in the place of one that was killed.
    pub(crate) async fn replace(&mut self, index: usize, servers: &dyn Topology) {
        let mut member = self.members.remove(index);
        member.worker = self.hire(servers, &member.proxies).await;
        self.members.insert(index, member);
    }

    /// Leads every proxy to where its address leads now.
    pub(crate) fn lead_to(&self, servers: &dyn Topology) {
        for (address, proxy) in self.members.iter().flat_map(|member| member.proxies.iter().enumerate()) {
            proxy.lead_to(servers.port(address));
        }
    }

    /// Ends every connection to the servers.
    pub(crate) fn disconnect(&self) {
        self.members.iter().flat_map(|member| &member.proxies).for_each(FaultProxy::kill_connections);
    }

    /// Checks that every process gets locks of every kind again. Returns how long that took.
    pub(crate) async fn assert_all_served(&mut self) -> Duration {
        let started = Instant::now();
        let mut before = Vec::new();
        for member in &mut self.members {
            before.push(served(&mut member.worker).await);
        }
        for (index, (member, before)) in self.members.iter_mut().zip(before).enumerate() {
            loop {
                let now = served(&mut member.worker).await;
                if now.iter().zip(&before).all(|(now, before)| now > before) {
                    break;
                }
                let counts = format!("sections, terms, shared: {before:?}, then {now:?}");
                assert!(
                    started.elapsed() < SERVED_WITHIN,
                    "process {index} gets no lock although nothing fails: {counts}"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        started.elapsed()
    }

    /// Ends all processes in good order, and adds up what their callers met.
    pub(crate) async fn stop(&mut self) -> BTreeMap<String, u64> {
        let mut tally = BTreeMap::<String, u64>::new();
        for member in &mut self.members {
            member.worker.send("stop").await;
        }
        for member in self.members.drain(..) {
            let mut worker = member.worker;
            let said = worker.next().await;
            for entry in said.strip_prefix("stopped ").unwrap_or_else(|| panic!("{said}")).split(' ') {
                let (what, count) = entry.split_once('=').unwrap();
                *tally.entry(what.to_owned()).or_default() += count.parse::<u64>().unwrap();
            }
            worker.ended().await;
        }
        tally
    }
}

/// How often a process has had locks, of each kind.
async fn served(worker: &mut Worker) -> Vec<u64> {
    worker.order("served").await.split(' ').map(|count| count.parse().unwrap()).collect()
}
