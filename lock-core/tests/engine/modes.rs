//! Readers, writers and permits in one process and between several, over the memory store and on virtual time.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::{
    GrantPath, LockErrorKind, LockGuard, LockKey, LockManager, LossReason, MemoryStore, Mode, ReleaseOutcome, Renew,
};
use lock_testing::{EventLog, limit};
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A manager that listens already: without a listener, a claim would poll.
async fn manager(store: &MemoryStore) -> (LockManager, EventLog) {
    let events = EventLog::default();
    let builder = LockManager::builder(store.clone()).observer(events.clone());
    let locks = builder.with_wait(3600 * SECOND).drive_on_current_runtime().build().unwrap();
    sleep(MS).await;
    (locks, events)
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn readers(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(locks.read("k").acquire())).collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    guards
}

#[tokio::test(start_paused = true)]
#[limit]
async fn readers_of_one_process_share_one_claim() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store).await;
    let guards = readers(&locks, 50).await;
    assert_eq!(locks.holders("k").await.unwrap().len(), 1, "the store knows of one");
    let shared = events.paths().iter().filter(|path| **path == GrantPath::Shared).count();
    assert_eq!(shared, 49);
    assert!(guards.windows(2).all(|pair| pair[0].token() == pair[1].token()));
    sleep(60 * SECOND).await;
    assert!(guards.iter().all(|guard| guard.ensure_held().is_ok()), "the watchdog keeps it for all of them");
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    }
    assert!(store.is_empty(), "the last one frees it");
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_batch_of_readers_does_not_split_and_a_writer_is_not_passed() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store).await;
    let writer = locks.write("k").await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    // Two readers of each of two processes, two writers, and such readers again.
    for (writes, callers) in [(false, 2), (false, 2), (true, 1), (true, 1), (false, 2), (false, 2)] {
        let (locks, _) = manager(&store).await;
        for _ in 0..callers {
            let (request, order) = (if writes { locks.write("k") } else { locks.read("k") }, Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                order.lock().unwrap().push((guard.mode().as_str(), guard.token()));
                sleep(10 * MS).await;
                guard.release().await.unwrap();
            }));
        }
        sleep(MS).await;
    }
    writer.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let modes: Vec<_> = order.iter().map(|(mode, _)| *mode).collect();
    assert_eq!(modes, ["read", "read", "read", "read", "write", "write", "read", "read", "read", "read"]);
    let tokens: Vec<_> = order.iter().map(|(_, token)| *token).collect();
    assert!(tokens[..4].windows(2).chain(tokens[6..].windows(2)).all(|pair| pair[0] == pair[1]), "each batch is one");
    assert!(tokens.is_sorted());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn readers_that_never_stop_let_a_writer_in() {
    let store = MemoryStore::new();
    let managers = [manager(&store).await.0, manager(&store).await.0, manager(&store).await.0];
    let reads = Arc::new(AtomicUsize::new(0));
    for locks in &managers {
        for reader in 0..6_u32 {
            let (locks, reads) = (locks.clone(), Arc::clone(&reads));
            tokio::spawn(async move {
                sleep(reader * MS).await;
                loop {
                    let guard = locks.read("k").acquire().await.unwrap();
                    sleep(10 * MS).await;
                    reads.fetch_add(1, Ordering::SeqCst);
                    drop(guard);
                }
            });
        }
    }
    sleep(200 * MS).await;
    for locks in &managers {
        for _ in 0..5 {
            let asked = Instant::now();
            let writer = locks.write("k").acquire().await.unwrap();
            let waited = asked.elapsed();
            assert!(waited < 30 * MS, "a writer waits for those who read when it comes: {waited:?}");
            let before = reads.load(Ordering::SeqCst);
            sleep(20 * MS).await;
            assert_eq!(reads.load(Ordering::SeqCst), before, "nobody reads meanwhile");
            writer.release().await.unwrap();
            sleep(50 * MS).await;
        }
    }
}

/// In grants, not in time: before each writer at most one phase of readers, and one more before the first.
#[tokio::test(start_paused = true)]
#[limit]
async fn readers_come_in_once_between_two_writers_that_wait() {
    let store = MemoryStore::new();
    let entered = Arc::new(std::sync::Mutex::new(Vec::new()));
    for process in 0..4_u32 {
        let (locks, _) = manager(&store).await;
        for task in 0..8_u32 {
            let (locks, entered, writes) = (locks.clone(), Arc::clone(&entered), task == 0);
            tokio::spawn(async move {
                for round in 0..40_u32 {
                    let asked = entered.lock().unwrap().len();
                    let request = if writes { locks.write("k") } else { locks.read("k") };
                    let guard = request.acquire().await.unwrap();
                    entered.lock().unwrap().push((asked, writes, guard.token()));
                    sleep((1 + (process * 7 + task * 3 + round) % 5) * MS).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    sleep(60 * SECOND).await;
    let entered = entered.lock().unwrap();
    assert_eq!(entered.len(), 4 * 8 * 40);
    for (place, (asked, _, _)) in entered.iter().enumerate().filter(|(_, (_, writes, _))| *writes) {
        let between = &entered[*asked..place];
        let writers = between.iter().filter(|(_, writes, _)| *writes).count();
        let phases: std::collections::BTreeSet<_> =
            between.iter().filter(|(_, writes, _)| !writes).map(|(_, _, token)| token).collect();
        assert!(
            phases.len() <= writers + 1,
            "{} phases of readers beside {writers} writers: {between:?}",
            phases.len()
        );
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_lease_is_shared_only_while_the_store_has_said_that_nobody_waits() {
    let store = MemoryStore::new();
    let ((locks, events), (other, _)) = (manager(&store).await, manager(&store).await);
    let first = locks.read("k").await.unwrap();
    let joined = locks.read("k").await.unwrap();
    let mut writing = Box::pin(other.write("k").acquire());
    assert!(poll(writing.as_mut()).is_pending());
    sleep(MS).await;
    let mut late = Box::pin(locks.read("k").acquire());
    assert!(poll(late.as_mut()).is_pending(), "it queues behind the writer");
    sleep(MS).await;
    drop(writing);
    sleep(MS).await;
    let late = late.await.unwrap();
    assert_eq!(late.token(), first.token(), "the writer gave up, so it is let in");
    sleep(2 * SECOND).await;
    let fresh = locks.read("k").await.unwrap();
    use GrantPath::{Granted, Shared, Uncontended};
    assert_eq!(events.paths(), [Uncontended, Shared, Granted, Uncontended], "after a second the store is asked again");
    drop((joined, fresh, late, first));
    sleep(MS).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn readers_with_limits_of_their_own_have_claims_of_their_own() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store).await;
    let common = locks.read("k").await.unwrap();
    let limited = locks.read("k").with_max_hold(SECOND).await.unwrap();
    let fixed = locks.read("k").with_ttl(2 * SECOND).with_renew(Renew::Off).await.unwrap();
    let longer = locks.read("k").with_ttl(90 * SECOND).await.unwrap();
    assert_eq!(locks.holders("k").await.unwrap().len(), 4);
    assert_eq!(limited.lost().await, LossReason::MaxHold);
    assert_eq!(fixed.lost().await, LossReason::Expired);
    assert!(common.ensure_held().is_ok() && longer.ensure_held().is_ok(), "each for itself");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_reader_that_nobody_polls_keeps_nobody_out() {
    let store = MemoryStore::new();
    let ((locks, _), (other, _)) = (manager(&store).await, manager(&store).await);
    let writer = locks.write("k").await.unwrap();
    let mut first = Box::pin(locks.read("k").acquire());
    let mut asleep = Box::pin(locks.read("k").acquire());
    assert!(poll(first.as_mut()).is_pending() && poll(asleep.as_mut()).is_pending());
    sleep(MS).await;
    let (first, _) = tokio::join!(first, writer.release());
    first.unwrap().release().await.unwrap();
    let asked = Instant::now();
    other.write("k").await.unwrap().release().await.unwrap();
    assert!(asked.elapsed() < 100 * MS, "{:?}", asked.elapsed());
    asleep.await.unwrap().release().await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn futures_dropped_at_any_moment_leave_no_reader_behind() {
    for polls in 0..12 {
        for shared in [false, true] {
            let store = MemoryStore::new();
            let (locks, events) = manager(&store).await;
            let beside = if shared { Some(locks.read("k").await.unwrap()) } else { None };
            {
                let mut futures: Vec<_> = (0..4).map(|_| Box::pin(locks.read("k").acquire())).collect();
                for _ in 0..polls {
                    // A granted claim is dropped with the rest.
                    futures.retain_mut(|future| poll(future.as_mut()).is_pending());
                    tokio::task::yield_now().await;
                }
            }
            drop(beside);
            sleep(SECOND).await;
            assert!(store.is_empty(), "cut after {polls} polls, shared: {shared}");
            events.assert_complete();
        }
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn all_who_share_a_lease_learn_that_it_is_lost() {
    let store = MemoryStore::new();
    let (locks, events) = manager(&store).await;
    let guards = readers(&locks, 5).await;
    store.steal(&LockKey::new("k").unwrap());
    for guard in &guards {
        assert_eq!(guard.lost().await, LossReason::Stolen);
    }
    let fresh = locks.read("k").await.unwrap();
    for guard in guards {
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Stolen)));
    }
    assert_eq!(fresh.ensure_held(), Ok(()));
    drop(fresh);
    sleep(SECOND).await;
    assert_eq!(events.count("Lost"), 5);
    events.assert_complete();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn permits_pass_on_in_one_process_and_between_several() {
    let store = MemoryStore::new();
    let managers = [manager(&store).await, manager(&store).await];
    let (inside, most, mut tasks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Vec::new());
    let began = Instant::now();
    for task in 0..20 {
        let (locks, inside, most) = (managers[task % 2].0.clone(), Arc::clone(&inside), Arc::clone(&most));
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let permit = locks.semaphore("k", 4).acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(2 * MS).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 4);
    let took = began.elapsed();
    assert!(took < 150 * MS, "200 holds of 2 ms by 4 take 100 ms: {took:?}");
    assert!(managers.iter().any(|(_, events)| events.paths().contains(&GrantPath::Handoff)));
    sleep(SECOND).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_heavy_request_is_not_passed_by_light_ones() {
    let store = MemoryStore::new();
    let ((one, _), (two, _)) = (manager(&store).await, manager(&store).await);
    let light = one.semaphore("k", 4).await.unwrap();
    let mut heavy = pin!(two.semaphore("k", 4).with_weight(4).acquire());
    assert!(poll(heavy.as_mut()).is_pending());
    sleep(MS).await;
    assert!(one.semaphore("k", 4).try_acquire().await.unwrap().is_none());
    light.release().await.unwrap();
    assert_eq!(heavy.await.unwrap().mode(), Mode::permits(4, 4).unwrap());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_downgraded_writer_lets_the_writers_of_its_process_wait_at_the_store() {
    let store = MemoryStore::new();
    let ((locks, _), (other, _)) = (manager(&store).await, manager(&store).await);
    let guard = locks.write("k").await.unwrap();
    let mut writing = pin!(locks.write("k").acquire());
    assert!(poll(writing.as_mut()).is_pending());
    let mut reading = pin!(other.read("k").acquire());
    assert!(poll(reading.as_mut()).is_pending());
    sleep(MS).await;
    guard.downgrade().await.unwrap();
    assert_eq!(guard.downgrade().await, Ok(()), "it is one already");
    let reader = reading.await.unwrap();
    assert_eq!(reader.token(), guard.token());
    sleep(60 * SECOND).await;
    assert!(guard.ensure_held().is_ok(), "it is renewed as what it has become");
    assert!(poll(writing.as_mut()).is_pending());
    guard.release().await.unwrap();
    reader.release().await.unwrap();
    writing.await.unwrap().release().await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_downgrade_without_an_answer_is_repeated() {
    let store = MemoryStore::new();
    let (locks, _) = manager(&store).await;
    let guard = locks.write("k").await.unwrap();
    store.fail_next(3);
    guard.downgrade().await.unwrap();
    assert!(locks.read("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
#[limit]
async fn what_cannot_be_is_a_sentence() {
    let locks = LockManager::in_memory();
    let refused = async |request: lock_core::LockRequest, said: &str| {
        let error = request.acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.key().map(LockKey::as_str), Some("k"), "{error}");
    };
    refused(locks.semaphore("k", 0), "at least 1").await;
    refused(locks.semaphore("k", 0).with_weight(1), "at least 1").await;
    refused(locks.semaphore("k", 2_000_000_000), "over the limit").await;
    refused(locks.semaphore("k", 4).with_weight(5), "never fits into 4 permits").await;
    refused(locks.semaphore("k", 4).with_weight(0), "at least 1").await;
    refused(locks.read("k").with_weight(2), "ask for a semaphore").await;
    refused(locks.write("k").with_weight(2), "ask for a semaphore").await;
    let permit = locks.semaphore("k", 4).await.unwrap();
    // Numbers that differ: what is asked for is named, and what tells who has the rest.
    let error = locks.semaphore("k", 1).with_wait(SECOND / 100).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let text = error.to_string();
    assert!(text.contains("getting 1 of 1 permits, others taken by") && text.contains("lockctl show"), "{text}");
    let error = permit.downgrade().await.unwrap_err();
    assert!(error.to_string().contains("release them and ask for fewer"), "{error}");

    let upgrade = locks.read("doc").run(async |_| locks.write("doc").reentrant().acquire().await).await.unwrap_err();
    assert_eq!(upgrade.kind(), LockErrorKind::WouldDeadlock);
    assert!(upgrade.to_string().contains("take the stronger lock first"), "{upgrade}");
    let more = locks.semaphore("doc", 4).run(async |_| locks.semaphore("doc", 4).acquire().await).await.unwrap_err();
    assert_eq!(more.kind(), LockErrorKind::WouldDeadlock);
    let shared = locks.write("doc").run(async |_| locks.read("doc").reentrant().acquire().await).await.unwrap();
    assert_eq!(shared.mode(), Mode::Exclusive);
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_permit_that_is_passed_on_has_arrived_when_the_next_caller_has_it() {
    let (locks, _) = manager(&MemoryStore::new()).await;
    let first = locks.semaphore("k", 1).await.unwrap();
    let mut second = pin!(locks.semaphore("k", 1).acquire());
    assert!(poll(second.as_mut()).is_pending());
    let mut release = pin!(first.release());
    assert!(poll(release.as_mut()).is_pending(), "nobody has taken it");
    let Poll::Ready(Ok(second)) = poll(second.as_mut()) else { panic!("it was passed on") };
    assert!(matches!(poll(release.as_mut()), Poll::Ready(Ok(ReleaseOutcome::Released))));
    second.release().await.unwrap();
}
