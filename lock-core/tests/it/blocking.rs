//! Callers that block a thread, or use an executor of their own: the keeper sends their commands.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use lock_core::testing::{RedisServer, limit};
use lock_core::{LockError, LockErrorKind, LockManager};

use crate::support::{MS, SECOND, locked_keys, locks, warm};

/// One way to ask for the lock, which gives up after a while.
type Ask = fn(&LockManager, Duration) -> LockError;

fn one_key(locks: &LockManager, wait: Duration) -> LockError {
    locks.lock("k").with_wait(wait).acquire_blocking().unwrap_err()
}

fn several_keys(locks: &LockManager, wait: Duration) -> LockError {
    locks.lock_all(["k", "l"]).with_wait(wait).acquire_blocking().unwrap_err()
}

/// An executor that knows nothing about tokio.
fn foreign_executor(locks: &LockManager, wait: Duration) -> LockError {
    let mut acquire = std::pin::pin!(locks.lock("k").with_wait(wait).acquire());
    loop {
        if let Poll::Ready(outcome) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return outcome.unwrap_err();
        }
        std::thread::sleep(MS);
    }
}

#[test]
#[limit]
fn who_gives_up_while_the_server_stands_still_takes_no_lock_for_nobody() {
    let asks: [(&str, Ask); 3] =
        [("one key", one_key), ("several keys", several_keys), ("a foreign executor", foreign_executor)];
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (name, ask) in asks {
        for stopped in [700 * MS, 1_500 * MS] {
            let here = runtime.block_on(warm(&server.url()));
            server.pause();
            let started = Instant::now();
            let error = ask(&here, 300 * MS);
            let given_up = matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout);
            assert!(given_up, "{name}: {error}");
            std::thread::sleep(stopped.saturating_sub(started.elapsed()));
            server.resume();
            // Others can take the lock throughout the time in which a repeat could arrive.
            let elsewhere = locks(&server);
            let until = Instant::now() + SECOND;
            while Instant::now() < until {
                let guard = elsewhere.lock("k").with_wait(2 * SECOND).acquire_blocking();
                let guard = guard.unwrap_or_else(|error| panic!("{name}, stopped for {stopped:?}: {error}"));
                guard.release_blocking().unwrap();
                std::thread::sleep(20 * MS);
            }
            assert!(locked_keys(&server).is_empty(), "{name}: {:?}", locked_keys(&server));
        }
    }
}
