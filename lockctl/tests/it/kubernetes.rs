//! The locks in Kubernetes, as `lockctl` shows them.

use std::time::Duration;

use lock_core::LockManager;
use lock_kubernetes as _;
use lock_testing::limit;

use crate::operator;
use crate::program::lockctl_at;

#[path = "../../../stores/lock-kubernetes/tests/it/servers.rs"]
#[allow(dead_code, unused_imports, reason = "most of it is for the tests of the store")]
mod servers;

use servers::ApiServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit(180)]
async fn locks_in_kubernetes_are_shown_explained_and_taken_away() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let url = place.url();
    let ctl = |arguments: &[&str]| lockctl_at(&url, arguments);
    let none = ctl(&["list"]);
    assert!(none.stdout.starts_with(&format!("no lock is held on test/{}", place.name)), "{none:?}");
    let locks = LockManager::connect(&url).await.unwrap();
    let request = locks.lock("lock:user:42").with_site("shop::charge").with_ttl(Duration::from_secs(60));
    let guard = request.acquire().await.unwrap();
    let list = ctl(&["list"]);
    list.assert_code(0);
    for part in ["lock:user:42", "held", "shop::charge", "1 lock on test/"] {
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
    doctor.assert_code(0);
    for part in ["credentials", "every Lease in the namespace", "agree"] {
        assert!(doctor.stdout.contains(part), "{part} in {doctor:?}");
    }
    let user = place.user(&["get", "create", "watch"]);
    let doctor = lockctl_at(&user.url(), &["doctor"]);
    doctor.assert_code(2);
    assert!(doctor.stdout.contains("it is not permitted to update"), "{doctor:?}");
}
