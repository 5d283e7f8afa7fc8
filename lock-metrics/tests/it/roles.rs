//! A role is not a hold: leaders, runs of jobs, and who stands for a role.

use std::time::Duration;

use lock_core::{
    GrantPath, Holder, HolderInfo, LockError, LockEventKind, LockManager, LockOptions, MemoryStore, Purpose,
};
use lock_metrics::{MetricsHandle, builder};
use lock_testing::limit;

use crate::support::{Acquire, Scrape, eventually, holder};

const LONG: Duration = Duration::from_secs(3 * 3600);
const MOMENT: Duration = Duration::from_millis(1);

/// A manager by whose threshold every lock is stuck at once.
fn hasty() -> (MetricsHandle, LockManager) {
    let metrics = builder().build().unwrap();
    let options = LockOptions::default().with_stuck_after(MOMENT);
    let locks = LockManager::builder(MemoryStore::new()).options(options).build().unwrap();
    locks.observe(metrics.observer());
    (metrics, locks)
}

fn stuck(metrics: &MetricsHandle, lock: &str) -> f64 {
    Scrape::read(&metrics.render()).get("stuck", &[("lock", lock)])
}

#[tokio::test]
#[limit]
async fn who_leads_or_runs_a_job_is_not_stuck_unless_it_said_when() {
    let (metrics, locks) = hasty();
    let _leads = locks.elect("billing").with_label("leads").campaign().await.unwrap();
    let _short = locks.elect("audit").with_label("short").with_stuck_after(MOMENT).campaign().await.unwrap();
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(now_seconds(&metrics));
    let run = async |_: &lock_core::LockGuard| {
        let _plain = locks.lock("plain").with_label("plain").await?;
        for lock in ["plain", "short", "own"] {
            eventually(lock, || (stuck(&metrics, lock) == 1.0).then_some(()));
        }
        for lock in ["leads", "hourly", "once"] {
            assert_eq!(stuck(&metrics, lock), 0.0, "{lock}");
        }
        Ok::<_, LockError>(())
    };
    let own = locks.lock("own").with_label("own").at_most_every(LONG).with_stuck_after(MOMENT);
    let once = locks.lock("once").with_label("once").once_at(at);
    let hourly = locks.lock("hourly").with_label("hourly").at_most_every(LONG);
    let done = hourly.run(async |_| once.run(async |_| own.run(run).await).await).await;
    assert_eq!(done.unwrap(), Some(Some(Some(()))));
    let scrape = Scrape::read(&metrics.render());
    let after = |lock| scrape.find("stuck_after_seconds", &[("lock", lock)]);
    assert_eq!((after("leads"), after("once")), (None, None), "no threshold");
    assert_eq!((after("hourly"), after("own")), (Some(LONG.as_secs_f64()), Some(0.001)));
}

/// The seconds of the clock of this process.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since 1970")]
fn now_seconds(metrics: &MetricsHandle) -> u64 {
    Scrape::read(&metrics.render()).get("now_timestamp_seconds", &[]) as u64
}

#[test]
#[limit]
fn a_leader_of_another_library_leads_and_a_stranger_does_not() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let lease = Some(Duration::from_secs(9));
    let mut other = Holder::foreign(lease);
    other.info = Some(HolderInfo::new("go-7", 0, "leader election"));
    for (election, leader) in [("other", other), ("taken", Holder::foreign(lease))] {
        let candidate = Acquire::new(&observer, 20, election, election).for_purpose(Purpose::Leadership);
        candidate.send(LockEventKind::WaitStarted);
        candidate.send(LockEventKind::Contended { holder: Some(&leader) });
        let seen = Scrape::read(&metrics.render());
        let led = seen.get("candidates_led", &[("lock", election)]);
        assert_eq!(led > 0.0, election == "other");
    }
}

#[test]
#[limit]
fn who_stands_for_a_role_does_not_wait_for_a_lock() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let leader = Acquire::new(&observer, 1, "billing", "billing").for_purpose(Purpose::Leadership);
    leader.take();
    let candidates: Vec<_> = (2..14)
        .map(|attempt| {
            let candidate = Acquire::new(&observer, attempt, "billing", "billing").for_purpose(Purpose::Leadership);
            candidate.send(LockEventKind::WaitStarted);
            candidate.send(LockEventKind::Contended { holder: Some(&holder("shop::lead")) });
            candidate
        })
        .collect();
    let seen = Scrape::read(&metrics.render());
    let of = |name| seen.get(name, &[("lock", "billing")]);
    assert_eq!((of("candidates"), of("candidates_led"), of("leader")), (12.0, 12.0, 1.0));
    assert_eq!((of("waiters"), of("oldest_wait_start_timestamp_seconds")), (0.0, 0.0));
    assert_eq!(seen.find("waiting_on", &[("lock", "billing")]), None);
    let page: serde_json::Value = serde_json::from_str(&metrics.locks_json()).unwrap();
    let rows = page["locks"].as_array().unwrap();
    assert_eq!((&rows[0]["state"], &rows[0]["role"]), (&"leads".into(), &"leader".into()));
    assert!(rows[1..].iter().all(|row| row["state"] == "stands" && row["role"] == "candidate"), "{page:#}");
    assert_eq!((&page["totals"]["waiting"], &page["totals"]["candidates"]), (&0.into(), &12.into()));
    // A candidate that waited for days did not wait for a slow lock, and no holder blocked it.
    leader.release(LONG);
    candidates[0].acquired(GrantPath::Granted, LONG, Some(&holder("shop::lead")));
    candidates[1].send(LockEventKind::Cancelled { waited: LONG, holder: Some(&holder("shop::lead")) });
    let seen = Scrape::read(&metrics.render());
    assert_eq!(seen.get("wait_seconds_count", &[("lock", "billing"), ("outcome", "failed")]), 0.0);
    assert_eq!(seen.get("wait_seconds_count", &[("lock", "billing"), ("outcome", "acquired")]), 0.0);
    assert_eq!(seen.find("blocked_seconds_count", &[("lock", "billing")]), None);
    assert_eq!(seen.get("acquisitions_total", &[("lock", "billing"), ("outcome", "acquired")]), 2.0);
}
