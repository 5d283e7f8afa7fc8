//! Annotated functions where every familiar name means something else.

mod names;

use lock_core::LockManager;
use lock_core::testing::limit;

#[tokio::test]
#[limit]
async fn nothing_is_taken_from_the_callers_scope() {
    let locks = LockManager::in_memory();
    assert_eq!(names::asynchronous(&locks, 1).await.unwrap(), 1);
    assert_eq!(names::synchronous(&locks).unwrap(), 1);
    assert_eq!(names::future(&locks).await.unwrap(), 1);
    assert_eq!(names::boxed(&locks).await.unwrap(), 1);
    assert_eq!(names::key(1).unwrap().as_str(), "e:1");
}
