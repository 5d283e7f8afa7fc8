//! The samples of `docs/testing.md`, which run here as they stand on the page.

use std::path::Path;
use std::time::Duration;

use lock_core::{LockError, LockErrorKind, LockManager, LossReason, distributed_lock};
use lock_testing::{RedisServer, limit};

#[distributed_lock(key = "invoice:<id>")]
async fn bill(id: u64) -> Result<&'static str, LockError> {
    Ok("billed")
}

#[tokio::test(start_paused = true)]
#[limit]
async fn one_bill_at_a_time() {
    let locks = LockManager::for_tests();
    let _default = locks.set_default();
    let other = locks.lock("invoice:7").await.unwrap();
    assert!(bill(7).await.unwrap_err().is_contended());
    other.release().await.unwrap();
    assert_eq!(bill(7).await.unwrap(), "billed");
    assert!(locks.all_free());
}

struct Billing {
    locks: LockManager,
}

impl Billing {
    async fn bill(&self, id: u64) -> Result<&'static str, LockError> {
        self.locks.lock(format!("invoice:{id}")).run(async |_guard| Ok("billed")).await
    }
}

async fn is_free(locks: &LockManager, key: &str) -> Result<bool, LockError> {
    Ok(locks.holder(key).await?.is_none())
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_service_gets_the_manager() {
    let locks = LockManager::for_tests();
    let billing = Billing { locks: locks.manager() };
    assert_eq!(billing.bill(7).await.unwrap(), "billed");
    assert!(is_free(&locks, "invoice:7").await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn two_tasks_do_not_overlap() {
    let locks = LockManager::in_memory();
    let tasks = [7, 7].map(|id| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.scope(bill(id)).await }) // not locks.scope(async { tokio::spawn(bill(id)) })
    });
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), "billed");
    }
}

#[distributed_lock(key = "export:<id>", wait = "none")]
fn export(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[test]
#[limit]
fn a_plain_function_is_locked_too() {
    let locks = LockManager::in_memory();
    let _default = locks.set_default();
    let other = locks.lock("export:7").acquire_blocking().unwrap();
    assert!(export(7).unwrap_err().is_contended());
    other.release_blocking().unwrap();
    assert_eq!(export(7).unwrap(), 7);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn the_body_is_dropped_when_its_lock_is_lost() {
    let locks = LockManager::for_tests();
    let lost = locks.lock("report").run(async |_guard| {
        locks.steal("report"); // the watchdog finds out a third of the ttl later
        std::future::pending::<Result<(), LockError>>().await
    });
    let error = lost.await.unwrap_err();
    assert_eq!((error.kind(), error.loss_reason()), (LockErrorKind::Lost, Some(LossReason::Stolen)));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_caller_that_may_wait_retries() {
    let locks = LockManager::for_tests();
    locks.fail_next(1); // the next command to the store fails
    assert!(locks.lock("report").await.is_ok());
    locks.fail_next(1);
    let error = locks.lock("other").without_waiting().await.unwrap_err();
    assert_eq!((error.kind(), error.http_status()), (LockErrorKind::Unavailable, 503));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_holder_stops_by_its_own_clock() {
    let locks = LockManager::for_tests();
    let guard = locks.lock("nightly").with_ttl(Duration::from_secs(10)).await.unwrap();
    locks.set_away(true); // for longer than the lease
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert!(guard.ensure_held().is_err());
}

#[tokio::test]
#[limit]
async fn it_works_with_a_real_redis() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    assert_eq!(locks.scope(bill(7)).await.unwrap(), "billed");
}

/// The page is compared without `#[limit]`, which the tests of this repository need.
#[test]
#[limit]
fn the_page_shows_what_runs_here() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testing_page.rs");
    let code: Vec<String> = std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
    let code = code.into_iter().filter(|line| line != "#[limit]").collect::<Vec<_>>().join("\n");
    let samples: Vec<String> = crate::pages::blocks(&crate::pages::page("docs/testing.md"))
        .into_iter()
        .filter(|(kind, _)| kind == "rust")
        .map(|(_, code)| code)
        .collect();
    assert!(samples.len() >= 6, "{samples:?}");
    for sample in samples {
        // Imports are at the top here.
        let shown: Vec<&str> = sample.lines().filter(|line| !line.starts_with("use ")).collect();
        let shown = shown.join("\n");
        assert!(code.contains(shown.trim()), "not in tests/it/testing_page.rs:\n{shown}");
    }
}
