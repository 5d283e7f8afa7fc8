//! One leader at a time, and everybody knows who.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{
    FencingToken, LockError, LockErrorKind, LockEvent, LockManager, LockObserver, LossReason, MemoryStore, Notice,
};
use lock_testing::{EventLog, limit};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
#[limit]
async fn candidates_lead_one_after_the_other_in_rising_terms() {
    let locks = LockManager::for_tests();
    let leading = Arc::new(AtomicU32::new(0));
    let candidates = (0..8).map(|_| {
        let (election, leading) = (locks.elect("billing"), Arc::clone(&leading));
        tokio::spawn(async move {
            let led = election.run(async move |term| {
                assert_eq!(leading.fetch_add(1, Ordering::Relaxed), 0);
                sleep(90 * SECOND).await;
                assert_eq!(leading.fetch_sub(1, Ordering::Relaxed), 1);
                term
            });
            led.await.unwrap()
        })
    });
    let candidates: Vec<_> = candidates.collect();
    let mut terms: Vec<FencingToken> = Vec::new();
    for candidate in candidates {
        terms.push(candidate.await.unwrap());
    }
    assert!(terms.is_sorted_by(|one, next| one < next), "in the order in which they stood: {terms:?}");
    assert!(locks.all_free());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_loss_drops_the_work_and_campaigns_again() {
    let locks = LockManager::for_tests();
    let mut terms = Vec::new();
    let run = locks.elect("billing").with_ttl(9 * SECOND).run(async |term| {
        terms.push(term);
        if terms.len() < 3 {
            locks.steal("billing");
            std::future::pending::<()>().await;
        }
        "done"
    });
    assert_eq!(run.await.unwrap(), "done");
    assert!(terms.len() == 3 && terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    assert!(locks.all_free());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn who_resigns_panics_or_goes_is_followed_at_once() {
    let locks = LockManager::for_tests();
    let events = EventLog::default();
    locks.observe(events.clone());
    let leadership = locks.elect("billing").campaign().await.unwrap();
    leadership.ensure_held().unwrap();
    let next = |what: &'static str| {
        let campaign = locks.elect("billing").campaign();
        async move {
            let elected = timeout(SECOND / 10, campaign).await;
            elected.unwrap_or_else(|_| panic!("nobody followed who {what}")).unwrap()
        }
    };
    let (resigned, second) = tokio::join!(leadership.resign(), next("resigned"));
    resigned.unwrap();
    drop(second);
    let manager = locks.manager();
    let panicked =
        tokio::spawn(
            async move { manager.elect("billing").run(async |_| -> () { panic!("a bug in the leader") }).await },
        );
    assert!(panicked.await.unwrap_err().is_panic());
    let third = next("panicked").await;
    // A dropped candidate does not count.
    let campaign = timeout(5 * SECOND, locks.elect("billing").campaign()).await;
    assert!(campaign.is_err());
    drop(third);
    drop(next("was dropped").await);
    sleep(SECOND).await;
    assert!(locks.all_free());
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_resignation_that_fails_is_repeated() {
    let store = MemoryStore::new();
    let manager = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    let (one, other) = (manager(), manager());
    let leadership = one.elect("billing").with_ttl(600 * SECOND).campaign().await.unwrap();
    store.set_away(true);
    let resigning = tokio::spawn(leadership.resign());
    sleep(5 * SECOND).await;
    assert!(!resigning.is_finished());
    store.set_away(false);
    let started = Instant::now();
    other.elect("billing").campaign().await.unwrap().resign().await.unwrap();
    assert!(started.elapsed() < 5 * SECOND, "{:?}", started.elapsed());
    resigning.await.unwrap().unwrap();
    // Nor does a store that is away longer than the lease make two leaders.
    let leadership = one.elect("billing").with_ttl(10 * SECOND).campaign().await.unwrap();
    store.set_away(true);
    assert_eq!(leadership.lost().await, LossReason::Unreachable);
    assert!(leadership.ensure_held().is_err());
}

/// Counts the looks at the store.
#[derive(Clone, Default)]
struct Looks(Arc<AtomicU32>);

impl LockObserver for Looks {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Command { op: "holder", .. } = notice {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn observers_are_told_who_leads_and_share_one_look_a_second() {
    let (store, looks) = (MemoryStore::new(), Looks::default());
    let manager = || LockManager::builder(store.clone()).drive_on_current_runtime().build().unwrap();
    let (here, there) = (manager(), manager());
    here.observe(looks.clone());
    let election = here.elect("billing");
    let mut observers: Vec<_> = (0..50).map(|_| election.observe()).collect();
    for observer in &mut observers {
        assert!(observer.changed().await.unwrap().is_none());
    }
    for name in ["10.0.0.3:8080", "10.0.0.4:8080"] {
        let leadership = there.elect("billing").announcing(name).campaign().await.unwrap();
        let started = Instant::now();
        for observer in &mut observers {
            assert_eq!(observer.changed().await.unwrap().unwrap().announced(), Some(name));
        }
        assert!(started.elapsed() <= SECOND, "{:?}", started.elapsed());
        assert_eq!(election.leader().await.unwrap().unwrap().announced(), Some(name));
        leadership.resign().await.unwrap();
        for observer in &mut observers {
            assert!(observer.changed().await.unwrap().is_none());
        }
    }
    // A later observer gets the answer at once too.
    let unannounced = there.elect("billing").campaign().await.unwrap();
    observers[0].changed().await.unwrap().unwrap();
    let leader = election.observe().changed().await.unwrap().unwrap();
    assert_eq!(leader.announced(), None);
    assert_eq!(leader.holder().owner, election.leader().await.unwrap().unwrap().holder().owner);
    looks.0.store(0, Ordering::Relaxed);
    sleep(60 * SECOND).await;
    let of_a_minute = looks.0.load(Ordering::Relaxed);
    assert!((60..=125).contains(&of_a_minute), "{of_a_minute} looks a minute");
    observers.clear();
    sleep(2 * SECOND).await;
    looks.0.store(0, Ordering::Relaxed);
    sleep(60 * SECOND).await;
    assert_eq!(looks.0.load(Ordering::Relaxed), 0, "nobody observes any more");
    drop(unannounced);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_that_is_away_for_longer_than_the_lease_knows_no_leader() {
    let locks = LockManager::for_tests();
    let leadership = locks.elect("billing").with_ttl(10 * SECOND).campaign().await.unwrap();
    let mut observer = locks.elect("billing").observe();
    assert!(observer.changed().await.unwrap().is_some());
    locks.set_away(true);
    let started = Instant::now();
    assert!(observer.changed().await.unwrap().is_none());
    let passed = started.elapsed();
    assert!((6 * SECOND..=12 * SECOND).contains(&passed), "{passed:?}");
    assert!(leadership.ensure_held().is_err(), "the leader knew before");
    locks.set_away(false);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_shutdown_ends_leaders_candidates_and_observers() {
    let locks = LockManager::for_tests();
    let run = |manager: LockManager| {
        tokio::spawn(async move { manager.elect("billing").run(async |_| std::future::pending::<()>().await).await })
    };
    let (leader, candidate) = (run(locks.manager()), run(locks.manager()));
    let mut observer = locks.elect("billing").observe();
    while observer.changed().await.unwrap().is_none() {}
    assert!(locks.shutdown(SECOND).await.is_clean());
    for ended in [leader, candidate] {
        assert_eq!(ended.await.unwrap().unwrap_err().kind(), LockErrorKind::ShutDown);
    }
    assert_eq!(observer.changed().await.unwrap_err().kind(), LockErrorKind::ShutDown);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn mistakes_are_errors_that_say_what_to_do() {
    let locks = LockManager::for_tests();
    for text in ["a|b".to_owned(), "two\nlines".to_owned(), "x".repeat(151)] {
        let error = locks.elect("billing").announcing(text).campaign().await.unwrap_err();
        assert!(error.to_string().contains("at most 150 bytes"), "{error}");
    }
    let error: LockError = locks.elect("").run(async |_| ()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert_eq!(locks.elect("").observe().changed().await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    let error = locks.elect("billing").with_ttl(SECOND / 10).campaign().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
}

/// No runtime at all: the futures need none.
#[test]
#[limit]
fn any_executor_can_lead() {
    let locks = LockManager::in_memory();
    let led = poll_to_end(locks.elect("billing").run(async |_| 7));
    assert_eq!(led.unwrap(), 7);
    assert!(poll_to_end(locks.elect("billing").observe().changed()).unwrap().is_none());
}

/// A leader whose runtime stops resigns, and a candidate whose runtime stops stands no longer.
#[test]
#[limit]
fn a_runtime_that_stops_ends_leaders_and_candidates() {
    let locks = LockManager::in_memory();
    let election = locks.elect("billing").with_ttl(600 * SECOND);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (leader, candidate) = (election.clone(), election.clone());
        let leads = runtime.spawn(async move { leader.run(async move |_| std::future::pending::<()>().await).await });
        let stands = runtime.spawn(async move { candidate.campaign().await.map(drop) });
        runtime.block_on(async {
            while election.leader().await.unwrap().is_none() {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        assert!(!leads.is_finished() && !stands.is_finished());
        drop(runtime);
        // Not when a lease ends: that would be in ten minutes.
        assert_eq!(poll_to_end(election.run(async |_| 7)).unwrap(), 7);
    }
}

fn poll_to_end<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
