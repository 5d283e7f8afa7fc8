//! Why a lock of a quorum was lost: members that were started again without their data, or somebody who took it there.

use lock_core::{AnyBackend, LockManager, LossReason, Quorum, RedisStore, ReleaseOutcome};
use lock_testing::{FaultProxy, RedisServer, Reply, limit};

use crate::quorum::SECOND;
use crate::support::{LONG, figure};

/// Three servers, and a process that reaches them through a network that a test breaks.
struct Members {
    servers: Vec<RedisServer>,
    network: Vec<FaultProxy>,
    locks: LockManager,
}

impl Members {
    async fn start() -> Self {
        let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
        let network: Vec<FaultProxy> = servers.iter().map(|server| FaultProxy::start(server.port())).collect();
        let members = network.iter().map(|proxy| AnyBackend::new(RedisStore::new(&proxy.url()).unwrap()));
        let quorum = Quorum::of(members).unwrap();
        quorum.init().await.unwrap();
        Self { servers, network, locks: LockManager::builder(quorum).build().unwrap() }
    }

    /// Starts some of them again without their data, and gives the lock to somebody else at some, before the process
    /// reaches any of these again.
    fn change(&mut self, restarted: &[usize], taken: &[usize]) {
        for proxy in &self.network {
            proxy.refuse(true);
            proxy.kill_connections();
        }
        for member in restarted {
            self.servers[*member].restart();
        }
        for member in taken {
            assert_eq!(self.servers[*member].command(&["SET", "k", "foreign"]), Reply::Text("OK".to_owned()));
        }
        self.network.iter().for_each(|proxy| proxy.refuse(false));
    }
}

#[tokio::test]
#[limit]
async fn the_reason_is_a_failover_if_so_many_members_restarted_that_the_others_are_no_majority() {
    for (restarted, taken, reason) in [
        (&[0, 1][..], &[0, 1][..], LossReason::Failover),
        (&[0, 1, 2], &[1, 2], LossReason::Failover),
        (&[], &[0, 1], LossReason::Stolen),
        // The other two were a majority without it.
        (&[2], &[0, 1], LossReason::Stolen),
    ] {
        let mut members = Members::start().await;
        let guard = members.locks.lock("k").with_ttl(60 * SECOND).await.unwrap();
        members.change(restarted, taken);
        let watch = lock_testing::Stopwatch::start();
        assert_eq!(tokio::time::timeout(LONG, guard.lost()).await, Ok(reason), "{restarted:?} {taken:?}");
        figure("quorum: a loss was known after its members were back, ttl 60 s", watch.elapsed());
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(reason)));
    }
}
