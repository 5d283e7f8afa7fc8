//! The behaviour of annotated functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{
    FencingToken, LockError, LockErrorKind, LockEvent, LockKey, LockManager, LockObserver, Notice, distributed_lock,
    lock_key,
};
use lock_testing::limit;

use crate::support::{Down, assert_send, manager, paused};

#[derive(Default)]
struct Room {
    inside: AtomicU32,
    visits: AtomicU32,
}

impl Room {
    async fn visit(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two callers inside");
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "room:<id>", ttl = "10s", client = locks)]
async fn enter(locks: &LockManager, id: u32, room: &Room) -> Result<u32, LockError> {
    room.visit().await;
    Ok(id)
}

#[tokio::test(flavor = "multi_thread")]
#[limit]
async fn two_callers_never_overlap() {
    let locks = LockManager::in_memory();
    let room = Arc::new(Room::default());
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (locks, room) = (locks.clone(), Arc::clone(&room));
            tokio::spawn(async move { enter(&locks, 7, &room).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 7);
    }
    assert_eq!(room.visits.load(Ordering::SeqCst), 20);
}

#[distributed_lock(key = "try:<id>", wait = "none", client = locks)]
async fn try_it(locks: &LockManager, id: u32) -> Result<(), LockError> {
    panic!("the body ran without the lock")
}

#[tokio::test]
#[limit]
async fn a_taken_lock_keeps_the_body_out() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("try:1").await.unwrap();
    assert_eq!(try_it(&locks, 1).await.unwrap_err().kind(), LockErrorKind::Busy);
    drop(guard);
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Done,
    Busy(String, u32),
    Failed(LockErrorKind),
    Lost,
}

#[distributed_lock(
    key = "handled:<id>",
    wait = "none",
    on_busy = |busy| Outcome::Busy(busy.key().map(ToString::to_string).unwrap_or_default(), id),
    on_error = |error| Outcome::Failed(error.kind()),
    on_lost = |_| Outcome::Lost,
    client = locks,
)]
async fn handled(locks: &LockManager, id: u32) -> Outcome {
    tokio::time::sleep(Duration::from_secs(30)).await;
    Outcome::Done
}

#[tokio::test(start_paused = true)]
#[limit]
async fn closures_make_the_return_value() {
    let (locks, store) = paused();
    assert_eq!(handled(&locks, 1).await, Outcome::Done);
    let guard = locks.lock("handled:1").await.unwrap();
    assert_eq!(handled(&locks, 1).await, Outcome::Busy("handled:1".to_owned(), 1));
    drop(guard);
    let down = LockManager::builder(Down).drive_on_current_runtime().build().unwrap();
    assert_eq!(handled(&down, 1).await, Outcome::Failed(LockErrorKind::Unavailable));
    let steal = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        store.steal(&LockKey::new("handled:2").unwrap());
    };
    let (outcome, ()) = tokio::join!(handled(&locks, 2), steal);
    assert_eq!(outcome, Outcome::Lost);
}

#[distributed_lock(key = "skip", wait = "none", on_busy = "skip", on_error = "skip", on_lost = "skip", client = locks)]
async fn skip_nothing(locks: &LockManager, ran: &AtomicU32) {
    ran.fetch_add(1, Ordering::SeqCst);
}

#[distributed_lock(key = "skip", wait = "none", on_busy = "skip", client = locks)]
async fn skip_ok(locks: &LockManager, ran: &AtomicU32) -> Result<(), LockError> {
    ran.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(key = "skip", wait = "none", on_busy = "skip", client = locks)]
async fn skip_none(locks: &LockManager, ran: &AtomicU32) -> Result<Option<u32>, LockError> {
    Ok(Some(ran.fetch_add(1, Ordering::SeqCst)))
}

#[distributed_lock(key = "skip", wait = "none", on_busy = "skip", on_error = "skip", on_lost = "skip", client = locks)]
fn skip_option(locks: &LockManager, ran: &AtomicU32) -> Option<u32> {
    Some(ran.fetch_add(1, Ordering::SeqCst))
}

#[tokio::test]
#[limit]
async fn skip_returns_the_empty_value() {
    let (locks, ran) = (manager(), AtomicU32::new(0));
    let guard = locks.lock("skip").await.unwrap();
    skip_nothing(&locks, &ran).await;
    skip_ok(&locks, &ran).await.unwrap();
    assert_eq!(skip_none(&locks, &ran).await.unwrap(), None);
    assert_eq!(skip_option(&locks, &ran), None);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    guard.release().await.unwrap();
    skip_nothing(&locks, &ran).await;
    skip_ok(&locks, &ran).await.unwrap();
    assert_eq!(skip_none(&locks, &ran).await.unwrap(), Some(2));
    assert_eq!(skip_option(&locks, &ran), Some(3));
}

#[distributed_lock(key = "open", wait = "none", on_error = "run_unlocked", client = locks)]
async fn fails_open(locks: &LockManager) -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "open", wait = "none", on_error = "run_unlocked", client = locks)]
fn fails_open_blocking(locks: &LockManager) -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "open", on_error = "run_unlocked")]
async fn open_without_a_manager() -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "open:<text>", on_error = "run_unlocked", client = locks)]
async fn open_with_a_bad_key(locks: &LockManager, text: &str) -> Result<u32, LockError> {
    Ok(1)
}

#[derive(Clone, Default)]
struct UnlockedRuns(Arc<AtomicU32>);

impl LockObserver for UnlockedRuns {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::UnlockedRun { label, .. } = notice {
            assert_eq!(label.as_str(), "open");
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
#[limit]
async fn failing_open_is_for_a_store_that_is_down_and_counted() {
    let (down, runs) = (LockManager::builder(Down).build().unwrap(), UnlockedRuns::default());
    down.observe(runs.clone());
    assert_eq!(fails_open(&down).await.unwrap(), 1);
    assert_eq!(fails_open_blocking(&down).unwrap(), 1);
    assert_eq!(runs.0.load(Ordering::SeqCst), 2);
    let locks = manager();
    let guard = locks.lock("open").await.unwrap();
    assert_eq!(fails_open(&locks).await.unwrap_err().kind(), LockErrorKind::Busy);
    drop(guard);
    assert_eq!(open_without_a_manager().await.unwrap_err().kind(), LockErrorKind::NotInstalled);
    assert_eq!(open_with_a_bad_key(&down, "").await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    assert_eq!(runs.0.load(Ordering::SeqCst), 2);
}

#[distributed_lock(key = "when", when = *amount > 100, wait = "none", client = locks)]
async fn only_large(locks: &LockManager, amount: &u32) -> Result<bool, LockError> {
    Ok(lock_core::current_lock().is_some())
}

#[tokio::test]
#[limit]
async fn when_decides_about_the_lock() {
    let locks = manager();
    assert!(only_large(&locks, &200).await.unwrap());
    assert!(!only_large(&locks, &50).await.unwrap());
    let _guard = locks.lock("when").await.unwrap();
    assert!(only_large(&locks, &200).await.is_err());
    assert!(!only_large(&locks, &50).await.unwrap());
}

#[distributed_lock(key = "outer:<depth>", client = locks)]
async fn not_reentrant(locks: &LockManager, depth: u32) -> Result<(), LockError> {
    Box::pin(not_reentrant(locks, depth)).await
}

#[distributed_lock(key = "again", reentrant, guard = lock, client = locks)]
async fn reentrant(locks: &LockManager, depth: u32) -> Result<Vec<FencingToken>, LockError> {
    let mut tokens = if depth == 0 { Vec::new() } else { Box::pin(reentrant(locks, depth - 1)).await? };
    tokens.push(lock.token());
    Ok(tokens)
}

/// Branches of `join!` are one task: without `reentrant` the second is refused, with it both are inside.
#[tokio::test]
#[limit]
async fn siblings_are_nested_too() {
    async fn two_plain(locks: &LockManager) -> (Result<(), LockError>, Result<(), LockError>) {
        tokio::join!(branch(locks, 1), branch(locks, 2))
    }
    #[distributed_lock(key = "siblings", client = locks)]
    async fn branch(locks: &LockManager, _number: u32) -> Result<(), LockError> {
        tokio::task::yield_now().await;
        Ok(())
    }
    #[distributed_lock(key = "siblings", client = locks)]
    async fn parent(locks: &LockManager) -> Result<[LockErrorKind; 2], LockError> {
        let (one, two) = two_plain(locks).await;
        Ok([one.unwrap_err().kind(), two.unwrap_err().kind()])
    }
    #[distributed_lock(key = "siblings", reentrant, client = locks)]
    async fn shared(locks: &LockManager, inside: &AtomicU32) -> Result<u32, LockError> {
        inside.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        Ok(inside.load(Ordering::SeqCst))
    }
    #[distributed_lock(key = "siblings", client = locks)]
    async fn sharing(locks: &LockManager, inside: &AtomicU32) -> Result<(u32, u32), LockError> {
        let (one, two) = tokio::join!(shared(locks, inside), shared(locks, inside));
        Ok((one?, two?))
    }
    let locks = manager();
    // Side by side and not nested, they wait for each other as any two callers do.
    let (one, two) = two_plain(&locks).await;
    one.and(two).unwrap();
    assert_eq!(parent(&locks).await.unwrap(), [LockErrorKind::WouldDeadlock; 2]);
    assert_eq!(sharing(&locks, &AtomicU32::new(0)).await.unwrap(), (2, 2));
}

#[tokio::test]
#[limit]
async fn nested_calls() {
    let locks = manager();
    assert_eq!(not_reentrant(&locks, 1).await.unwrap_err().kind(), LockErrorKind::WouldDeadlock);
    let tokens = reentrant(&locks, 2).await.unwrap();
    assert!(tokens.len() == 3 && tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert!(locks.lock("again").try_acquire().await.unwrap().is_some());
}

#[derive(Debug, PartialEq)]
enum OwnError {
    Taken(LockErrorKind),
}

impl OwnError {
    fn taken(error: LockError) -> Self {
        Self::Taken(error.kind())
    }
}

#[distributed_lock(key = "mapped", wait = "none", map_err = OwnError::taken, client = locks)]
async fn mapped(locks: &LockManager) -> Result<u32, OwnError> {
    Ok(1)
}

#[distributed_lock(key = "mapped", wait = "none", map_err = |error| OwnError::Taken(error.kind()), client = locks)]
fn mapped_blocking(locks: &LockManager) -> Result<u32, OwnError> {
    Ok(1)
}

#[tokio::test]
#[limit]
async fn errors_are_mapped() {
    let locks = manager();
    assert_eq!(mapped(&locks).await, Ok(1));
    let _guard = locks.lock("mapped").await.unwrap();
    assert_eq!(mapped(&locks).await, Err(OwnError::Taken(LockErrorKind::Busy)));
    assert_eq!(mapped_blocking(&locks), Err(OwnError::Taken(LockErrorKind::Busy)));
}

#[distributed_lock(key = "a<<<tenant>>>:{<tenant>}:<path>:<number:04>:<tenant:?>", guard = lock, client = locks)]
async fn rendered(locks: &LockManager, tenant: &str, path: &str, number: u32) -> Result<String, LockError> {
    Ok(lock.key().to_string())
}

#[tokio::test]
#[limit]
async fn keys_are_rendered_and_escaped() {
    let key = rendered(&manager(), "t{1}", "a:b/c", 7).await.unwrap();
    assert_eq!(key, "a<t%7B1%7D>:{t%7B1%7D}:a%3Ab/c:0007:\"t%7B1%7D\"");
    let (user, locks) = (42, manager());
    let run = locks.lock(lock_key!("user:<user:05>:<user>")).run(async |guard| {
        tokio::task::yield_now().await;
        Ok::<_, LockError>(guard.key().to_string())
    });
    assert_send(&run);
    assert_eq!(run.await.unwrap(), "user:00042:42");
    assert_eq!(lock_key!(crate = ::lock_core, "user:<user>",).unwrap().label().unwrap().as_str(), "user:<user>");
    let mail = "ann:ünï@example.org";
    assert_eq!(lock_key!("user:<mail>").unwrap().as_str(), "user:ann%3Aünï@example.org");
    assert_eq!(lock_key!("user:<mail:raw>").unwrap().as_str(), "user:ann:ünï@example.org");
    assert!(lock_key!("user:<String::new()>").is_err());
}

#[distributed_lock(keys = ["account:<to>", "account:<from>"], guard = locks_held, ttl = "10s", client = locks)]
async fn transfer(locks: &LockManager, from: u32, to: u32, room: &Room) -> Result<Vec<String>, LockError> {
    room.visit().await;
    Ok(locks_held.keys().map(ToString::to_string).collect())
}

#[tokio::test]
#[limit]
async fn several_keys_are_locked_in_order_and_all_or_nothing() {
    let (locks, room) = (manager(), Room::default());
    assert_eq!(transfer(&locks, 7, 3, &room).await.unwrap(), ["account:3", "account:7"]);
    assert_eq!(transfer(&locks, 3, 3, &room).await.unwrap(), ["account:3"]);
    let (there, back) = tokio::join!(transfer(&locks, 1, 2, &room), transfer(&locks, 2, 1, &room));
    assert_eq!(there.unwrap(), back.unwrap());
    let taken = locks.lock("account:9").await.unwrap();
    let refused = tokio::time::timeout(Duration::from_millis(50), transfer(&locks, 8, 9, &room)).await;
    assert!(refused.is_err(), "it waits for account:9");
    assert!(locks.lock("account:8").with_wait(Duration::from_secs(60)).await.is_ok(), "and gave account:8 back");
    drop(taken);
    assert_eq!(room.visits.load(Ordering::SeqCst), 4);
}

#[tokio::test]
#[limit]
async fn a_caller_that_goes_away_releases() {
    let locks = manager();
    let room = Room::default();
    {
        let mut call = std::pin::pin!(enter(&locks, 9, &room));
        std::future::poll_fn(|cx| {
            let _ = call.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(room.inside.load(Ordering::SeqCst), 1);
    }
    let _guard = locks.lock("room:9").await.unwrap();
}

#[test]
#[limit]
fn every_site_is_registered_before_its_first_call() {
    let site = lock_core::sites().find(|site| site.function().ends_with("loss::cancelled")).unwrap();
    assert_eq!((site.label, site.ttl, site.stuck_after), ("lost", Some(Duration::from_secs(10)), None));
    assert_eq!(site.function(), "attribute::loss::cancelled");
    assert_eq!(lock_core::sites().filter(|site| site.label == "lost").count(), 4);
}

#[distributed_lock(key = "labelled:<id>", label = "billing", stuck_after = "1m30s", client = locks)]
async fn labelled(locks: &LockManager, id: u32) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
#[limit]
async fn events_carry_label_site_and_threshold() {
    let (locks, seen) = (manager(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&seen);
    locks.observe(move |event: &LockEvent<'_>| {
        assert_eq!((event.label.as_str(), event.key.as_str()), ("billing", "labelled:5"));
        assert_eq!(event.site, concat!(module_path!(), "::labelled"));
        assert_eq!(event.stuck_after, Duration::from_secs(90));
        count.fetch_add(1, Ordering::SeqCst);
    });
    labelled(&locks, 5).await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}
