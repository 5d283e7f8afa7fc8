//! Locks that are taken in two orders are found without anybody waiting.

use std::sync::{Arc, Mutex};

use lock_core::{LockError, LockEvent, LockManager, LockObserver, LockRequest, MemoryStore, Notice};
use lock_testing::limit;

#[derive(Clone, Default)]
struct Inversions(Arc<Mutex<Vec<String>>>);

impl LockObserver for Inversions {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::OrderInverted { inversion, .. } = notice {
            self.0.lock().unwrap().push(inversion.to_string());
        }
    }
}

fn watched() -> (LockManager, Inversions) {
    let (locks, found) = (LockManager::in_memory(), Inversions::default());
    locks.observe(found.clone());
    (locks, found)
}

async fn nested(outer: LockRequest, inner: LockRequest) {
    let done: Result<(), LockError> = outer.run(async |_| inner.run(async |_| Ok(())).await).await;
    done.unwrap();
}

#[tokio::test]
#[limit]
async fn two_orders_are_told_once_with_both_places() {
    let (locks, found) = watched();
    let cart = |id: u32| locks.lock(format!("cart:{id}")).with_label("cart").with_site("shop::cart");
    let stock = |id: u32| locks.lock(format!("stock:{id}")).with_label("stock").with_site("shop::stock");
    nested(cart(1), stock(1)).await;
    nested(cart(2), stock(2)).await;
    // Guards in variables open no scope, and who does not wait cannot be waited for.
    let guards = (stock(3).await.unwrap(), cart(3).await.unwrap());
    drop(guards);
    nested(stock(6), cart(6).without_waiting()).await;
    locks.lock_order().assert_consistent();
    nested(stock(4), cart(4)).await;
    nested(stock(5), cart(5)).await;
    let said = found.0.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    for part in
        ["\"cart\" is taken at shop::cart under \"stock\"", "\"stock\" at shop::stock under \"cart\"", "lock_all"]
    {
        assert!(said[0].contains(part), "{part:?} is not in {said:?}");
    }
    let order = locks.lock_order();
    assert_eq!(order.inversions().len(), 1);
    let panic = std::panic::catch_unwind(|| order.assert_consistent()).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("shop::stock"));
}

#[tokio::test]
#[limit]
async fn keys_of_one_family_are_taken_in_ascending_order() {
    let (locks, found) = watched();
    let user = |id: u32| locks.lock(format!("user:{id}")).with_label("user");
    nested(user(1), user(2)).await;
    let both = || locks.lock_all(["user:9", "user:8"]).with_label("user");
    both().await.unwrap().release().await.unwrap();
    nested(user(7), both()).await;
    locks.lock_order().assert_consistent();
    nested(user(2), user(1)).await;
    assert_eq!(found.0.lock().unwrap().len(), 1);
}

#[tokio::test]
#[limit]
async fn several_keys_at_once_are_in_order_with_what_is_around_them() {
    let (locks, found) = watched();
    let a = || locks.lock("a").with_label("a");
    let pair = || locks.lock_all(["b", "c"]).with_label("pair");
    nested(a(), pair()).await;
    nested(pair(), a()).await;
    assert_eq!(found.0.lock().unwrap().len(), 1);
}

#[test]
#[limit]
fn who_does_not_watch_cannot_say_that_all_is_well() {
    let locks = LockManager::builder(MemoryStore::new()).lint_lock_order(false).build().unwrap();
    let order = locks.lock_order();
    assert!(order.inversions().is_empty());
    let panic = std::panic::catch_unwind(|| order.assert_consistent()).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("lint_lock_order(true)"));
}
