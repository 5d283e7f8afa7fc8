//! Shutting down, on a real server.

use lock_core::LockKey;
use lock_testing::{RedisServer, limit};

use crate::support::{SECOND, locks, take};

#[tokio::test]
#[limit]
async fn one_lock_that_cannot_be_freed_does_not_hide_the_others() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let mut guards = vec![take(&locks, "forbidden").await];
    for number in 1..=5 {
        guards.push(take(&locks, &format!("free-{number}")).await);
    }
    // Every key of the five locks has a number in its name.
    server.command(&["ACL", "SETUSER", "default", "resetkeys", "~*[0-9]*", "~distributed-lock:clock", "~lock:*"]);
    let report = locks.shutdown(3 * SECOND).await;
    assert_eq!(report.released, 5, "{report:?}");
    assert_eq!(report.unreleased.iter().map(LockKey::as_str).collect::<Vec<_>>(), ["forbidden"]);
    assert!(!report.is_clean());
    drop(guards);
}
