//! An API server of Kubernetes with its etcd. Clients reach it through a proxy.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::harness::servers::Topology;

#[path = "../../../../../stores/lock-kubernetes/tests/it/servers.rs"]
#[allow(dead_code, unused_imports, reason = "some of it is only for the tests of the store")]
mod servers;

use servers::{ApiServer, can_start};

pub(crate) struct Kubernetes(Mutex<ApiServer>);

impl Kubernetes {
    /// Says what must be installed first, if anything.
    pub(crate) fn missing() -> Option<String> {
        (!can_start()).then(|| "run sh scripts/need-kubernetes.sh, which needs Go".to_owned())
    }

    pub(crate) fn start() -> Self {
        Self(Mutex::new(ApiServer::start().expect("it is installed")))
    }

    fn server(&self) -> MutexGuard<'_, ApiServer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topology for Kubernetes {
    fn addresses(&self) -> usize {
        1
    }

    fn port(&self, _: usize) -> u16 {
        self.server().port()
    }

    fn url(&self, proxies: &[u16]) -> String {
        self.server().url_at(proxies[0])
    }

    fn pause(&self, _: usize) {
        self.server().freeze();
    }

    fn resume(&self, _: usize) {
        self.server().thaw();
    }

    /// The server is killed with its connections, and starts again. Its etcd goes on.
    fn kill_clients(&self, _: usize) {
        let mut server = self.server();
        server.kill();
        server.restart();
    }

    /// Leases stay, so those with a holder are the rest of locks.
    fn remnants(&self) -> Vec<String> {
        self.server().held()
    }
}
