//! A task that holds one lock and wants another, in a process of its own.

use std::time::Duration;

use lock_core::{LockError, Wait};

use crate::worker::{Args, connect, orders, say};

/// Takes the first lock, says so, and takes the second one under it when it is told to.
pub(crate) async fn nest(args: &Args) {
    let (locks, _recorder) = connect(args).await;
    let mut orders = orders();
    let patient = |name| locks.lock(args.text(name)).with_site("worker::nest").with_wait(Wait::Forever);
    let (first, second) = (patient("first"), patient("second"));
    let ended: Result<(), LockError> = first
        .run(async |_| {
            say("held");
            orders.recv().await;
            second.run(async |_| Ok(())).await
        })
        .await;
    say(&match ended {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("{:?} {error}", error.kind()),
    });
    assert!(locks.shutdown(Duration::from_secs(5)).await.is_clean());
}
