//! One name over several locks: by id, all of them, or any that is free.

mod any;
mod segments;

use std::fmt::Display;
use std::sync::Arc;

use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::api::stripe::{key_of, stripe_of};
use crate::api::striped::segments::Segments;
use crate::engine::acquire::all::in_order;
use lock_store::contract::event::Purpose;
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};

pub use any::AnyStripe;

impl LockManager {
    /// Spreads one name over a fixed number of locks, its stripes: `stock:42#0`, `stock:42#1`, … Each stripe is an
    /// ordinary lock.
    ///
    /// Stripes serve two purposes. [`lock`](Striped::lock) maps any number of ids to few locks. This needs fewer keys
    /// than one per id, and allows more parallel work than one key for all. [`any`](Striped::any) takes any stripe that
    /// is free. Use it for one hot resource that can be split, for example a stock of 1,000 pieces in 16 segments.
    ///
    /// The number, 1 to 4096, is part of the lock: processes with different numbers do not exclude each other. Two
    /// numbers for one name in one manager are refused. Use [`formerly`](Striped::formerly) to change the number.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let carts = locks.striped("carts", 64);
    /// let guard = carts.lock("ann@example.org").await?;
    /// println!("stripe {:?} of {}", guard.stripe(), carts.count());
    /// # Ok(())
    /// # }
    /// ```
    pub fn striped(&self, name: impl IntoLockKey, count: u32) -> Striped {
        let name = self.key(name).and_then(|name| self.stripings().register(&name, count).map(|()| name));
        Striped { manager: self.clone(), name, count: count.max(1), formerly: None, segments: Arc::default() }
    }
}

/// One name over several locks. Made by [`LockManager::striped`].
///
/// The acquire reports a mistake in the name or in the number. Cheap to clone. Keep one for each name, because
/// [`any`](Self::any) remembers which stripes were free.
///
/// ```
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let stock = locks.striped("stock:42", 16); // kept, and cloned
/// stock.any().await?.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is locked until a request of it is awaited"]
#[derive(Clone, Debug)]
pub struct Striped {
    manager: LockManager,
    name: Result<LockKey>,
    count: u32,
    /// The number of stripes in processes of the version before.
    formerly: Option<u32>,
    segments: Arc<Segments>,
}

impl Striped {
    /// Also takes the locks of another number of stripes, so that processes with that number are excluded.
    ///
    /// To change the number, deploy the new one with `formerly(the old one)`. When no process of the old version is
    /// left, deploy without `formerly`. It does not affect [`any`](Self::any): a stripe is the same lock with any
    /// number of stripes.
    pub fn formerly(mut self, count: u32) -> Self {
        self.formerly = Some(count.max(1));
        self
    }

    /// Returns the number of stripes.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the stripe of an id: the 64-bit FNV-1a hash of its text modulo the number of stripes.
    #[must_use]
    pub fn stripe_of(&self, id: impl Display) -> u32 {
        stripe_of(id, self.count)
    }

    /// Asks for the stripe of an id.
    ///
    /// Different ids can share a stripe. A task that holds one id and asks for another in the same stripe gets
    /// [`WouldDeadlock`](crate::LockErrorKind::WouldDeadlock), like for any lock that it already holds. Take several
    /// ids by [`lock_all`](Self::lock_all).
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// locks.striped("users", 256).lock(42).run(async |guard| Ok::<_, LockError>(guard.token())).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock(&self, id: impl Display) -> LockRequest {
        self.lock_all([id])
    }

    /// Asks for the stripes of several ids: all or none, in one order for all callers, each stripe once.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let (from, to) = (7, 3);
    /// let guard = locks.striped("accounts", 64).lock_all([from, to]).await?;
    /// assert!(guard.keys().count() <= 2); // one, if they share a stripe
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock_all(&self, ids: impl IntoIterator<Item = impl Display>) -> LockRequest {
        let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
        let stripes = ids.iter().map(|id| stripe_of(id, self.count)).collect();
        let before = self.formerly.map(|count| ids.iter().map(|id| stripe_of(id, count)).collect());
        self.request(stripes, before.unwrap_or_default())
    }

    /// Asks for every stripe. The holder of all stripes is alone. For a count over all segments, or to split them anew.
    ///
    /// They are taken one after the other, in the order of their keys. Up to 50 of them are taken at once if all are
    /// free.
    #[track_caller]
    pub fn all(&self) -> LockRequest {
        let most = self.count.max(self.formerly.unwrap_or(0));
        self.request((0..self.count).collect(), (self.count..most).collect())
    }

    /// Asks for any one stripe, preferably a free one.
    ///
    /// It first tries a stripe that this process had recently, then others that may be free. If all are taken, the
    /// request queues for one of them, and tries the others again every second.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # async fn demo(locks: LockManager) -> Result<(), LockError> {
    /// let stock = locks.striped("stock:42", 16);
    /// let mut left = [10_u32; 16]; // in a database, a number for each segment
    /// let mut empty = Vec::new();
    /// while empty.len() < 16 {
    ///     let guard = stock.any().except(&empty).await?;
    ///     let Some(segment) = guard.stripe() else { unreachable!("it is a stripe") };
    ///     match left[segment as usize].checked_sub(1) {
    ///         Some(rest) => left[segment as usize] = rest,
    ///         None => empty.push(segment),
    ///     }
    ///     guard.release().await?;
    /// }
    /// assert_eq!(left, [0; 16]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn any(&self) -> AnyStripe {
        AnyStripe::of(self)
    }

    /// Asks for some stripes of this number, and for some of the old number.
    #[track_caller]
    fn request(&self, stripes: Vec<u32>, before: Vec<u32>) -> LockRequest {
        let keys = self.keys(stripes, before).map(RequestedKeys::All);
        LockRequest::new(self.manager.clone(), keys).with_purpose(Purpose::Stripe { of: self.count })
    }

    fn keys(&self, mut stripes: Vec<u32>, mut before: Vec<u32>) -> Result<Vec<LockKey>> {
        let name = self.name.clone()?;
        before.retain(|stripe| !stripes.contains(stripe));
        // Stripes of the old number are only locked: the guard reports the stripes of the new number.
        let bare = |stripe| name.clone().with_suffix(&format!("#{stripe}"));
        stripes.sort_unstable();
        stripes.dedup();
        let keys = stripes.into_iter().map(|stripe| key_of(&name, stripe)).chain(before.into_iter().map(bare));
        in_order(keys)
    }
}
