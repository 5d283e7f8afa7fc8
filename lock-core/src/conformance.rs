//! What every store must do: feature `test-util`.
//!
//! [`contract`] asks a store directly, [`behaviour`] asks it through managers. Both take a function
//! that makes a fresh handle on *the same* locks, as another process would have, and panic with the
//! name of the rule that was broken. They take a few seconds of real time.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//! use lock_core::{MemoryStore, conformance};
//!
//! let store = Arc::new(MemoryStore::new());
//! conformance::contract(Arc::clone(&store)).await;
//! # }
//! ```

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::backend::{AcquireRequest, Attempt, Claim, Freed, LockBackend, Release, Renewal};
use crate::clock::Clock;
use crate::error::{LockError, LockErrorKind, LossReason};
use crate::fencing::FencingToken;
use crate::keeper::ReleaseOutcome;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::options::{Renew, Wait};
use crate::owner::{HolderInfo, OwnerId};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Names a key that no other run uses.
fn key(rule: &str) -> LockKey {
    let key = LockKey::new(format!("conformance:{rule}:{}", &OwnerId::random().to_hex()[..12]));
    key.unwrap_or_else(|error| panic!("{error}"))
}

async fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the suite measures stores that live in real time")]
    tokio::time::sleep(time).await;
}

fn ask(claim: &Claim) -> AcquireRequest {
    AcquireRequest::new(claim.clone(), HolderInfo::new("conformance", std::process::id(), "suite"))
}

async fn granted(store: &impl LockBackend, request: &AcquireRequest) -> FencingToken {
    match store.try_acquire(request).await {
        Ok(Attempt::Granted { token, .. }) => token,
        other => panic!("{:?} was not granted: {other:?}", request.claim.key),
    }
}

async fn refused(store: &impl LockBackend, claim: &Claim) -> bool {
    matches!(store.try_acquire(&ask(claim)).await, Ok(Attempt::Held { .. }))
}

/// Checks the contract of [`LockBackend`] on a store.
///
/// # Panics
///
/// If a rule is broken.
pub async fn contract(store: impl LockBackend) {
    let ttl = 5 * SECOND;

    let claim = Claim::new(key("idempotent acquire"), ttl);
    let token = granted(&store, &ask(&claim)).await;
    assert_eq!(granted(&store, &ask(&claim)).await, token, "a repeated acquire must give the same token");
    let rival = Claim::new(claim.key.clone(), ttl);
    assert!(refused(&store, &rival).await, "a second owner must be refused");
    assert_eq!(store.release(&Release::new(rival.clone())).await, Ok(Freed::NotHeld), "a stranger must not release");
    assert_eq!(store.renew(std::slice::from_ref(&rival)).await, [Ok(Renewal::Lost)], "a stranger must not renew");
    assert!(refused(&store, &rival).await, "a stranger's release or renewal must change nothing");

    let holder = store.holder(&claim.key).await.ok().flatten();
    let holder = holder.unwrap_or_else(|| panic!("the holder of a taken key must be known"));
    assert_eq!(holder.owner, Some(claim.owner), "holder: owner");
    assert_eq!(holder.token, Some(token), "holder: token");
    assert_eq!(holder.site(), "suite", "holder: site");
    let left = holder.ttl_left.unwrap_or(Duration::ZERO);
    assert!(left > 3 * SECOND && left <= ttl, "holder: time left {left:?} of {ttl:?}");

    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::Released), "the owner releases");
    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::NotHeld), "a release is final");
    assert_eq!(store.renew(std::slice::from_ref(&claim)).await, [Ok(Renewal::Lost)], "a renewal must not re-create");
    assert!(matches!(store.holder(&claim.key).await, Ok(None)), "a released key has no holder");
    let next = granted(&store, &ask(&rival)).await;
    assert!(next > token, "tokens must grow across a clean release: {token} then {next}");
    assert_eq!(store.withdraw(&rival).await, Ok(Freed::Released), "withdrawing frees what was granted");

    let claim = Claim::new(key("floor and block"), ttl);
    let mut request = ask(&claim);
    request.floor = FencingToken::new(next.get() + 1_000_000_000);
    request.block = 10;
    let token = granted(&store, &request).await;
    assert!(token > request.floor, "a token must exceed the floor its caller knows");
    let mut release = Release::new(claim.clone());
    release.last_token = Some(FencingToken::new(token.get() + 3));
    assert_eq!(store.release(&release).await, Ok(Freed::Released));
    let after = granted(&store, &ask(&Claim::new(claim.key.clone(), ttl))).await;
    assert!(after.get() > token.get() + 3, "a token of the used part of a block must not come again");

    let claim = Claim::new(key("min hold"), ttl);
    granted(&store, &ask(&claim)).await;
    let mut release = Release::new(claim.clone());
    release.keep_for = 300 * MS;
    assert_eq!(store.release(&release).await, Ok(Freed::Released));
    assert_eq!(store.release(&release).await, Ok(Freed::NotHeld), "a kept key belongs to nobody");
    assert!(refused(&store, &claim).await, "a kept key stays taken, also for its last owner");
    pause(400 * MS).await;
    granted(&store, &ask(&Claim::new(claim.key.clone(), ttl))).await;

    let claim = Claim::new(key("units"), 300 * MS);
    granted(&store, &ask(&claim)).await;
    let rival = Claim::new(claim.key.clone(), 24 * 3600 * SECOND);
    assert!(refused(&store, &rival).await, "a lease of 300 ms must last for a while");
    pause(400 * MS).await;
    granted(&store, &ask(&rival)).await;
    let left = store.holder(&rival.key).await.ok().flatten().and_then(|holder| holder.ttl_left);
    assert!(left > Some(23 * 3600 * SECOND), "a lease of a day must last a day, not {left:?}");
    assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::NotHeld), "an expired owner frees nothing");

    let mut short = rival.clone();
    short.ttl = SECOND;
    assert_eq!(store.renew(&[short]).await, [Ok(Renewal::Renewed)]);
    let left = store.holder(&rival.key).await.ok().flatten().and_then(|holder| holder.ttl_left);
    assert!(left > Some(23 * 3600 * SECOND), "a renewal must never shorten a lease, but left {left:?}");

    let claims: Vec<Claim> = (0..250).map(|_| Claim::new(key("batch"), ttl)).collect();
    for claim in claims.iter().step_by(2) {
        granted(&store, &ask(claim)).await;
    }
    let answers = store.renew(&claims).await;
    let expected = |index: usize| if index.is_multiple_of(2) { Renewal::Renewed } else { Renewal::Lost };
    assert_eq!(answers.len(), claims.len(), "one answer for each claim");
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, Ok(expected(index)), "answers must come in the order of the claims ({index})");
    }
}

/// Checks what users rely on, through managers that `make` connects to the same locks.
///
/// # Panics
///
/// If a rule is broken.
pub async fn behaviour<F: Future<Output = LockManager>>(make: impl Fn() -> F) {
    let (one, two, three) = (make().await, make().await, make().await);
    tokio::join!(
        exclusion(vec![one.clone(), two.clone(), three.clone()]),
        refusals(&one, &two),
        budget(&one, &two),
        waiting(&one, &two),
        renewal(&one, &two),
        fixed_lease(&one, &two),
        limits(&one, &two),
        endings(&one, &two),
        in_background(&one, &two),
        cancellation(&one, &two),
        fairness(vec![one.clone(), two.clone(), three.clone()]),
        handoff(&one),
        mixed_terms(&one, &two),
        patience(&one, &two),
        abandoned_places(&one, &two, &three),
    );
}

/// Runs many tasks on one key: never two inside, tokens in the order of the grants.
async fn exclusion(managers: Vec<LockManager>) {
    let key = key("exclusion");
    let inside = Arc::new(AtomicU32::new(0));
    let newest = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for manager in managers.iter().cycle().take(managers.len() * 4) {
        let (manager, key) = (manager.clone(), key.clone());
        let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = manager.lock(&key).with_wait(60 * SECOND).await;
                let guard = guard.unwrap_or_else(|error| panic!("exclusion: {error}"));
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                let before = newest.swap(guard.token().get(), Ordering::SeqCst);
                assert!(before < guard.token().get(), "token {} after {before}", guard.token());
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let released = guard.release().await;
                assert_eq!(released, Ok(ReleaseOutcome::Released), "exclusion: release");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}

async fn refusals(one: &LockManager, two: &LockManager) {
    let key = key("refusals");
    let guard = take(one, &key).await;
    for other in [one, two] {
        assert!(matches!(other.lock(&key).try_acquire().await, Ok(None)), "trying a taken lock is no error");
        let busy = other.lock(&key).without_waiting().await;
        let busy = busy.err().unwrap_or_else(|| panic!("refusals: a taken lock was granted"));
        assert_eq!(busy.kind(), LockErrorKind::Busy);
        let holder = busy.holder().unwrap_or_else(|| panic!("a refusal must name the holder: {busy}"));
        assert!(holder.info.as_ref().is_some_and(|info| info.pid == std::process::id()), "{busy}");
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let free = two.lock(&key).try_acquire().await;
    assert!(matches!(&free, Ok(Some(_))), "a released lock is free at once: {free:?}");
}

async fn budget(one: &LockManager, two: &LockManager) {
    let key = key("budget");
    let _guard = take(one, &key).await;
    for other in [one, two] {
        let clock = Clock::system();
        let started = clock.now();
        let late = other.lock(&key).with_wait(300 * MS).await;
        let took = clock.now().since(started);
        let late = late.err().unwrap_or_else(|| panic!("budget: a taken lock was granted"));
        assert_eq!(late.kind(), LockErrorKind::Timeout, "{late}");
        assert!(took >= 300 * MS && took < 2 * SECOND, "a wait of 300 ms took {took:?}");
        assert!(late.holder().is_some(), "a time-out must name the holder: {late}");
    }
}

async fn waiting(one: &LockManager, two: &LockManager) {
    let key = key("waiting");
    let guard = take(one, &key).await;
    let token = guard.token();
    let (local, remote) = tokio::join!(
        async {
            pause(200 * MS).await;
            guard.release().await
        },
        two.lock(&key).with_wait(Wait::Forever).acquire(),
    );
    assert_eq!(local, Ok(ReleaseOutcome::Released));
    let remote = remote.unwrap_or_else(|error| panic!("a waiter must be granted after the release: {error}"));
    assert!(remote.token() > token);
}

async fn renewal(one: &LockManager, two: &LockManager) {
    let key = key("renewal");
    let guard = one.lock(&key).with_ttl(SECOND).await.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..5 {
        pause(SECOND / 2).await;
        assert_eq!(guard.ensure_held(), Ok(()), "the watchdog must keep the lock");
        assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "a renewed lock must stay taken");
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

async fn fixed_lease(one: &LockManager, two: &LockManager) {
    let key = key("fixed lease");
    let fixed = || one.lock(&key).with_ttl(500 * MS).with_renew(Renew::Off);
    let old = fixed().await.unwrap_or_else(|error| panic!("{error}"));
    let new = two.lock(&key).with_wait(5 * SECOND).await;
    let new = new.unwrap_or_else(|error| panic!("an expired lock must be free: {error}"));
    assert_eq!(old.ensure_held().err().and_then(|error| error.loss_reason()), Some(LossReason::Expired));
    assert!(new.token() > old.token());
    assert_eq!(old.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)));
    pause(100 * MS).await;
    assert!(matches!(one.lock(&key).try_acquire().await, Ok(None)), "a late release must not free the next holder");
    assert_eq!(new.release().await, Ok(ReleaseOutcome::Released));

    let extended = fixed().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(extended.extend(5 * SECOND).await, Ok(()));
    pause(800 * MS).await;
    assert_eq!(extended.ensure_held(), Ok(()), "an extended lease must last");
    assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "an extended lock must stay taken");
}

async fn limits(one: &LockManager, two: &LockManager) {
    let body = key("max hold");
    let outcome: Result<(), LockError> =
        one.lock(&body).with_max_hold(300 * MS).run(async |_| std::future::pending().await).await;
    let lost = outcome.err().and_then(|error| error.loss_reason());
    assert_eq!(lost, Some(LossReason::MaxHold), "a body that hangs must be dropped");
    assert!(matches!(two.lock(&body).try_acquire().await, Ok(Some(_))), "and its lock be free");

    let short = key("min hold");
    let guard = one.lock(&short).with_min_hold(400 * MS).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    assert!(matches!(two.lock(&short).try_acquire().await, Ok(None)), "a min_hold must outlast the release");
    let later = two.lock(&short).with_wait(5 * SECOND).await;
    assert!(later.is_ok(), "and end: {later:?}");
}

async fn in_background(one: &LockManager, two: &LockManager) {
    let key = key("in background");
    for round in 0..20 {
        let guard = one.lock(&key).with_wait(5 * SECOND).release_in_background().await;
        let guard = guard.unwrap_or_else(|error| panic!("in background, round {round}: {error}"));
        let token = guard.token();
        // A store that answers at once has released.
        let outcome = guard.release().await;
        assert!(matches!(outcome, Ok(ReleaseOutcome::InBackground | ReleaseOutcome::Released)), "{outcome:?}");
        let other = if round % 2 == 0 { one } else { two };
        let next = other.lock(&key).with_wait(2 * SECOND).await;
        let next = next.unwrap_or_else(|error| panic!("a release in the background must arrive: {error}"));
        assert!(next.token() > token, "round {round}: token {} after {token}", next.token());
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    }
    let guard = one.lock(&key).with_wait(5 * SECOND).release_in_background().await;
    let guard = guard.unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "it is held until it is released");
    assert_eq!(guard.ensure_held(), Ok(()));
}

async fn endings(one: &LockManager, two: &LockManager) {
    let key = key("endings");
    drop(take(one, &key).await);
    let next = two.lock(&key).with_wait(2 * SECOND).await;
    drop(next.unwrap_or_else(|error| panic!("a dropped guard must free its lock: {error}")));

    let manager = one.clone();
    let name = key.clone();
    let panicked = JoinSet::from_iter([async move {
        let outcome: Result<(), LockError> =
            manager.lock(name).run(async |_| panic!("a body panics, as expected in this test")).await;
        outcome
    }])
    .join_next()
    .await;
    assert!(matches!(panicked, Some(Err(_))), "a panic must pass through");
    let next = two.lock(&key).with_wait(2 * SECOND).await;
    assert!(next.is_ok(), "a body that panics must free its lock: {next:?}");
}

/// Drops acquires after each of their first polls, and checks that no key stays taken.
async fn cancellation(one: &LockManager, two: &LockManager) {
    for polls in 0..40 {
        let key = key("cancellation");
        {
            let mut acquire = pin!(one.lock(&key).with_wait(SECOND).acquire());
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if let Poll::Ready(guard) = acquire.as_mut().poll(&mut cx) {
                    drop(guard);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let next = two.lock(&key).with_wait(5 * SECOND).await;
        let next = next.unwrap_or_else(|error| panic!("an acquire cut after {polls} polls left its key: {error}"));
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    }
}

async fn take(manager: &LockManager, key: &LockKey) -> crate::guard::LockGuard {
    manager.lock(key).await.unwrap_or_else(|error| panic!("a free lock must be granted: {error}"))
}

/// Lets processes contend for one key: each must get its share, in the order of its own callers.
async fn fairness(managers: Vec<LockManager>) {
    let key = key("fairness");
    let mut tasks = JoinSet::new();
    let rounds = 30;
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for (process, manager) in managers.iter().enumerate() {
        let (manager, key, sender) = (manager.clone(), key.clone(), sender.clone());
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = manager.lock(&key).with_wait(60 * SECOND).await;
                let guard = guard.unwrap_or_else(|error| panic!("fairness: {error}"));
                let _ = sender.send(process);
                pause(2 * MS).await;
                let _ = guard.release().await;
            }
        });
    }
    drop(sender);
    while let Some(done) = tasks.join_next().await {
        done.unwrap_or_else(|error| panic!("{error}"));
    }
    let mut turns = Vec::new();
    while let Ok(process) = order.try_recv() {
        turns.push(process);
    }
    // While all of them still want it, nobody may be passed over for long.
    let processes = managers.len();
    let contended = &turns[..turns.len() / 2];
    for process in 0..processes {
        let seats: Vec<usize> = contended.iter().enumerate().filter(|(_, p)| **p == process).map(|(i, _)| i).collect();
        let longest = seats.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(usize::MAX);
        assert!(longest <= 4 * processes, "process {process} was passed over for {longest} turns: {turns:?}");
    }
}

/// Passes the lock on within one process: every holder has a token of its own, in order.
async fn handoff(manager: &LockManager) {
    let key = key("handoff");
    let newest = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (manager, key, newest) = (manager.clone(), key.clone(), Arc::clone(&newest));
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = manager.lock(&key).with_wait(60 * SECOND).await;
                let guard = guard.unwrap_or_else(|error| panic!("handoff: {error}"));
                let before = newest.swap(guard.token().get(), Ordering::SeqCst);
                assert!(before < guard.token().get(), "handoff: token {} after {before}", guard.token());
                assert_eq!(guard.ensure_held(), Ok(()), "a lock that was handed on is held");
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(matches!(manager.holder(&key).await, Ok(None)), "the last of them frees it");
}

/// Lets callers with different leases follow each other: each must get the lease it asked for.
async fn mixed_terms(one: &LockManager, two: &LockManager) {
    let key = key("mixed terms");
    let first = take(one, &key).await;
    let long = one.lock(&key).with_ttl(60 * SECOND).with_wait(10 * SECOND).acquire();
    let fixed = one.lock(&key).with_ttl(20 * SECOND).with_renew(Renew::Off).with_wait(10 * SECOND).acquire();
    let remote = two.lock(&key).with_ttl(10 * SECOND).with_wait(10 * SECOND).acquire();
    let hold = |name: &'static str, acquire: std::pin::Pin<Box<dyn Future<Output = _> + Send>>, ttl: Duration| async move {
        let guard: crate::guard::LockGuard = match acquire.await {
            Ok(guard) => guard,
            Err::<_, LockError>(error) => panic!("mixed terms: {name}: {error}"),
        };
        // A grant through the queue starts short and is raised at once, or when a third of it is over.
        let mut left = guard.remaining();
        for _ in 0..40 {
            if left > ttl / 2 {
                break;
            }
            pause(50 * MS).await;
            left = guard.remaining();
        }
        assert!(left > ttl / 2 && left <= ttl, "mixed terms: {name}: {left:?} of {ttl:?}");
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    };
    tokio::join!(
        async {
            pause(100 * MS).await;
            let _ = first.release().await;
        },
        hold("long", Box::pin(long), 60 * SECOND),
        hold("fixed", Box::pin(fixed), 20 * SECOND),
        hold("remote", Box::pin(remote), 10 * SECOND),
    );
}

/// Lets waiters with different budgets queue: each gives up in its own time, and costs nobody else.
async fn patience(one: &LockManager, two: &LockManager) {
    let key = key("patience");
    let guard = take(one, &key).await;
    let give_up = |manager: &LockManager, wait: Duration| {
        let acquire = manager.lock(&key).with_wait(wait).acquire();
        async move {
            let clock = Clock::system();
            let started = clock.now();
            let late = acquire.await;
            let took = clock.now().since(started);
            assert!(late.is_err(), "patience: a taken lock was granted");
            assert!(took >= wait && took < wait + 2 * SECOND, "patience: a wait of {wait:?} took {took:?}");
        }
    };
    let ((), (), (), served, ()) = tokio::join!(
        give_up(two, 300 * MS),
        give_up(one, 200 * MS),
        give_up(two, 500 * MS),
        two.lock(&key).with_wait(20 * SECOND).acquire(),
        async {
            pause(800 * MS).await;
            let _ = guard.release().await;
        },
    );
    let served = served.unwrap_or_else(|error| panic!("a patient waiter must be served: {error}"));
    assert_eq!(served.release().await, Ok(ReleaseOutcome::Released));
    assert!(matches!(one.lock(&key).try_acquire().await, Ok(Some(_))), "and the lock be free afterwards");
}

/// Drops waiters of the queue while the lock passes on: those behind them must still be served.
async fn abandoned_places(one: &LockManager, two: &LockManager, three: &LockManager) {
    for round in 0..20 {
        let key = key("abandoned places");
        let guard = take(one, &key).await;
        let mut leaving = Box::pin(two.lock(&key).with_wait(20 * SECOND).acquire());
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..4 {
            assert!(leaving.as_mut().poll(&mut cx).is_pending());
            pause(5 * MS).await;
        }
        let staying = three.lock(&key).with_wait(20 * SECOND).acquire();
        let (staying, ()) = tokio::join!(staying, async {
            pause(20 * MS).await;
            let release = guard.release();
            if round % 2 == 0 {
                drop(leaving);
                let _ = release.await;
            } else {
                let _ = release.await;
                drop(leaving);
            }
        });
        let staying = staying.unwrap_or_else(|error| panic!("a waiter behind one that left: {error}"));
        assert_eq!(staying.release().await, Ok(ReleaseOutcome::Released));
    }
}
