//! Three ZooKeeper servers. Clients reach each through a proxy.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::harness::servers::Topology;

#[path = "../../../../../stores/lock-zookeeper/tests/it/servers.rs"]
#[allow(dead_code, reason = "some of it is only for the tests of the store")]
mod zookeeper;

use zookeeper::{NEWEST, Pace, Servers, can_start};

pub(crate) struct Ensemble(Mutex<State>);

struct State {
    servers: Servers,
    /// How many faults of servers there were.
    faults: usize,
    frozen: Option<usize>,
}

impl Ensemble {
    /// Says what must be installed first, if anything.
    pub(crate) fn missing() -> Option<String> {
        (!can_start(NEWEST)).then(|| "run sh scripts/need-zookeeper.sh, which needs Java and Maven".to_owned())
    }

    pub(crate) fn start() -> Self {
        let servers = Servers::three(Pace::FAST).expect("it is installed");
        Self(Mutex::new(State { servers, faults: 0, frozen: None }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Every second fault strikes the leader, and the others each server in turn.
    fn unlucky(&mut self) -> usize {
        self.faults += 1;
        if self.faults % 2 == 1 { self.servers.leader() } else { self.faults / 2 % 3 }
    }
}

impl Topology for Ensemble {
    fn addresses(&self) -> usize {
        3
    }

    fn port(&self, address: usize) -> u16 {
        self.state().servers.port(address)
    }

    fn url(&self, proxies: &[u16]) -> String {
        let hosts: Vec<String> = proxies.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        // A lock is promised for half of a session.
        format!("zookeeper://{}/proof?session=4s", hosts.join(","))
    }

    fn pause(&self, _: usize) {
        let mut state = self.state();
        let unlucky = state.unlucky();
        state.servers.freeze(unlucky);
        state.frozen = Some(unlucky);
    }

    fn resume(&self, _: usize) {
        let mut state = self.state();
        if let Some(frozen) = state.frozen.take() {
            state.servers.thaw(frozen);
        }
    }

    /// The server is killed with its connections, and starts again.
    fn kill_clients(&self, _: usize) {
        let mut state = self.state();
        let unlucky = state.unlucky();
        state.servers.kill(unlucky);
        state.servers.restart(unlucky);
    }

    fn remnants(&self) -> Vec<String> {
        let state = self.state();
        let leader = state.servers.leader();
        let nodes = state.servers.ask(leader, "dump").expect("the leader answers");
        nodes.lines().map(str::trim).filter(|node| node.starts_with("/proof/l/")).map(str::to_owned).collect()
    }
}
