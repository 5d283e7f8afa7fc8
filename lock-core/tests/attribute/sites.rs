//! The names of annotated sites: every function has its own, with the type it belongs to.

use std::collections::BTreeSet;

use lock_core::{LockError, distributed_lock, sites};
use lock_testing::limit;

struct Billing;
struct Stock<T>(T);

trait Charge {
    async fn charge(&self) -> Result<(), LockError>;

    #[distributed_lock(key = "site:<self.id()>")]
    async fn by_default(&self) -> Result<(), LockError>
    where
        Self: Sync,
    {
        Ok(())
    }

    fn id(&self) -> u32 {
        1
    }
}

impl Billing {
    #[distributed_lock(key = "site")]
    async fn charge(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "site")]
    fn charge_all() -> Result<(), LockError> {
        Ok(())
    }
}

impl<T> Stock<T> {
    #[distributed_lock(key = "site")]
    async fn charge(&self) -> Result<(), LockError> {
        Ok(())
    }
}

impl Charge for Billing {
    #[distributed_lock(key = "site")]
    async fn charge(&self) -> Result<(), LockError> {
        Ok(())
    }
}

impl Charge for Stock<u8> {
    #[distributed_lock(key = "site")]
    async fn charge(&self) -> Result<(), LockError> {
        Ok(())
    }
}

mod far {
    use lock_core::{LockError, distributed_lock};

    impl super::Stock<u16> {
        #[distributed_lock(key = "site")]
        pub(super) fn sell(&self) -> impl Future<Output = Result<(), LockError>> {
            async { Ok(()) }
        }
    }
}

/// Two types from one call of a macro: line and column are the same.
macro_rules! two {
    ($($name:ident)*) => {$(
        struct $name;

        impl $name {
            #[distributed_lock(key = "site")]
            async fn charge(&self) -> Result<(), LockError> {
                Ok(())
            }
        }
    )*};
}

two!(One Two);

#[distributed_lock(key = "site")]
async fn charge() -> Result<(), LockError> {
    Ok(())
}

fn names() -> Vec<&'static str> {
    sites().map(lock_core::Site::function).filter(|name| name.contains("attribute::sites::")).collect()
}

#[test]
#[limit]
fn a_site_is_named_with_its_type() {
    let mut found = names();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "<attribute::sites::Billing as attribute::sites::Charge>::charge",
            "<attribute::sites::Stock<u8> as attribute::sites::Charge>::charge",
            "attribute::sites::Billing::charge",
            "attribute::sites::Billing::charge_all",
            "attribute::sites::Charge::by_default",
            "attribute::sites::One::charge",
            "attribute::sites::Stock<_>::charge",
            "attribute::sites::Two::charge",
            "attribute::sites::charge",
            "attribute::sites::far::<impl attribute::sites::Stock<u16>>::sell",
        ]
    );
}

#[test]
#[limit]
fn no_two_functions_share_a_site() {
    // Two attributes on one function differ in their keys.
    let all: Vec<(&str, &str)> = sites().map(|site| (site.function(), site.label)).collect();
    let distinct: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "{all:#?}");
}

#[tokio::test]
#[limit]
async fn events_carry_it() {
    let locks = lock_core::LockManager::in_memory();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let record = std::sync::Arc::clone(&seen);
    locks.observe(move |event: &lock_core::LockEvent<'_>| {
        record.lock().unwrap().insert(event.site.to_owned());
    });
    let calls = async {
        Billing.charge().await?;
        Charge::charge(&Billing).await?;
        Billing.by_default().await?;
        Stock(1_u8).charge().await?;
        Charge::charge(&Stock(1_u8)).await?;
        Stock(1_u16).sell().await?;
        One.charge().await?;
        Two.charge().await?;
        charge().await
    };
    locks.scope(calls).await.unwrap();
    {
        let _default = locks.set_default();
        Billing::charge_all().unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), names().into_iter().map(str::to_owned).collect());
    assert_eq!(Stock(1).0, 1);
}
