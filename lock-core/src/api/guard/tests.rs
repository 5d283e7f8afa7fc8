use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use lock_testing::limit;

use crate::{LockErrorKind, LockManager, MemoryStore};

#[tokio::test(start_paused = true)]
#[limit]
async fn a_holder_looks_at_its_own_deadline_before_anything_else_has_run() {
    let locks = LockManager::builder(MemoryStore::new()).drive_on_current_runtime().build().unwrap();
    let guard = locks.lock("frozen").with_ttl(Duration::from_secs(10)).acquire().await.unwrap();
    guard.ensure_held().unwrap();
    // The clock advances and no task runs, as in a pause of the whole process. No task has told the holder of a
    // loss.
    let mut pause = pin!(tokio::time::advance(Duration::from_millis(9_900)));
    assert!(pause.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(guard.ensure_held().unwrap_err().kind(), LockErrorKind::Lost);
    assert_eq!(guard.remaining(), Duration::ZERO);
}
