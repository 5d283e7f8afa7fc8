//! Lists of members: which are refused, and what they say.

use std::time::Duration;

use lock_core::{AnyBackend, LockErrorKind, LockManager, MemoryStore, Quorum};
use lock_store::QuorumMember;
use lock_testing::limit;

use crate::quorum::network::{process, stores};

fn quorum(stores: &[MemoryStore], names: &str) -> Quorum {
    let member = |name: char| {
        let place = usize::try_from(u32::from(name) - u32::from('a')).unwrap();
        AnyBackend::new(stores[place].clone()).named(name.to_string())
    };
    Quorum::of(names.chars().map(member)).unwrap()
}

fn manager(quorum: Quorum) -> LockManager {
    LockManager::builder(quorum).drive_on_current_runtime().build().unwrap()
}

#[test]
#[limit]
fn a_quorum_that_cannot_work_says_what_to_write() {
    let stores = stores(5);
    let named = |names: &[&str]| {
        Quorum::of(names.iter().zip(&stores).map(|(name, store)| AnyBackend::new(store.clone()).named(*name)))
    };
    for (names, says) in [
        (&["a", "b"][..], "name at least three independent stores"),
        (&["a", "b", "a"], "two members of the quorum are named a"),
        (&["a", "b", "c,d"], "use AnyBackend::named"),
    ] {
        let error = named(names).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
    let unnamed = Quorum::of(stores.iter().cloned().map(AnyBackend::new)).unwrap_err();
    assert!(unnamed.to_string().contains("named memory"), "{unnamed}");
    for majority in [0, 2, 6] {
        let error = quorum(&stores, "abcde").with_majority(majority).unwrap_err();
        assert!(error.to_string().contains("use 3 to 5"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_ttl_beyond_the_bound_says_what_to_write() {
    let process = process(&stores(3));
    let error = process.locks.lock("k").with_ttl(Duration::from_secs(90)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("max_ttl=90s"), "{error}");
    let guard = process.locks.lock("k").await.unwrap();
    let error = guard.extend(Duration::from_secs(90)).await.unwrap_err();
    assert!(error.to_string().contains("max_ttl=90s"), "{error}");
    guard.ensure_held().unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn members_change_one_at_a_time() {
    let stores = stores(5);
    let before = manager(quorum(&stores, "abc"));
    before.lock("k").await.unwrap().release().await.unwrap();
    let replaced = manager(quorum(&stores, "abd"));
    let error = replaced.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    for said in ["2 of the members a, b, c", "2 of a, b, d", "one member at a time"] {
        assert!(error.to_string().contains(said), "{error}");
    }
    assert_eq!(replaced.ping().await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    // The list in use is not disturbed by the one that was refused.
    before.lock("k").await.unwrap().release().await.unwrap();
    let added = manager(quorum(&stores, "abcd"));
    let guard = added.lock("k").await.unwrap();
    assert!(before.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    // The old list is forgotten once nobody has used it for a while.
    drop(before);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let removed = manager(quorum(&stores, "abd"));
    removed.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[limit]
async fn who_is_refused_leaves_its_list_nowhere() {
    let stores = stores(5);
    let before = manager(quorum(&stores, "abc"));
    before.lock("k").await.unwrap().release().await.unwrap();
    let wrong = manager(quorum(&stores, "ade"));
    let error = wrong.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "the first lock of a process is refused already: {error}");
    assert_eq!(wrong.ping().await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for store in &stores[3..] {
        assert_eq!(store.remember(None, Duration::ZERO).await.unwrap(), [], "a list that was refused");
    }
    // So it stands in nobody's way.
    drop(wrong);
    manager(quorum(&stores, "cde")).ping().await.unwrap_err();
    manager(quorum(&stores, "abcd")).lock("k").await.unwrap().release().await.unwrap();
}
