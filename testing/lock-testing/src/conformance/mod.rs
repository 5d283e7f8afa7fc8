//! The rules that every store must keep: feature `test-util`.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each rule. The tests take a few seconds of real
//! time. They also pass on slow machines: a failure that a stall of the machine explains does not count.

mod all;
mod blocked;
mod contract;
mod done;
mod holding;
mod inspecting;
mod jobs;
mod modes;
mod queue;
mod sharing;
mod tools;
mod waiting;

use std::future::Future;
use std::time::Duration;

use crate::within;
use lock_core::LockManager;
use lock_store::contract::backend::LockBackend;

/// How long a rule may take. Most take less than a second, none more than ten.
const LIMIT: Duration = Duration::from_secs(60);

/// The rules, by the names of their tests.
#[doc(hidden)]
pub mod rules {
    pub use crate::conformance::all::{all_or_nothing, overlapping_sets};
    pub use crate::conformance::blocked::{blocked_holders, deadlocks};
    pub use crate::conformance::contract::{batches, floors, identity, leases};
    pub use crate::conformance::done::{marks, once_for, once_for_after_a_loss};
    pub use crate::conformance::holding::{endings, fixed_lease, in_background, limits, refusals, renewal};
    pub use crate::conformance::inspecting::{inspection, revocation};
    pub use crate::conformance::jobs::{last_runs, periods};
    pub use crate::conformance::modes::{
        downgrade, downgraded, permits_in_use, readers_and_writers, shared_leases, shared_limits, shared_phase,
    };
    pub use crate::conformance::queue::{sleeping_waiters, stopped_waiters};
    pub use crate::conformance::sharing::{exclusion, fairness, handoff, mixed_terms};
    pub use crate::conformance::waiting::{abandoned_places, budget, cancellation, patience, turn};
}

/// Declares one `#[test]` for each rule that a store must keep.
///
/// The argument is the path of a function that starts the servers of the store and returns a closure. Each call of the
/// closure makes one more handle on *the same* locks, as another process would have. The closure owns the servers, and
/// is dropped at the end of the test.
///
/// To test a new store, put these lines into a file of its `tests/` folder:
///
/// ```
/// use lock_core::MemoryStore;
///
/// fn my_store() -> impl Fn() -> MemoryStore {
///     let store = MemoryStore::new();
///     move || store.clone()
/// }
///
/// lock_testing::conformance_tests!(my_store);
/// ```
///
/// `cargo test` then runs `exclusion`, `fairness`, `fixed_lease` and the others, each by its name. To test two stores,
/// use two modules. A rule that does not finish fails within a minute.
///
/// If the servers need a program that a machine may lack, pass a function that looks for it, and names the tests that it stops:
/// `conformance_tests!(my_store, if is_installed)`. While it returns `false`, no rule is checked.
#[macro_export]
macro_rules! conformance_tests {
    ($store:path) => {
        $crate::conformance_tests!($store, if $crate::conformance::always);
    };
    ($store:path, if $can:path) => {
        $crate::conformance_tests! { @each $store, $can, check_store:
            all_or_nothing batches blocked_holders downgrade floors identity inspection last_runs leases marks shared_leases
            shared_limits shared_phase sleeping_waiters stopped_waiters
        }
        $crate::conformance_tests! { @each $store, $can, check_managers:
            abandoned_places budget cancellation deadlocks downgraded endings exclusion fairness fixed_lease handoff
            in_background limits mixed_terms once_for once_for_after_a_loss overlapping_sets patience periods permits_in_use readers_and_writers
            refusals renewal revocation turn
        }
    };
    (@each $store:path, $can:path, $check:ident: $($rule:ident)+) => {
        $(
            #[test]
            fn $rule() {
                if !$can() {
                    return;
                }
                let name = ::core::concat!(::core::module_path!(), "::", ::core::stringify!($rule));
                $crate::conformance::$check(name, $store, $crate::conformance::rules::$rule);
            }
        )+
    };
}

/// Servers that each machine has.
#[doc(hidden)]
#[must_use]
pub fn always() -> bool {
    true
}

/// Checks the rules on which the machinery relies, by calls of the store itself.
#[doc(hidden)]
pub fn check_store<B, M, F>(name: &'static str, start: impl FnOnce() -> M + Send + 'static, rule: fn(B) -> F)
where
    B: LockBackend,
    M: Fn() -> B,
    F: Future<Output = ()> + 'static,
{
    check(name, start, move |make| rule(make()));
}

/// Checks the rules on which users rely, through three managers that share the same locks.
#[doc(hidden)]
pub fn check_managers<B, M, F>(
    name: &'static str,
    start: impl FnOnce() -> M + Send + 'static,
    rule: fn([LockManager; 3]) -> F,
) where
    B: LockBackend,
    M: Fn() -> B,
    F: Future<Output = ()> + 'static,
{
    let manager = |store: B| LockManager::builder(store).build().unwrap_or_else(|error| panic!("{error}"));
    check(name, start, move |make| rule([(); 3].map(|()| manager(make()))));
}

fn check<M, F: Future<Output = ()>>(
    name: &'static str,
    start: impl FnOnce() -> M + Send + 'static,
    rule: impl FnOnce(&M) -> F + Send + 'static,
) {
    within(name, LIMIT, move || {
        let make = start();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap_or_else(|error| panic!("{error}")).block_on(async { rule(&make).await });
    });
}
