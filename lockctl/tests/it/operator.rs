//! The work of an operator that is alike in every store.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, LossReason};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::program::lockctl_at;

/// Looks at the lock `lock:user:42` of a guard and at the one caller in its queue, `shop::refund`. Then takes the lock away, and the
/// caller gets it. Returns the caller as `lockctl waiters` has shown it.
pub(crate) async fn takes_a_lock_away(url: &str, guard: &LockGuard, waiting: &mut JoinSet<LockGuard>) -> Value {
    let ctl = |arguments: &[&str]| lockctl_at(url, arguments);
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
    waiter
}

/// Runs the job `cron:report`, and twice the version `v42` of `migrate:orders`.
pub(crate) async fn reads_what_ran(url: &str, locks: &LockManager) {
    let ctl = |arguments: &[&str]| lockctl_at(url, arguments);
    let job = locks.lock("cron:report").with_site("shop::report").at_most_every(Duration::from_secs(3600));
    job.run(async |_| Ok::<_, lock_core::LockError>(())).await.unwrap();
    let jobs = ctl(&["jobs"]);
    jobs.assert_code(0);
    assert!(jobs.stdout.contains("cron:report") && jobs.stdout.contains("1 job on "), "{jobs:?}");
    let migrate = ["run", "migrate:orders", "--once-for", "v42", "--", "echo", "migrated"];
    assert_eq!([ctl(&migrate).stdout, ctl(&migrate).stdout], ["migrated\n", ""], "once for its version");
}

/// Shows a lock and takes it away, and then reads, forgets and repeats what ran. `one` is how `lockctl list` counts the lock.
#[cfg(any(feature = "kubernetes", feature = "zookeeper"))]
pub(crate) async fn does_all_of_it(url: &str, one: &str) {
    let ctl = |arguments: &[&str]| lockctl_at(url, arguments);
    let locks = LockManager::connect(url).await.unwrap();
    let request = locks.lock("lock:user:42").with_site("shop::charge").with_ttl(Duration::from_secs(60));
    let guard = request.acquire().await.unwrap();
    let list = ctl(&["list"]);
    list.assert_code(0);
    for part in ["lock:user:42", "held", "shop::charge", one] {
        assert!(list.stdout.contains(part), "{part} in {list:?}");
    }
    let other = LockManager::connect(url).await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let request = other.lock("lock:user:42").with_site("shop::refund").with_wait(Duration::from_secs(120));
        request.acquire().await.unwrap()
    });
    takes_a_lock_away(url, &guard, &mut waiting).await;
    reads_what_ran(url, &locks).await;
    let migrate = ["run", "migrate:orders", "--once-for", "v42", "--", "echo", "migrated"];
    ctl(&["forget", "migrate:orders", "v42"]).assert_code(0);
    assert_eq!(ctl(&migrate).stdout, "migrated\n");
}
