//! A quorum's knowledge about work that is done, although members are away.

use lock_core::{LockError, LockErrorKind, LockManager, Result};
use lock_testing::limit;

use crate::quorum::network::{Network, process, stores};

async fn run(locks: &LockManager) -> Result<Option<()>> {
    locks.lock("migrate").once_for("v1").run(async |_| Ok::<_, LockError>(())).await
}

#[tokio::test(start_paused = true)]
#[limit]
async fn what_a_majority_has_marked_any_majority_knows() {
    let stores = stores(3);
    let one = process(&stores);
    one.set([2], Network::Refuses);
    assert_eq!(run(&one.locks).await, Ok(Some(())), "two of three have marked it");
    for away in 0..3 {
        let other = process(&stores);
        other.set([away], Network::Swallows);
        assert!(other.locks.done("migrate", "v1").await.unwrap().is_some(), "without {away}");
        assert_eq!(run(&other.locks).await, Ok(None), "without {away}");
    }
    let other = process(&stores);
    other.set([0, 1], Network::Refuses);
    let unknown = other.locks.done("migrate", "v1").await.unwrap_err();
    assert_eq!(unknown.kind(), LockErrorKind::Unavailable, "one that knows of none says nothing: {unknown}");
    assert!(unknown.to_string().contains("too few of 3 members say whether it is done"), "{unknown}");
}

#[tokio::test(start_paused = true)]
#[limit]
async fn only_the_holder_marks_and_without_a_majority_nothing_is_marked() {
    let stores = stores(3);
    let one = process(&stores);
    let done = one.locks.lock("migrate").once_for("v1").run(async |_| {
        one.set([1, 2], Network::Refuses);
        Ok::<_, LockError>(())
    });
    let unsaid = done.await.unwrap_err();
    assert!(
        unsaid.kind() == LockErrorKind::Unavailable && unsaid.to_string().contains("may not have recorded it"),
        "one member is no majority: {unsaid}"
    );
    let stolen = process(&stores).locks.lock("other").once_for("v1").run(async |guard| {
        stores.iter().for_each(|store| store.steal(guard.key()));
        Ok::<_, LockError>(())
    });
    assert_eq!(stolen.await.map_err(|error| error.kind()), Err(LockErrorKind::Lost), "it has the lock no more");
    assert_eq!(process(&stores).locks.done("other", "v1").await, Ok(None));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn it_is_forgotten_by_all_or_not_certainly() {
    let stores = stores(3);
    let one = process(&stores);
    assert_eq!(run(&one.locks).await, Ok(Some(())));
    one.set([2], Network::Refuses);
    let unknown = one.locks.forget_done("migrate", "v1").await.unwrap_err();
    assert!(unknown.to_string().contains("have forgotten that it is done, and all must"), "{unknown}");
    one.set([2], Network::Up);
    one.set([0], Network::Refuses);
    assert!(one.locks.done("migrate", "v1").await.unwrap().is_some(), "the third still knows");
    one.set([0], Network::Up);
    assert_eq!(one.locks.forget_done("migrate", "v1").await, Ok(true));
    assert_eq!(one.locks.forget_done("migrate", "v1").await, Ok(false));
    assert_eq!(run(&one.locks).await, Ok(Some(())));
}
