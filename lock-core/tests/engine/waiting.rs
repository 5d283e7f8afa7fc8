//! A wait is told of while it lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, LockEvent, LockManager, LockObserver, MemoryStore, Notice, Wait};
use lock_testing::limit;

use crate::collector::Collector;
use crate::waits::{Told, wait};

const SECOND: Duration = Duration::from_secs(1);

impl Told {
    fn seconds(&self) -> Vec<u64> {
        self.all().iter().map(|progress| progress.waited.as_secs()).collect()
    }
}

fn two_managers() -> (LockManager, LockManager, MemoryStore) {
    let store = MemoryStore::new();
    let manager =
        || LockManager::builder(store.clone()).with_ttl(30 * SECOND).drive_on_current_runtime().build().unwrap();
    (manager(), manager(), store)
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_wait_is_told_after_a_second_ten_seconds_and_each_minute() {
    let (holder, waiter, _) = two_managers();
    let (told, observer) = (Told::default(), Told::default());
    waiter.observe(observer.clone());
    let (collector, _on) = Collector::install(tracing::Level::INFO);
    let guard = holder.lock("k").with_site("shop::charge").await.unwrap();
    let waiting = wait(&waiter, 200 * SECOND, &told);
    tokio::time::sleep(900 * SECOND / 1000).await;
    assert_eq!(told.seconds(), [0; 0], "none before the first second");
    tokio::time::sleep(180 * SECOND).await;
    assert_eq!(told.seconds(), [1, 10, 70, 130]);
    assert_eq!(observer.seconds(), told.seconds());
    let first = &told.all()[0];
    let found = first.holder.as_ref().unwrap();
    assert_eq!((found.site(), first.site, first.before), ("shop::charge", "shop::refund", Some(0)));
    assert!(first.held_for.is_some() && first.left.unwrap() > 198 * SECOND);
    let line = first.to_string();
    let begin = "waiting for k for 1.0 s: held for 1.0 s by shop::charge (pid ";
    assert!(line.starts_with(begin) && line.ends_with("; this claim is the next; gives up in 3 min 19 s"), "{line}");
    let traced = collector.everything();
    assert!(traced.matches("lock.waiting").count() == 4 && traced.contains("shop::charge"), "{traced}");
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!(told.seconds().len(), 4, "the wait is over");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_waiter_behind_others_learns_how_many() {
    let (holder, first, store) = two_managers();
    let second = LockManager::builder(store).drive_on_current_runtime().build().unwrap();
    let _guard = holder.lock("k").await.unwrap();
    let (early, late) = (Told::default(), Told::default());
    let before = wait(&first, 60 * SECOND, &early);
    tokio::time::sleep(SECOND / 10).await;
    let behind = wait(&second, Wait::Forever, &late);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((early.all()[0].before, late.all()[0].before), (Some(0), Some(1)));
    assert!(late.all()[0].to_string().ends_with("; 1 before this claim; never gives up"), "{}", late.all()[0]);
    // A wait that is dropped is told no more.
    behind.abort();
    before.abort();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!((early.all().len(), late.all().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_caller_that_comes_while_the_lock_changes_hands_gives_up_in_time() {
    let (locks, _, _) = two_managers();
    let first = locks.lock("k").await.unwrap();
    let second = tokio::spawn(locks.lock("k").acquire());
    tokio::time::sleep(SECOND).await;
    // This hand-off schedules the check on which the next caller relies, instead of setting an alarm.
    first.release().await.unwrap();
    let _second = second.await.unwrap().unwrap();
    let begun = tokio::time::Instant::now();
    let error = locks.lock("k").with_wait(SECOND / 2).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let waited = begun.elapsed();
    assert!((SECOND / 2..SECOND * 6 / 10).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_caller_behind_another_of_its_process_is_told_too() {
    let (locks, _, _) = two_managers();
    let guard = locks.lock("k").with_site("shop::charge").await.unwrap();
    let told = Told::default();
    let waiting = wait(&locks, 60 * SECOND, &told);
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(told.seconds(), [1, 10]);
    assert!(told.all()[0].to_string().contains("shop::charge"), "{}", told.all()[0]);
    assert!(told.all()[0].to_string().contains("of this process"), "{}", told.all()[0]);
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_that_is_away_is_told_as_unknown_and_the_wait_goes_on() {
    let (holder, waiter, store) = two_managers();
    let guard = holder.lock("k").with_ttl(600 * SECOND).await.unwrap();
    let told = Told::default();
    let waiting = wait(&waiter, 600 * SECOND, &told);
    tokio::time::sleep(SECOND / 2).await;
    store.set_away(true);
    tokio::time::sleep(30 * SECOND).await;
    let all = told.all();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].holder.is_none() && all[0].unknown.is_some(), "{all:?}");
    assert!(all[0].to_string().contains("its holder is unknown, because "), "{}", all[0]);
    store.set_away(false);
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_message_that_panics_breaks_no_wait() {
    let (holder, waiter, _) = two_managers();
    let guard = holder.lock("k").await.unwrap();
    let request = waiter.lock("k").with_wait(60 * SECOND).on_waiting(|_| panic!("a bug, expected in this test"));
    let waiting = tokio::spawn(request.acquire());
    tokio::time::sleep(11 * SECOND).await;
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_candidate_and_a_caller_that_does_not_wait_are_not_told() {
    let (holder, waiter, _) = two_managers();
    let told = Told::default();
    waiter.observe(told.clone());
    let _leads = holder.elect("k").campaign().await.unwrap();
    let candidate = waiter.elect("k");
    let standing = tokio::spawn(async move { candidate.campaign().await });
    assert!(waiter.lock("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(told.seconds(), [0; 0]);
    standing.abort();
}

/// A crowd looks at the store no more often than ten times a second, and each wait goes on.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_crowd_looks_seldom() {
    let (holder, waiter, _) = two_managers();
    let told = Told::default();
    let (mut held, mut waiting) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..300 {
        let key = format!("k{number}");
        held.push(holder.lock(&key).await.unwrap());
        waiting.spawn(waiter.lock(&key).with_wait(90 * SECOND).on_waiting(told.note()).acquire());
    }
    tokio::time::sleep(2 * SECOND).await;
    let first = told.all().len();
    assert!((5..=20).contains(&first), "{first}");
    tokio::time::sleep(20 * SECOND).await;
    let later = told.all().len() - first;
    assert!((150..=210).contains(&later), "{later}");
    drop(held);
    assert!(waiting.join_all().await.iter().all(Result::is_ok));
}

/// Counts how often a wait asked who holds its lock. It does not listen to waits.
#[derive(Clone, Default)]
struct Looks(Arc<AtomicU32>);

impl LockObserver for Looks {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        self.0.fetch_add(u32::from(matches!(notice, Notice::Command { op: "holder", .. })), Ordering::Relaxed);
    }

    fn hears_waits(&self) -> bool {
        false
    }
}

/// It learns of a listener that comes later.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_wait_that_nobody_listens_to_looks_for_no_holder() {
    let (holder, waiter, _) = two_managers();
    let (looks, told) = (Looks::default(), Told::default());
    waiter.observe(looks.clone());
    let guard = holder.lock("k").with_ttl(600 * SECOND).await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").with_wait(600 * SECOND).acquire());
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(looks.0.load(Ordering::Relaxed), 0);
    waiter.observe(told.clone());
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!((told.seconds().len(), looks.0.load(Ordering::Relaxed)), (1, 1));
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}
