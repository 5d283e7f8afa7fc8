//! The rules on which a holder and the other callers rely.

use tokio::task::JoinSet;

use crate::conformance::tools::{MS, PATIENCE, SECOND, give_back, key, lasts, now, pause, soon, take};
use lock_core::{LockManager, ReleaseOutcome};
use lock_store::types::error::{LockError, LockErrorKind, LossReason};
use lock_store::types::options::Renew;

/// Refuses a lock that is taken. A try returns `None`. An acquire without waiting returns `Busy` and names the holder.
pub async fn refusals([one, two, _]: [LockManager; 3]) {
    let key = key("refusals");
    let guard = take(&one, &key).await;
    for other in [&one, &two] {
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

/// Keeps a lock longer than its ttl, as long as the watchdog renews it.
pub async fn renewal([one, two, _]: [LockManager; 3]) {
    let key = key("renewal");
    let guard = one.lock(&key).with_ttl(3 * SECOND).await.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..5 {
        pause(SECOND).await;
        assert_eq!(guard.ensure_held(), Ok(()), "the watchdog must keep the lock");
        assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "a renewed lock must stay taken");
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

/// Ends a lease that is not renewed at its ttl, for its holder and for other callers. Extends a lease on request.
pub async fn fixed_lease([one, two, _]: [LockManager; 3]) {
    let key = key("fixed lease");
    let fixed = || one.lock(&key).with_ttl(3 * SECOND).with_renew(Renew::Off);
    let old = fixed().await.unwrap_or_else(|error| panic!("{error}"));
    let new = two.lock(&key).with_wait(PATIENCE).await;
    let new = new.unwrap_or_else(|error| panic!("an expired lock must be free: {error}"));
    assert_eq!(old.ensure_held().err().and_then(|error| error.loss_reason()), Some(LossReason::Expired));
    assert!(new.token() > old.token());
    assert_eq!(old.release().await, Ok(ReleaseOutcome::AlreadyLost(LossReason::Expired)));
    pause(100 * MS).await;
    assert!(matches!(one.lock(&key).try_acquire().await, Ok(None)), "a late release must not free the next holder");
    give_back(new).await;

    let extended = fixed().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(extended.extend(60 * SECOND).await, Ok(()));
    pause(3_500 * MS).await;
    assert_eq!(extended.ensure_held(), Ok(()), "an extended lease must last");
    assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "an extended lock must stay taken");
}

/// Ends a lock at its `max_hold` even if its body hangs, and keeps it until its `min_hold`.
pub async fn limits([one, two, _]: [LockManager; 3]) {
    let body = key("max hold");
    let hanging = one.lock(&body).with_max_hold(300 * MS).run(async |_| std::future::pending().await);
    let outcome: Result<(), LockError> = soon("a body that hangs is dropped at its max_hold", hanging).await;
    let lost = outcome.err().and_then(|error| error.loss_reason());
    assert_eq!(lost, Some(LossReason::MaxHold), "a body that hangs must be dropped");
    drop(take(&two, &body).await);

    let (short, since) = (key("min hold"), now());
    let guard = one.lock(&short).with_min_hold(SECOND).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let kept = matches!(two.lock(&short).try_acquire().await, Ok(None));
    lasts(kept, since, SECOND, "a min_hold must outlast the release");
    let later = two.lock(&short).with_wait(PATIENCE).await;
    assert!(later.is_ok(), "and end: {later:?}");
}

/// Frees the lock of a guard that is dropped, and of a body that panics.
pub async fn endings([one, two, _]: [LockManager; 3]) {
    let key = key("endings");
    drop(take(&one, &key).await);
    let next = two.lock(&key).with_wait(PATIENCE).await;
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
    let next = two.lock(&key).with_wait(PATIENCE).await;
    assert!(next.is_ok(), "a body that panics must free its lock: {next:?}");
}

/// Releases without waiting for the answer. The lock is still free soon, even for its last holder.
pub async fn in_background([one, two, _]: [LockManager; 3]) {
    let key = key("in background");
    let acquire = || one.lock(&key).with_wait(PATIENCE).release_in_background();
    for other in [&one, &two].into_iter().cycle().take(20) {
        let guard = acquire().await.unwrap_or_else(|error| panic!("{error}"));
        let token = guard.token();
        let outcome = guard.release().await;
        // A store that answers at once has released.
        assert!(matches!(outcome, Ok(ReleaseOutcome::InBackground | ReleaseOutcome::Released)), "{outcome:?}");
        let next = take(other, &key).await;
        assert!(next.token() > token, "token {} after {token}", next.token());
        give_back(next).await;
    }
    let guard = acquire().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(two.lock(&key).try_acquire().await, Ok(None)), "it is held until it is released");
    assert_eq!(guard.ensure_held(), Ok(()));
}
