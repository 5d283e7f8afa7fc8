//! What every store must do: feature `test-util`.
//!
//! [`contract`] asks a store directly, [`behaviour`] asks it through managers. Both take a function
//! that makes a fresh handle on *the same* locks, as another process would have, and panic with the
//! name of the rule that was broken. They take a few seconds of real time, and no machine is too slow
//! for them: what a stall excuses is excused.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//! use lock_core::{MemoryStore, conformance};
//!
//! let store = Arc::new(MemoryStore::new());
//! conformance::contract(Arc::clone(&store)).await;
//! # }
//! ```

mod all;
mod contract;
mod holding;
mod sharing;
mod waiting;

use std::future::Future;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::error::LossReason;
use crate::guard::LockGuard;
use crate::keeper::ReleaseOutcome;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::owner::OwnerId;

pub use contract::contract;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How long to wait for what must come: less than the default lease, which would end by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Checks what users rely on, through managers that `make` connects to the same locks.
///
/// # Panics
///
/// If a rule is broken.
pub async fn behaviour<F: Future<Output = LockManager>>(make: impl Fn() -> F) {
    let (one, two, three) = (make().await, make().await, make().await);
    let all = || vec![one.clone(), two.clone(), three.clone()];
    tokio::join!(
        holding::refusals(&one, &two),
        holding::renewal(&one, &two),
        holding::fixed_lease(&one, &two),
        holding::limits(&one, &two),
        holding::endings(&one, &two),
        holding::in_background(&one, &two),
        waiting::budget(&one, &two),
        waiting::turn(&one, &two),
        waiting::patience(&one, &two),
        waiting::cancellation(&one, &two),
        waiting::abandoned_places(&one, &two, &three),
        sharing::exclusion(all()),
        sharing::fairness(all()),
        sharing::handoff(&one),
        sharing::mixed_terms(&one, &two),
        all::behaviour(all()),
    );
}

/// Names a key that no other run uses.
fn key(rule: &str) -> LockKey {
    let key = LockKey::new(format!("conformance:{rule}:{}", &OwnerId::random().to_hex()[..12]));
    key.unwrap_or_else(|error| panic!("{error}"))
}

async fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the suite measures stores that live in real time")]
    tokio::time::sleep(time).await;
}

fn now() -> Timestamp {
    Clock::system().now()
}

/// Checks what must be so for a while after `since`, and is excused when the machine looked too late.
#[track_caller]
fn lasts(so: bool, since: Timestamp, at_least: Duration, rule: &str) {
    assert!(so || now().since(since) >= at_least, "{rule}");
}

async fn take(manager: &LockManager, key: &LockKey) -> LockGuard {
    let taken = manager.lock(key).with_wait(PATIENCE).await;
    taken.unwrap_or_else(|error| panic!("a free lock must be granted: {error}"))
}

/// Releases a lock that nobody took away: at worst a stall of the machine has ended its lease.
async fn give_back(guard: LockGuard) {
    let released = guard.release().await;
    let by_time = [LossReason::Expired, LossReason::Unreachable].map(ReleaseOutcome::AlreadyLost);
    let allowed = |outcome: &ReleaseOutcome| *outcome == ReleaseOutcome::Released || by_time.contains(outcome);
    assert!(released.as_ref().is_ok_and(allowed), "a lock that is held must be released: {released:?}");
}
