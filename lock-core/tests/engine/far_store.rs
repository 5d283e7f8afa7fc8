//! The machinery on virtual time, over a store that takes its time to answer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{
    Clock, Holder, LockBackend, LockError, LockErrorKind, LockEvent, LockKey, LockManager, LockObserver, MemoryStore,
    Notice, ReleaseOutcome, Renew,
};
use lock_store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_testing::limit;

const SECOND: Duration = Duration::from_secs(1);

/// The memory store at the other end of a long cable.
#[derive(Debug)]
struct Remote {
    store: MemoryStore,
    one_way: Duration,
    /// The keys whose renewals are refused.
    refused: &'static [&'static str],
    /// Whether requests with the shortest deadline reach the store after it, and how many did.
    late: Option<Arc<AtomicU32>>,
    /// Whether releases do not reach the store, and how many did not.
    away: Arc<(AtomicBool, AtomicU32)>,
}

impl Remote {
    fn new(one_way: Duration) -> Self {
        Self { store: MemoryStore::new(), one_way, refused: &[], late: None, away: Arc::default() }
    }

    async fn there_and_back<T>(&self, command: impl Future<Output = T>) -> T {
        tokio::time::sleep(self.one_way).await;
        let answer = command.await;
        tokio::time::sleep(self.one_way).await;
        answer
    }
}

impl LockBackend for Remote {
    fn kind(&self) -> &'static str {
        "remote"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::polled()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.store.drive(inbox).await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, LockError> {
        if let Some(late) = self.late.as_ref().filter(|_| request.execute_within == SECOND / 10) {
            late.fetch_add(1, Ordering::Relaxed);
            // The whole process stands still, so nothing else notices the deadline first.
            std::thread::sleep(request.execute_within);
            return Err(LockError::not_executed("the store was reached after the deadline"));
        }
        self.there_and_back(self.store.try_acquire(request)).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal, LockError>> {
        let mut answers = self.there_and_back(self.store.renew(one_lane)).await;
        for (claim, answer) in one_lane.iter().zip(&mut answers) {
            if self.refused.contains(&claim.key.as_str()) {
                *answer = Err(LockError::misconfigured("renewals are not permitted"));
            }
        }
        answers
    }

    async fn release(&self, release: &Release) -> Result<Freed, LockError> {
        if self.away.0.load(Ordering::Relaxed) {
            self.away.1.fetch_add(1, Ordering::Relaxed);
            return Err(LockError::not_executed("the store is away"));
        }
        self.there_and_back(self.store.release(release)).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed, LockError> {
        self.there_and_back(self.store.withdraw(claim)).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>, LockError> {
        self.there_and_back(self.store.holder(key)).await
    }
}

/// Counts the commands that were answered, and those that failed. Tells of each renewal whether it failed.
#[derive(Clone, Default)]
struct Commands(Arc<Mutex<(usize, usize, Vec<bool>)>>);

impl LockObserver for Commands {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Command { op, error, .. } = notice {
            let mut seen = self.0.lock().unwrap();
            seen.2.extend((*op == "renew").then_some(error.is_some()));
            if error.is_none() { seen.0 += 1 } else { seen.1 += 1 }
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_that_was_left_no_time_has_not_failed() {
    let millis = Duration::from_millis;
    for (one_way, wait, failed) in [(millis(20), millis(30), 0), (millis(200), millis(300), 1)] {
        let remote = Remote::new(one_way);
        let seen = Commands::default();
        let locks = LockManager::builder(remote).observer(seen.clone()).drive_on_current_runtime().build().unwrap();
        let error = locks.lock("k").with_ttl(60 * SECOND).with_wait(wait).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert_eq!(seen.0.lock().unwrap().1, failed, "an answer takes {:?}, and {wait:?} were left", 2 * one_way);
        locks.shutdown(SECOND).await;
    }
}

#[tokio::test]
#[limit]
async fn a_last_request_that_comes_too_late_does_not_hide_the_holder() {
    let late = Arc::new(AtomicU32::new(0));
    for millis in (200..300).step_by(7) {
        let remote = Remote { late: Some(Arc::clone(&late)), ..Remote::new(Duration::ZERO) };
        let holder = LockManager::builder(remote.store.clone()).drive_on_current_runtime().build().unwrap();
        let _guard = holder.lock("k").with_site("shop::charge").await.unwrap();
        let locks = LockManager::builder(remote).drive_on_current_runtime().build().unwrap();
        let error = locks.lock("k").with_wait(Duration::from_millis(millis)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        assert_eq!(error.holder().map(Holder::site), Some("shop::charge"));
    }
    assert!(late.load(Ordering::Relaxed) > 0, "no wait ended with a request that came too late");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn releases_are_tried_less_often_the_longer_the_store_is_away_and_come_soon_after_it() {
    let remote = Remote::new(Duration::ZERO);
    let (away, store) = (Arc::clone(&remote.away), remote.store.clone());
    let locks = LockManager::builder(remote).drive_on_current_runtime().build().unwrap();
    let others = LockManager::builder(store).drive_on_current_runtime().build().unwrap();
    let mut held = Vec::new();
    for key in 0..50 {
        held.push(locks.lock(format!("k{key}")).with_ttl(120 * SECOND).await.unwrap());
    }
    away.0.store(true, Ordering::Relaxed);
    drop(held);
    tokio::time::sleep(60 * SECOND).await;
    let tries = away.1.load(Ordering::Relaxed) / 50;
    assert!((120..360).contains(&tries), "{tries} tries of each release in a minute");
    away.0.store(false, Ordering::Relaxed);
    tokio::time::sleep(SECOND / 2).await;
    for key in 0..50 {
        others.lock(format!("k{key}")).without_waiting().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_release_is_tried_shortly_before_its_lease_ends() {
    let remote = Remote::new(Duration::ZERO);
    let away = Arc::clone(&remote.away);
    let locks = LockManager::builder(remote).drive_on_current_runtime().build().unwrap();
    let mut held = Vec::new();
    for key in 0..50 {
        held.push(locks.lock(format!("k{key}")).with_ttl(6 * SECOND).with_renew(Renew::Off).await.unwrap());
    }
    away.0.store(true, Ordering::Relaxed);
    let releases: Vec<_> = held.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    tokio::time::sleep(6 * SECOND - 400 * SECOND / 1000).await;
    away.0.store(false, Ordering::Relaxed);
    for release in releases {
        assert_eq!(release.await.unwrap(), Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_look_that_gave_up_after_its_second_has_not_failed() {
    let remote = Remote::new(Duration::from_millis(700));
    let seen = Commands::default();
    let locks = LockManager::builder(remote).observer(seen.clone()).drive_on_current_runtime().build().unwrap();
    let observer = locks.elect("billing").observe();
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(seen.0.lock().unwrap().1, 0, "each look took longer than its second");
    drop(observer);
    // A call that asks for the holder waits for seconds. If no answer comes then, the store has failed.
    let remote = Remote::new(4 * SECOND);
    let seen = Commands::default();
    let locks = LockManager::builder(remote).observer(seen.clone()).drive_on_current_runtime().build().unwrap();
    locks.elect("billing").leader().await.unwrap_err();
    assert_eq!(seen.0.lock().unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_server_that_answers_and_refuses_each_renewal_has_failed() {
    // One bad key is refused alone, and the server does its work: both are renewed by one command.
    for (refused, failed) in [(&["a", "b"][..], true), (&["a"], false), (&[], false)] {
        let remote = Remote { refused, ..Remote::new(Duration::ZERO) };
        let seen = Commands::default();
        let locks = LockManager::builder(remote).observer(seen.clone()).drive_on_current_runtime().build().unwrap();
        let lock = async |key| locks.lock(key).with_ttl(3 * SECOND).await.unwrap();
        let (_a, _b) = (lock("a").await, lock("b").await);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(seen.0.lock().unwrap().2.first(), Some(&failed), "{refused:?}");
    }
}

/// Other libraries count a lease from the answer, and hand over a lease that has ended.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_is_never_handed_over_after_its_lease() {
    let ttl = Duration::from_millis(120);
    let (mut granted, mut refused) = (0, 0);
    for one_way in (0..80).map(Duration::from_millis) {
        let remote = Remote::new(one_way);
        let locks = LockManager::builder(remote).drive_on_current_runtime().build().unwrap();
        match locks.lock("k").with_ttl(ttl).with_renew(Renew::Off).with_wait(SECOND).await {
            Ok(guard) => {
                assert!(guard.remaining() > Duration::ZERO, "{one_way:?} each way");
                assert!(guard.remaining() <= ttl - 2 * one_way, "{one_way:?} each way: counted from the answer");
                guard.ensure_held().unwrap();
                granted += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
                refused += 1;
            }
        }
    }
    assert!(granted > 0 && refused > 0, "{granted} {refused}");
}
