//! The locks in Kubernetes, as `lockctl` shows them.

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
    operator::does_all_of_it(&url, "1 lock on test/").await;

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
