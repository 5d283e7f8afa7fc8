//! The locks in ZooKeeper, as `lockctl` shows them.

use std::time::Duration;

use lock_core::LockManager;
use lock_testing::limit;
use lock_zookeeper as _;

use crate::operator;
use crate::program::lockctl_at;

#[path = "../../../stores/lock-zookeeper/tests/it/servers.rs"]
#[allow(dead_code, reason = "most of it is for the tests of the store")]
mod servers;

use servers::{Pace, Servers};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn locks_in_zookeeper_are_shown_explained_and_taken_away() {
    let Some(server) = Servers::one(Pace::PATIENT) else { return };
    let url = server.url("/locks");
    let ctl = |arguments: &[&str]| lockctl_at(&url, arguments);
    assert!(ctl(&["list"]).stdout.starts_with("no lock is held on 127.0.0.1:"));
    let locks = LockManager::connect(&url).await.unwrap();
    let request = locks.lock("lock:user:42").with_site("shop::charge").with_ttl(Duration::from_secs(60));
    let guard = request.acquire().await.unwrap();
    let list = ctl(&["list"]);
    list.assert_code(0);
    for part in ["lock:user:42", "held", "shop::charge", "1 lock on 127.0.0.1:"] {
        assert!(list.stdout.contains(part), "{part} in {list:?}");
    }
    let other = LockManager::connect(&url).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move {
        let request = other.lock("lock:user:42").with_site("shop::refund").with_wait(Duration::from_secs(120));
        request.acquire().await.unwrap()
    });
    operator::takes_a_lock_away(&url, &guard, &mut waiting).await;
    operator::reads_what_ran(&url, &locks).await;
    let migrate = ["run", "migrate:orders", "--once-for", "v42", "--", "echo", "migrated"];
    ctl(&["forget", "migrate:orders", "v42"]).assert_code(0);
    assert_eq!(ctl(&migrate).stdout, "migrated\n");

    let doctor = ctl(&["doctor"]);
    doctor.assert_code(1);
    for part in ["one server alone", "names no user", "counts on its lock for"] {
        assert!(doctor.stdout.contains(part), "{part} in {doctor:?}");
    }
    lockctl_at("zookeeper://127.0.0.1:1/locks", &["doctor"]).assert_code(3);
}
