//! Work that is done once for a version, on virtual time, over a store whose marks fail as a test says.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::testing::TestLocks;
use lock_core::{Clock, Holder, LockBackend, LockError, LockErrorKind, LockKey, LockManager, MemoryStore, Result};
use lock_store::{
    AcquireRequest, Attempt, Capabilities, Claim, DoneMark, DoneMarks, Freed, Inbox, JobVersion, Release, Renewal,
};
use lock_testing::limit;
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store in memory, and what becomes of questions about its marks.
#[derive(Clone, Debug, Default)]
struct Store {
    memory: MemoryStore,
    marks: Arc<Mutex<Failures>>,
}

#[derive(Debug, Default)]
struct Failures {
    /// The errors of the next reads, then of all others the last.
    reads: VecDeque<Option<LockError>>,
    writes: VecDeque<Option<LockError>>,
    /// Whether the store has no such part.
    absent: bool,
}

fn next(failures: &mut VecDeque<Option<LockError>>) -> Result<()> {
    let next = if failures.len() > 1 { failures.pop_front() } else { failures.front().cloned() };
    next.flatten().map_or(Ok(()), Err)
}

impl LockBackend for Store {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn attach(&self, clock: &Clock) {
        self.memory.attach(clock);
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.memory.drive(inbox).await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.memory.try_acquire(request).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal>> {
        self.memory.renew(one_lane).await
    }

    async fn release(&self, release: &Release) -> Result<Freed> {
        self.memory.release(release).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed> {
        self.memory.withdraw(claim).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>> {
        self.memory.holder(key).await
    }

    fn marks(&self) -> Option<&impl DoneMarks> {
        (!self.marks.lock().unwrap().absent).then_some(self)
    }
}

impl DoneMarks for Store {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        next(&mut self.marks.lock().unwrap().reads)?;
        self.memory.done(key, version).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        next(&mut self.marks.lock().unwrap().writes)?;
        self.memory.mark_done(claim, version, keep).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.memory.forget_done(key, version).await
    }
}

fn manager(set: impl FnOnce(&mut Failures)) -> LockManager {
    let store = Store::default();
    set(&mut store.marks.lock().unwrap());
    LockManager::builder(store).drive_on_current_runtime().build().unwrap()
}

fn away() -> Option<LockError> {
    Some(LockError::unavailable("the marks are away"))
}

fn foreign() -> Option<LockError> {
    Some(LockError::misconfigured("the key holds a list"))
}

async fn run(locks: &LockManager) -> Result<Option<&'static str>> {
    locks.lock("migrate").once_for("v1").run(async |_| Ok("ran")).await
}

async fn is_free(locks: &LockManager) -> bool {
    locks.holder("migrate").await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_cannot_be_read_is_neither_done_nor_not_done() {
    for (error, kind, says) in [
        (away(), LockErrorKind::Unavailable, "the marks are away"),
        (foreign(), LockErrorKind::Misconfigured, "the key holds a list"),
    ] {
        let locks = manager(|failures| failures.reads = [error.clone()].into());
        let refused = run(&locks).await.unwrap_err();
        let text = refused.to_string();
        assert_eq!(refused.kind(), kind, "{text}");
        assert!(
            text.contains("unknown whether the work is done for the version \"v1\"") && text.contains(says),
            "{text}"
        );
        assert!(is_free(&locks).await, "the next may ask");
        let asked = locks.done("migrate", "v1").await.unwrap_err();
        assert_eq!(asked.kind(), kind, "{asked}");
    }
}

/// The look before the queue may fail: under the lock it is asked again, and again.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_that_answers_in_the_end_has_answered() {
    let locks = manager(|failures| failures.reads = [away(), away(), away(), None].into());
    assert_eq!(run(&locks).await, Ok(Some("ran")));
    assert_eq!(run(&locks).await, Ok(None));
    let locks = manager(|failures| failures.writes = [away(), away(), None].into());
    assert_eq!(run(&locks).await, Ok(Some("ran")));
    assert_eq!(run(&locks).await, Ok(None), "the mark was written in the end");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn work_that_cannot_be_marked_is_an_error_and_done_again() {
    for (error, kind) in [(away(), LockErrorKind::Unavailable), (foreign(), LockErrorKind::Misconfigured)] {
        let locks = manager(|failures| failures.writes = [error.clone()].into());
        let began = Instant::now();
        let unsaid = run(&locks).await.unwrap_err();
        assert_eq!(unsaid.kind(), kind, "{unsaid}");
        assert!(unsaid.to_string().contains("the work ended well, but the store may not have recorded it"), "{unsaid}");
        assert!(began.elapsed() < 15 * SECOND, "it is given up: {:?}", began.elapsed());
        assert!(is_free(&locks).await, "the next may do it");
        assert_eq!(locks.done("migrate", "v1").await, Ok(None));
        assert_eq!(run(&locks).await.unwrap_err().kind(), kind, "it ran again");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_without_marks_refuses_and_says_so() {
    let locks = manager(|failures| failures.absent = true);
    let asked = [run(&locks).await.map(drop), locks.done("migrate", "v1").await.map(drop)];
    for refused in asked.into_iter().chain([locks.forget_done("migrate", "v1").await.map(drop)]) {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
        assert!(refused.to_string().contains("a store of the kind test does not keep marks"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn mistakes_are_named() {
    let locks = LockManager::for_tests();
    let two = locks.lock_all(["a", "b"]).once_for("v1").run(async |_| Ok::<_, LockError>(())).await.unwrap_err();
    assert!(two.to_string().contains("has one lock"), "{two}");
    let read = locks.read("a").once_for("v1").run(async |_| Ok::<_, LockError>(())).await.unwrap_err();
    assert!(read.to_string().contains("readers and permits share their key"), "{read}");
    for (bad, says) in [(String::new(), "the version is empty"), ("x".repeat(1025), "1025 bytes")] {
        let error = locks.lock("a").once_for(&bad).run(async |_| Ok::<_, LockError>(())).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A waiter is woken by the release, not by time, and does not keep the lock for its `min_hold`.
#[tokio::test(start_paused = true)]
#[limit]
async fn those_who_wait_go_on_when_it_is_done() {
    let locks = LockManager::for_tests();
    let others: Vec<_> = (0..5).map(|_| locks.manager()).collect();
    let began = Instant::now();
    let start = |locks: &LockManager| {
        let request = locks.lock("migrate").with_wait(60 * SECOND).with_min_hold(SECOND).once_for("v1");
        request.run(async |_| {
            sleep(20 * SECOND).await;
            Ok::<_, LockError>(())
        })
    };
    let waiting = futures_of(others.iter().map(start));
    let (first, others) = tokio::join!(start(&locks), waiting);
    let all: Vec<_> = std::iter::once(first).chain(others).collect();
    assert_eq!(all.iter().filter(|end| **end == Ok(Some(()))).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|end| **end == Ok(None)).count(), 5, "{all:?}");
    assert!(began.elapsed() < 21 * SECOND, "{:?}", began.elapsed());
}

async fn futures_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(output) = future.as_mut().poll(context) {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_wait_that_ends_while_it_runs_is_an_error() {
    let locks = LockManager::for_tests();
    let other = locks.manager();
    let long = locks.lock("migrate").once_for("v1").run(async |_| {
        sleep(60 * SECOND).await;
        Ok::<_, LockError>(())
    });
    let (ran, waited) = tokio::join!(long, async {
        sleep(SECOND).await;
        other.lock("migrate").with_wait(SECOND).once_for("v1").run(async |_| Ok::<_, LockError>(())).await
    });
    assert_eq!((ran, waited.map_err(|error| error.kind())), (Ok(Some(())), Err(LockErrorKind::Timeout)));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn it_is_remembered_for_400_days_or_for_as_long_as_was_said() {
    let locks: TestLocks = LockManager::for_tests();
    let once = |version: &str| locks.lock("migrate").once_for(version);
    once("v1").run(async |_| Ok::<_, LockError>(())).await.unwrap();
    once("v2").keep_for(DAY).run(async |_| Ok::<_, LockError>(())).await.unwrap();
    advance(DAY - SECOND).await;
    assert!(locks.done("migrate", "v2").await.unwrap().is_some());
    advance(2 * SECOND).await;
    assert_eq!(locks.done("migrate", "v2").await, Ok(None));
    advance(398 * DAY).await;
    let mark = locks.done("migrate", "v1").await.unwrap().unwrap();
    assert_eq!((mark.ago, mark.by.pid), (399 * DAY + SECOND, std::process::id()));
    advance(2 * DAY).await;
    assert_eq!(locks.done("migrate", "v1").await, Ok(None));
}

/// A body that is dropped, or panics, or whose process forgets it, has done nothing.
#[test]
#[limit]
fn only_a_body_that_returns_ok_has_done_it() {
    let locks = LockManager::in_memory();
    let once = || locks.lock("migrate").once_for("v1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dropped =
            tokio::time::timeout(Duration::from_millis(20), once().run(async |_| pending::<Result<()>>().await));
        assert!(dropped.await.is_err());
        let panicked = tokio::spawn(once().run(async |_| -> Result<()> { panic!("as expected in this test") }));
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(locks.done("migrate", "v1").await, Ok(None));
    });
    let failed = once().run_blocking(|_| Err::<(), _>(LockError::unavailable("on fire")));
    assert!(failed.unwrap_err().to_string().contains("on fire"));
    let token = once().run_blocking(|guard| Ok::<_, LockError>(guard.token())).unwrap();
    assert!(token.is_some());
    assert_eq!(once().run_blocking(|_| Ok::<_, LockError>(())), Ok(None));
    runtime.block_on(async {
        assert_eq!(once().run(async |_| Ok::<_, LockError>(())).await, Ok(None));
        assert!(locks.holder("migrate").await.unwrap().is_none());
    });
}
