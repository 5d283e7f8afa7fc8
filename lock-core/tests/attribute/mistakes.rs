//! Mistakes in the program are never skipped: a call that cannot return them panics, and says what to do.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use lock_core::{LockError, LockErrorKind, LockManager, distributed_lock};
use lock_testing::limit;

use crate::support::{Down, manager};

/// An error without a place for a lock failure.
#[derive(Debug, PartialEq)]
struct Other(String);

const BUSY: u32 = 7;

fn told(error: LockError) -> u32 {
    u32::from(error.kind() == LockErrorKind::NotInstalled)
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn unit(id: &str) {}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
fn unit_blocking(id: &str) {}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn option(id: &str) -> Option<u32> {
    Some(1)
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn opaque(id: &str) -> Option<impl Display> {
    Some(1)
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn other_error(id: &str) -> Result<(), Other> {
    Ok(())
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = BUSY)]
async fn constant(id: &str) -> u32 {
    1
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = 3 + BUSY)]
fn computed(id: &str) -> u32 {
    1
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = Vec::new())]
fn boxed(id: &str) -> Pin<Box<dyn Future<Output = Vec<u32>> + Send + '_>> {
    Box::pin(async move { vec![1] })
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = R::default())]
async fn generic<R: Default>(id: &str) -> R {
    R::default()
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn error(id: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
fn error_blocking(id: &str) -> Result<Option<u32>, LockError> {
    Ok(Some(1))
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = Ok(BUSY))]
async fn error_or_value(id: &str) -> Result<u32, LockError> {
    Ok(1)
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip")]
async fn generic_error<E: From<LockError>>(id: &str) -> Result<(), E> {
    Ok(())
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = "skip", map_err = |error| Other(error.to_string()))]
async fn mapped(id: &str) -> Result<(), Other> {
    Ok(())
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = told)]
async fn function(id: &str) -> u32 {
    9
}

#[distributed_lock(key = "k:<id>", wait = "none", on_refused = |error| u32::from(error.kind() == LockErrorKind::NotInstalled))]
fn closure(id: &str) -> u32 {
    9
}

/// Runs a call to its panic, and returns the text.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the mistake was skipped");
    *panic.downcast::<String>().unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

type Call<'a> = (&'static str, Box<dyn FnOnce() + 'a>);

/// Every return type that cannot carry an error, as a call.
fn calls_without_an_error(id: &str) -> Vec<Call<'_>> {
    vec![
        ("unit", Box::new(|| block_on(unit(id)))),
        ("unit_blocking", Box::new(|| unit_blocking(id))),
        ("option", Box::new(|| drop(block_on(option(id)).map(|value| value.to_string())))),
        ("opaque", Box::new(|| drop(block_on(opaque(id)).map(|text| text.to_string())))),
        ("other_error", Box::new(|| drop(block_on(other_error(id))))),
        ("constant", Box::new(|| drop(block_on(constant(id)).to_string()))),
        ("computed", Box::new(|| drop(computed(id).to_string()))),
        ("boxed", Box::new(|| drop(block_on(boxed(id))))),
        ("generic", Box::new(|| drop(block_on(generic::<String>(id))))),
    ]
}

#[test]
#[limit]
fn a_mistake_that_cannot_be_returned_panics() {
    for (name, call) in calls_without_an_error("1") {
        let text = panic_of(call);
        assert!(text.starts_with(&format!("attribute::mistakes::{name} did not run")), "{name}: {text}");
        assert!(text.contains("no lock manager is installed here; call LockManager::connect"), "{name}: {text}");
        assert!(text.contains("return a `Result` whose error is `From<LockError>`"), "{name}: {text}");
    }
    let locks = manager();
    let _default = locks.set_default();
    for (name, call) in calls_without_an_error("") {
        let text = panic_of(call);
        assert!(text.contains("<id> in the key template \"k:<id>\" is empty"), "{name}: {text}");
    }
}

#[test]
#[limit]
fn a_mistake_that_can_be_returned_is() {
    let kind = |outcome: Result<(), LockError>| outcome.unwrap_err().kind();
    let all = |id: &str| {
        [
            kind(block_on(error(id))),
            kind(error_blocking(id).map(drop)),
            kind(block_on(error_or_value(id)).map(drop)),
            kind(block_on(generic_error(id))),
        ]
    };
    assert_eq!(all("1"), [LockErrorKind::NotInstalled; 4]);
    assert!(block_on(mapped("1")).unwrap_err().0.contains("no lock manager"));
    // A function of the error sees it, and decides.
    assert_eq!((block_on(function("1")), closure("1")), (1, 1));
    let locks = manager();
    let _default = locks.set_default();
    assert_eq!(all(""), [LockErrorKind::InvalidKey; 4]);
    assert!(block_on(mapped("")).unwrap_err().0.contains("is empty"));
    assert_eq!((block_on(function("")), closure("")), (0, 0));
}

#[distributed_lock(key = "k", ttl = std::time::Duration::from_millis(5), on_refused = "skip", client = locks)]
async fn wrong_ttl(locks: &LockManager) {}

#[test]
#[limit]
fn wrong_options_are_a_mistake() {
    let text = panic_of(|| block_on(wrong_ttl(&manager())));
    assert!(text.contains("ttl 5ms leaves"), "{text}");
}

/// The cases of the values: another caller has the lock, or the store is down.
#[test]
#[limit]
fn contention_and_an_unavailable_store_are_skipped() {
    let (busy, down) = (manager(), LockManager::builder(Down).build().unwrap());
    let _taken = block_on(busy.lock("k:1").acquire()).unwrap();
    for locks in [busy, down] {
        let _default = locks.set_default();
        for (_, call) in calls_without_an_error("1") {
            call();
        }
        assert_eq!((block_on(constant("1")), computed("1")), (7, 10));
        assert_eq!((block_on(function("1")), closure("1")), (0, 0));
        assert_eq!(block_on(boxed("1")), [0; 0]);
        assert_eq!(block_on(option("1")), None);
        block_on(error("1")).unwrap();
        block_on(mapped("1")).unwrap();
        assert_eq!(error_blocking("1").unwrap(), None);
        assert_eq!(block_on(error_or_value("1")).unwrap(), BUSY);
    }
}
