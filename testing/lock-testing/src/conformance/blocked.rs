//! Rules for the notes that holders publish while they wait for another lock, and for deadlocks found from them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use crate::conformance::tools::{MS, SECOND, key, now, pause};
use lock_core::LockManager;
use lock_store::contract::backend::{Blocked, BlockedNotes, LockBackend};
use lock_store::types::error::{LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::options::Wait;
use lock_store::types::owner::OwnerId;

/// A store that keeps the notes of holders returns them, for three seconds.
pub async fn blocked_holders(store: impl LockBackend) {
    let Some(notes) = store.blocking() else { return };
    let (held, other) = (key("blocked"), key("blocked elsewhere"));
    let found = async |key: &LockKey| notes.blocked(key).await.unwrap_or_else(|error| panic!("blocked: {error}"));
    let publish = async |blocked: Option<&Blocked>| {
        notes.set_blocked(&held, blocked).await.unwrap_or_else(|error| panic!("set_blocked: {error}"));
    };
    let wants = |name: &str| LockKey::new(name).unwrap_or_else(|error| panic!("{error}"));
    let odd = wants("a|b {c} \u{e9} wanted");
    let first = Blocked::new(OwnerId::random(), FencingToken::new(1 << 50), 1, odd);
    assert_eq!(found(&held).await, None, "nobody has published anything");
    publish(None).await;
    let since = now();
    publish(Some(&first)).await;
    match found(&held).await {
        Some(kept) => assert_eq!(kept, first, "what was published comes back as it was"),
        // It may have expired while the machine stalled.
        None => {
            return assert!(now().since(since) >= Blocked::KEPT, "a store with `blocking()` keeps what is published");
        }
    }
    assert_eq!(found(&other).await, None, "it belongs to one key");
    let second = Blocked::new(OwnerId::random(), FencingToken::new(7), 2, other.clone());
    publish(Some(&second)).await;
    let seen = found(&held).await;
    assert!(seen.is_none_or(|seen| seen == second), "the last word counts");
    publish(None).await;
    assert_eq!(found(&held).await, None, "what is taken back is gone");
    publish(Some(&first)).await;
    pause(Blocked::KEPT + SECOND).await;
    assert_eq!(found(&held).await, None, "it ends by itself: its holder may have died");
    assert!(matches!(store.holder(&held).await, Ok(None)), "it holds nothing");
}

/// If two managers wait for each other, exactly one gives way, provided the store keeps the notes of holders.
pub async fn deadlocks([one, two, third]: [LockManager; 3]) {
    let (a, b) = (key("deadlock a"), key("deadlock b"));
    if !keeps(&third, &a).await {
        return;
    }
    let mut crossing = [pin!(cross(&one, &a, &b)) as Crossing<'_>, pin!(cross(&two, &b, &a))];
    let mut ends: [Option<Result<()>>; 2] = [None, None];
    poll_fn(|cx| {
        for (crossing, end) in crossing.iter_mut().zip(&mut ends).filter(|(_, end)| end.is_none()) {
            if let Poll::Ready(ended) = crossing.as_mut().poll(cx) {
                *end = Some(ended);
            }
        }
        if ends.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let gave_way: Vec<_> = ends.iter().flatten().filter_map(|end| end.as_ref().err()).collect();
    let kinds: Vec<LockErrorKind> = gave_way.iter().map(|error| error.kind()).collect();
    match kinds.as_slice() {
        [LockErrorKind::WouldDeadlock] => {
            let text = gave_way[0].to_string();
            assert!(text.contains(a.as_str()) && text.contains(b.as_str()), "it names the cycle: {text}");
        }
        other => panic!("exactly one gives way: {other:?}"),
    }
    for key in [&a, &b] {
        let guard = third.lock(key.clone()).with_wait(10 * SECOND).await;
        assert!(guard.is_ok_and(|guard| guard.ensure_held().is_ok()), "nothing is left of the cycle");
    }
}

/// Returns whether the store keeps the notes of holders.
async fn keeps(locks: &LockManager, key: &LockKey) -> bool {
    let backend = &locks.parts().backend;
    let blocked = Blocked::new(OwnerId::random(), FencingToken::new(1), 1, key.clone());
    let published = Arc::clone(backend).set_blocked(key.clone(), Some(blocked)).await;
    let kept = Arc::clone(backend).blocked(key.clone()).await;
    let ended = Arc::clone(backend).set_blocked(key.clone(), None).await;
    assert!(published.is_ok() && kept.is_ok() && ended.is_ok(), "{published:?} {kept:?} {ended:?}");
    kept.is_ok_and(|kept| kept.is_some())
}

type Crossing<'a> = Pin<&'a mut dyn Future<Output = Result<()>>>;

/// Takes one lock, and another under it after a moment.
async fn cross(locks: &LockManager, first: &LockKey, second: &LockKey) -> Result<()> {
    let patient = |key: &LockKey| locks.lock(key.clone()).with_ttl(60 * SECOND).with_wait(Wait::AtMost(40 * SECOND));
    let inner = patient(second);
    patient(first)
        .run(async |_| {
            pause(200 * MS).await;
            inner.run(async |_| Ok(())).await
        })
        .await
}
