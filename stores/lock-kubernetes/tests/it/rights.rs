//! Users who lack a right, or whose token has expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::{LockErrorKind, LockEvent, LockManager, LockObserver, Notice, ReleaseOutcome};
use lock_kubernetes::Kubernetes;
use lock_store::{Doctor as _, FindingGrade};
use lock_testing::{Stopwatch, limit};
use tokio::task::JoinSet;

use crate::servers::ApiServer;
use crate::support::{SECOND, locks, locks_for};

const ALL: [&str; 5] = ["get", "create", "update", "watch", "list"];

fn without(verb: &str) -> Vec<&'static str> {
    ALL.into_iter().filter(|other| *other != verb).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn an_error_names_the_verb_that_is_not_permitted() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let owner = locks(&place.url());
    for verb in ["get", "create", "update"] {
        let user = place.user(&without(verb));
        let limited = LockManager::builder_for(&user.url()).unwrap().with_wait(10 * SECOND).build().unwrap();
        let key = format!("right-{verb}");
        let guard = owner.lock(&key).await.unwrap();
        let error = match verb {
            // The user finds the lock taken, and then cannot read by whom, or cannot take it.
            "get" => limited.lock(&key).try_acquire().await.unwrap_err(),
            "update" => {
                guard.release().await.unwrap();
                limited.lock(&key).try_acquire().await.unwrap_err()
            }
            _ => limited.lock(format!("{key}-new")).try_acquire().await.unwrap_err(),
        };
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        for part in [verb, "leases", "coordination.k8s.io", &place.name, "Role"] {
            assert!(error.to_string().contains(part), "{part} in {error}");
        }
    }
}

/// Whether the store was last reported as connected.
#[derive(Clone, Default)]
struct Connected(Arc<AtomicBool>);

impl LockObserver for Connected {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Connection { up, .. } = notice {
            self.0.store(*up, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn who_may_not_watch_polls_and_who_may_not_create_uses_what_is_there() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let owner = locks(&place.url());
    for verb in ["watch", "create"] {
        let user = place.user(&without(verb));
        let limited = locks(&user.url());
        let connected = Connected::default();
        limited.observe(connected.clone());
        let guard = owner.lock("shared").await.unwrap();
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { limited.lock("shared").await.unwrap() });
        tokio::time::sleep(SECOND).await;
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let next = waiting.join_next().await.unwrap().unwrap();
        watch.assert_within(5 * SECOND, "a waiter gets the lock");
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released), "without {verb}");
        assert!(connected.0.load(Ordering::Relaxed), "without {verb}: the server answers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn the_doctor_says_which_verb_is_missing() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    for verb in ALL {
        let user = place.user(&without(verb));
        let findings = Kubernetes::new(&user.url()).unwrap().examine().await;
        let bad: Vec<_> = findings.iter().filter(|finding| finding.grade != FindingGrade::Works).collect();
        let of_verb = findings.iter().find(|finding| finding.subject == verb).unwrap();
        let grade = if ["watch", "list"].contains(&verb) { FindingGrade::Warning } else { FindingGrade::Refused };
        assert_eq!(of_verb.grade, grade, "{findings:?}");
        assert!(of_verb.says.contains(&place.name) && of_verb.remedy.as_ref().unwrap().contains(verb), "{of_verb:?}");
        // Without get, the latency of a read is not known either.
        assert!(bad.len() == 1 || verb == "get", "{bad:?}");
    }
    let findings = Kubernetes::new(&place.url()).unwrap().examine().await;
    assert!(findings.iter().all(|finding| finding.grade == FindingGrade::Works), "{findings:?}");
    assert!(findings.len() >= 9, "{findings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_token_that_has_expired_is_read_again() {
    let Some(server) = ApiServer::shared() else { return };
    let place = server.namespace();
    let user = place.user(&ALL);
    let locks = locks_for(&user.url(), 30 * SECOND);
    let guard = locks.lock("before").await.unwrap();
    guard.release().await.unwrap();
    user.expire();
    let mut error = None;
    for attempt in 0..60 {
        tokio::time::sleep(SECOND / 2).await;
        // The release of the last one before the token expires is refused.
        match locks.lock(format!("after-{attempt}")).without_waiting().await {
            Ok(guard) => drop(guard),
            Err(refused) => {
                error = Some(refused);
                break;
            }
        }
    }
    let error = error.expect("the server refuses a token whose account is gone");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "a later attempt may succeed: {error}");
    assert!(error.to_string().contains("401"), "{error}");
    user.log_in();
    let watch = Stopwatch::start();
    let again = locks.lock("after").await;
    assert!(again.is_ok(), "the new token is read without a restart: {again:?}");
    // The client reads the file by itself each minute.
    watch.assert_within(15 * SECOND, "a token that is refused is read again at once");
}
