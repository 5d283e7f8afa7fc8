//! The locks in ZooKeeper, as `lockctl` shows them.

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
    operator::does_all_of_it(&url, "1 lock on 127.0.0.1:").await;

    let doctor = ctl(&["doctor"]);
    doctor.assert_code(1);
    for part in ["one server alone", "names no user", "counts on its lock for"] {
        assert!(doctor.stdout.contains(part), "{part} in {doctor:?}");
    }
    lockctl_at("zookeeper://127.0.0.1:1/locks", &["doctor"]).assert_code(3);
}
