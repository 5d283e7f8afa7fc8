use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lock_testing::limit;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::api::manager::LockManager;
use crate::engine::shared::Engine;
use crate::memory::MemoryStore;
use lock_store::contract::backend::{
    AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, LockBackend, Release, Renewal,
};
use lock_store::contract::event::{LockEvent, LockObserver, Notice};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::owner::{Holder, HolderInfo};
use lock_store::types::system::clock::Clock;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A store that needs two steps to find that a lock is taken, as Redis does.
#[derive(Debug, Default)]
struct TwoSteps {
    store: MemoryStore,
    asked: Mutex<Vec<AcquireRequest>>,
    /// How long an answer takes.
    takes: Duration,
    /// The release that happens between the answer to a tentative attempt and the next attempt.
    between: Mutex<Option<Release>>,
}

impl LockBackend for TwoSteps {
    fn kind(&self) -> &'static str {
        "two-steps"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.store.drive(inbox).await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.asked.lock().unwrap().push(request.clone());
        yield_now().await;
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        let attempt = self.store.try_acquire(request).await?;
        yield_now().await;
        if !request.tentative || matches!(attempt, Attempt::Granted { .. }) {
            return Ok(attempt);
        }
        let between = self.between.lock().unwrap().take();
        if let Some(release) = between {
            self.store.release(&release).await?;
        }
        Ok(Attempt::Contended)
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        self.store.renew(one_lane).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        yield_now().await;
        self.store.release(release).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        yield_now().await;
        self.store.withdraw(claim).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.store.holder(key).await
    }
}

/// Makes a manager that can receive grants.
async fn manager(store: &Arc<TwoSteps>) -> LockManager {
    let locks = LockManager::builder_shared(Arc::clone(store)).drive_on_current_runtime().build().unwrap();
    sleep(10 * MS).await;
    assert!(locks.engine().inbox.is_open());
    locks
}

/// Takes a lock as another process would.
async fn taken(store: &TwoSteps, key: &str) -> Release {
    let claim = Claim::new(LockKey::new(key).unwrap(), 600 * SECOND);
    let request = AcquireRequest::new(claim.clone(), HolderInfo::new("elsewhere", 1, "somebody"));
    assert!(matches!(store.store.try_acquire(&request).await, Ok(Attempt::Granted { .. })));
    Release::new(claim)
}

/// Returns how many claims listen for grants, and how many alarms are set.
fn prepared(engine: &Engine) -> (usize, usize) {
    (engine.grants.len(), engine.timer.alarms())
}

/// Returns which requests were tentative, and which had a ticket.
fn asked(store: &TwoSteps) -> Vec<(bool, bool)> {
    store.asked.lock().unwrap().iter().map(|request| (request.tentative, request.ticket.is_some())).collect()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn nothing_is_prepared_before_the_first_attempt_has_failed() {
    let store = Arc::new(TwoSteps { takes: 50 * MS, ..TwoSteps::default() });
    let locks = manager(&store).await;
    let acquires: Vec<_> = (0..20).map(|n| tokio::spawn(locks.lock(format!("k{n}")).acquire())).collect();
    sleep(20 * MS).await;
    // All commands share one alarm.
    assert_eq!(prepared(locks.engine()), (0, 1));
    assert_eq!(asked(&store), [(true, false); 20]);
    let mut guards = Vec::new();
    for acquire in acquires {
        guards.push(acquire.await.unwrap().unwrap());
    }
    // Each lease has one alarm, for its renewal.
    assert_eq!(prepared(locks.engine()), (0, 21));
    for guard in guards {
        guard.release().await.unwrap();
    }
    sleep(SECOND).await;
    assert_eq!(prepared(locks.engine()), (0, 0));
    assert_eq!(store.asked.lock().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lock_that_is_freed_before_its_waiter_is_prepared_is_granted_at_once() {
    let store = Arc::new(TwoSteps::default());
    let locks = manager(&store).await;
    *store.between.lock().unwrap() = Some(taken(&store, "k").await);
    let started = Instant::now();
    let guard = locks.lock("k").with_wait(SECOND).acquire().await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO, "it waited for a grant that nobody sends");
    assert_eq!(asked(&store), [(true, false), (false, true)]);
    assert_eq!((locks.engine().grants.len(), store.store.len()), (0, 1), "it neither listens nor queues");
    guard.release().await.unwrap();
    assert!(store.store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lock_that_is_freed_after_that_is_granted_through_the_queue() {
    let store = Arc::new(TwoSteps::default());
    let locks = manager(&store).await;
    let holder = taken(&store, "k").await;
    let waiting = tokio::spawn(locks.lock("k").with_wait(600 * SECOND).acquire());
    sleep(10 * MS).await;
    assert_eq!(asked(&store), [(true, false), (false, true)]);
    assert_eq!(locks.engine().grants.len(), 1);
    store.store.release(&holder).await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(store.asked.lock().unwrap().len(), 2, "it did not ask again");
    guard.release().await.unwrap();
}

/// The caller is dropped at each answer and each step.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_caller_that_goes_before_it_is_prepared_or_after_leaves_nothing() {
    for polls in 0..12 {
        let store = Arc::new(TwoSteps::default());
        let locks = manager(&store).await;
        let holder = taken(&store, "k").await;
        {
            let mut acquire = pin!(locks.lock("k").with_wait(600 * SECOND).acquire());
            for _ in 0..polls {
                let polled = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                yield_now().await;
            }
        }
        sleep(SECOND).await;
        assert_eq!((locks.engine().grants.len(), store.store.len()), (0, 1), "dropped after {polls} polls");
        store.store.release(&holder).await.unwrap();
        sleep(SECOND).await;
        assert!(store.store.is_empty(), "dropped after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_caller_whose_time_is_up_by_then_does_not_queue() {
    let store = Arc::new(TwoSteps { takes: 200 * MS, ..TwoSteps::default() });
    let locks = manager(&store).await;
    let _holder = taken(&store, "k").await;
    let error = locks.lock("k").with_wait(200 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert_eq!(asked(&store), [(true, false)]);
    sleep(SECOND).await;
    assert_eq!((prepared(locks.engine()), store.store.len()), ((0, 0), 1));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_first_attempt_that_hangs_ends_in_time() {
    let store = Arc::new(TwoSteps { takes: 3600 * SECOND, ..TwoSteps::default() });
    let locks = manager(&store).await;
    for wait in [50 * MS, 400 * MS] {
        let started = Instant::now();
        let error = locks.lock(format!("{wait:?}")).with_ttl(30 * SECOND).with_wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!((wait..wait + 2 * MS).contains(&started.elapsed()), "{:?}", started.elapsed());
    }
}

/// A store that grants every key at once, with prescribed tokens.
#[derive(Debug)]
struct Prescribed(Mutex<Vec<u64>>);

impl LockBackend for Prescribed {
    fn kind(&self) -> &'static str {
        "prescribed"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn drive(&self, _: Inbox) -> LockError {
        std::future::pending().await
    }

    async fn try_acquire(&self, _: &AcquireRequest) -> Result<Attempt> {
        Ok(Attempt::Granted { token: FencingToken::new(self.0.lock().unwrap().pop().unwrap()), lease: None })
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        one_lane.iter().map(|_| Ok(Renewal::Renewed)).collect()
    }

    async fn release(&self, _: &Release) -> Result<Freed> {
        Ok(Freed::Released)
    }

    async fn withdraw(&self, _: &Claim) -> Result<Freed> {
        Ok(Freed::Released)
    }

    async fn holder(&self, _: &LockKey) -> Result<Option<Holder>> {
        Ok(None)
    }
}

/// Notes which tokens were reported as regressed.
#[derive(Clone, Default)]
struct Regressed(Arc<Mutex<Vec<u64>>>);

impl LockObserver for Regressed {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::FencingRegressed { token, .. } = notice {
            self.0.lock().unwrap().push(token.get());
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_token_is_compared_only_with_tokens_of_the_same_key() {
    let grants = [("order", 10), ("stock", 5), ("stock", 6), ("order", 9), ("order", 11), ("stock", 6)];
    let tokens = grants.iter().rev().map(|(_, token)| *token).collect();
    let store = Arc::new(Prescribed(Mutex::new(tokens)));
    let locks = LockManager::builder_shared(store).drive_on_current_runtime().build().unwrap();
    let regressed = Regressed::default();
    locks.observe(regressed.clone());
    for (key, _) in grants {
        locks.lock(key).acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(*regressed.0.lock().unwrap(), [9, 6], "the fourth and the sixth grant went back");
}
