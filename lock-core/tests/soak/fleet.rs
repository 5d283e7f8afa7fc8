//! The processes that want locks, each behind a proxy of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lock_core::testing::FaultProxy;

use crate::resource::Resource;
use crate::worker::{Scratch, Worker};
use crate::{KEYS, PROCESSES, TTL};

/// How long a process may need to get a lock once nothing fails any more.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Fleet {
    members: Vec<Member>,
    history: String,
    resource: String,
    random: fastrand::Rng,
}

pub(crate) struct Member {
    pub(crate) proxy: FaultProxy,
    worker: Worker,
}

impl Fleet {
    pub(crate) async fn start(port: u16, scratch: &Scratch, resource: &Resource, random: fastrand::Rng) -> Self {
        let (history, resource) = (scratch.path("history"), resource.address());
        let mut fleet = Self { members: Vec::new(), history, resource, random };
        for _ in 0..PROCESSES {
            let proxy = FaultProxy::start(port);
            let worker = fleet.hire(&proxy).await;
            fleet.members.push(Member { proxy, worker });
        }
        fleet
    }

    async fn hire(&mut self, proxy: &FaultProxy) -> Worker {
        let args = [
            ("url", proxy.url()),
            ("history", self.history.clone()),
            ("resource", self.resource.clone()),
            ("seed", self.random.u64(..).to_string()),
            ("keys", KEYS.to_string()),
            ("tasks", "4".to_owned()),
            ("threads", "1".to_owned()),
            ("ttl_ms", TTL.as_millis().to_string()),
        ];
        let args: Vec<(&str, &str)> = args.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut worker = Worker::start("soak", &args);
        assert_eq!(worker.next().await, "ready");
        worker
    }

    pub(crate) fn member(&self, index: usize) -> &Member {
        &self.members[index]
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
    pub(crate) async fn replace(&mut self, index: usize) {
        let mut member = self.members.remove(index);
        member.worker = self.hire(&member.proxy).await;
        self.members.insert(index, member);
    }

    pub(crate) fn lead_to(&self, port: u16) {
        for member in &self.members {
            member.proxy.lead_to(port);
        }
    }

    /// Ends every connection to the server.
    pub(crate) fn disconnect(&self) {
        for member in &self.members {
            member.proxy.kill_connections();
        }
    }

    /// Checks that every process gets locks again.
    pub(crate) async fn assert_all_served(&mut self) {
        for (index, member) in self.members.iter_mut().enumerate() {
            let before = sections(&mut member.worker).await;
            let started = Instant::now();
            while sections(&mut member.worker).await == before {
                assert!(started.elapsed() < SERVED_WITHIN, "process {index} gets no lock although nothing fails");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
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

async fn sections(worker: &mut Worker) -> u64 {
    worker.order("sections").await.parse().unwrap()
}
