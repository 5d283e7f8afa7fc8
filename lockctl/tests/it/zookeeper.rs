//! The locks in ZooKeeper, as `lockctl` shows them.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_testing::limit;
use lock_zookeeper as _;

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
    let waiter = loop {
        let json = ctl(&["waiters", "lock:user:42", "--json"]).json();
        if json["waiters"][0].is_object() {
            break json["waiters"][0].clone();
        }
    };
    assert_eq!((&waiter["position"], &waiter["site"]), (&1.into(), &"shop::refund".into()));
    assert!(waiter["waiting_for_seconds"].as_f64().unwrap() < 60.0, "{waiter}");
    let why = ctl(&["why", "lock:user:42"]);
    why.assert_code(0);
    assert!(why.stdout.contains("shop::charge") && why.stdout.contains("shop::refund"), "{why:?}");
    ctl(&["run", "lock:user:42", "--wait", "none", "--", "true"]).assert_code(75);

    let shown = ctl(&["show", "lock:user:42", "--json"]).json();
    assert_eq!((&shown["state"], &shown["waiters"]), (&"held".into(), &1.into()), "{shown:#}");
    let owner = shown["owner"].as_str().unwrap();
    let wrong = "ab".repeat(16);
    ctl(&["release", "lock:user:42", "--expect-owner", &wrong, "--reason", "x"]).assert_code(1);
    guard.ensure_held().unwrap();
    let ended = ctl(&["release", "lock:user:42", "--expect-owner", owner, "--reason", "host web-3 is gone"]);
    ended.assert_code(0);
    assert!(ended.stderr.contains("outcome=\"released\"") && ended.stderr.contains("host web-3"), "{ended:?}");
    assert_eq!(guard.lost().await, LossReason::Revoked, "its process is told");
    let next = waiting.join_next().await.unwrap().unwrap();
    assert!(next.token() > guard.token(), "the waiter has it");
    next.release().await.unwrap();
    ctl(&["run", "lock:user:42", "--wait", "none", "--", "true"]).assert_code(0);

    let job = locks.lock("cron:report").with_site("shop::report").at_most_every(Duration::from_secs(3600));
    job.run(async |_| Ok::<_, lock_core::LockError>(())).await.unwrap();
    let jobs = ctl(&["jobs"]);
    jobs.assert_code(0);
    assert!(jobs.stdout.contains("cron:report") && jobs.stdout.contains("1 job on "), "{jobs:?}");
    let migrate = ["run", "migrate:orders", "--once-for", "v42", "--", "echo", "migrated"];
    assert_eq!([ctl(&migrate).stdout, ctl(&migrate).stdout], ["migrated\n", ""], "once for its version");
    ctl(&["forget", "migrate:orders", "v42"]).assert_code(0);
    assert_eq!(ctl(&migrate).stdout, "migrated\n");

    let doctor = ctl(&["doctor"]);
    doctor.assert_code(1);
    for part in ["one server alone", "names no user", "counts on its lock for"] {
        assert!(doctor.stdout.contains(part), "{part} in {doctor:?}");
    }
    lockctl_at("zookeeper://127.0.0.1:1/locks", &["doctor"]).assert_code(3);
}
