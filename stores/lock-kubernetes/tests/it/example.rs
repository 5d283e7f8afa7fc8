//! The manifest in `examples/kubernetes`, on a real API server.

use lock_core::{LockError, ReleaseOutcome};
use lock_testing::limit;
use tokio::task::JoinSet;

use crate::servers::ApiServer;
use crate::support::{SECOND, eventually, locks};

const MANIFEST: &str = include_str!("../../../../examples/kubernetes/deployment.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn the_service_account_of_the_example_has_the_rights_that_an_election_and_a_job_need() {
    let Some(server) = ApiServer::start() else { return };
    server.apply(MANIFEST);
    let user = server.account("billing", "billing");
    eventually("the server reads the Role", || user.may("watch")).await;
    assert!(!user.may("get") && !user.may("delete"), "the rights are not the least");
    let replicas = [locks(&user.url()), locks(&user.url())];
    for round in 0..2 {
        let guard = replicas[0].lock("billing").await.unwrap();
        let other = replicas[1].clone();
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { other.elect("billing").run(async |term| term).await.unwrap() });
        tokio::time::sleep(SECOND / 2).await;
        let before = guard.token();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "in round {round}");
        assert!(waiting.join_next().await.unwrap().unwrap() > before);
    }
    let mut ran = 0;
    for locks in &replicas {
        let night = locks.lock("nightly-report").once_every(3600 * SECOND);
        ran += usize::from(night.run(async |_| Ok::<_, LockError>(())).await.unwrap().is_some());
    }
    assert_eq!(ran, 1, "one replica runs the job");
}
