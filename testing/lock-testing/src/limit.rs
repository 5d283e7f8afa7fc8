//! A limit for tests that would otherwise wait forever.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use crate::Stopwatch;
use crate::servers::server::kill_servers_of;

/// Fails a test that has not ended after a minute, or after `#[limit(seconds)]`.
///
/// Put it below `#[test]` or `#[tokio::test]`. It covers everything that the body may wait for: futures, locks,
/// threads, child processes. See [`within`].
///
/// ```
/// use lock_testing::limit;
///
/// #[tokio::test]
/// #[limit]
/// async fn a_lock_is_granted() {
///     lock_core::LockManager::in_memory().lock("k").await.unwrap();
/// }
/// ```
pub use lock_macros::limit;

/// Runs a test on its own thread and waits for it, but no longer than `limit`.
///
/// Time during which the machine stalled does not count. A test that has not ended is left behind with its thread. The
/// servers that it has started are killed.
///
/// # Panics
///
/// Panics if the test panics. Also panics with the test's name if the test has not ended in time.
pub fn within<T: Send + 'static>(name: &'static str, limit: Duration, test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = sync_channel(1);
    // A receiver that has given up needs no result.
    let run = move || drop(sender.send(test()));
    let thread = Builder::new().name(name.to_owned()).spawn(run).expect("a thread can be started");
    let watch = Stopwatch::start();
    loop {
        let left = (limit + watch.stalled()).saturating_sub(watch.elapsed());
        match receiver.recv_timeout(left) {
            Ok(result) => return thread.join().map_or_else(|panic| resume_unwind(panic), |()| result),
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("a test that returns has sent its result"),
            },
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                kill_servers_of(name);
                panic!("{name} has not ended within {limit:?}: it waits for something that does not come");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::time::Duration;

    use super::within;

    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_test_that_ends_is_left_alone() {
        assert_eq!(within("quick", Duration::from_secs(60), || 7), 7);
        let panic = catch_unwind(|| within("wrong", Duration::from_secs(60), || panic!("as it should"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"as it should"));
    }

    #[test]
    fn a_test_that_hangs_fails_by_its_name() {
        let panic = catch_unwind(|| {
            within("endless", SHORT, || {
                loop {
                    std::thread::park();
                }
            })
        })
        .unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("endless has not ended within 50ms"), "{message}");
    }
}
