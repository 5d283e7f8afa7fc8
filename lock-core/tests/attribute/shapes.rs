//! Every shape of function that the attribute takes, under `deny(warnings)`; those that return a future are in
//! `returned.rs`.

use std::cell::Cell;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{LockError, LockManager, Result, distributed_lock};
use lock_testing::limit;

use crate::support::{assert_send, manager};

type Answer<T> = Result<T, LockError>;

const TTL: Duration = Duration::from_secs(10);
const PREFIX: &str = "shop";

#[derive(Debug)]
struct Order {
    id: u64,
    lines: Vec<u32>,
    locks: LockManager,
}

#[distributed_lock(key = "free:<id>", ttl = "10s")]
async fn free(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "generic:<value>")]
async fn generic<T: Display + Send, const N: usize>(value: T) -> Result<[String; N], LockError>
where
    for<'a> &'a T: Send,
{
    tokio::task::yield_now().await;
    Ok([(); N].map(|()| value.to_string()))
}

#[distributed_lock(key = "longest:<left.len()>:<right.len()>")]
async fn longest<'a>(left: &'a str, right: &'a str) -> Result<&'a str, LockError> {
    tokio::task::yield_now().await;
    if left.len() > right.len() {
        return Ok(left);
    }
    Ok(right)
}

#[distributed_lock(key = "elided:<text>")]
async fn elided(text: &str) -> Result<&str, LockError> {
    Ok(text.trim())
}

#[distributed_lock(key = "impl:<shown>")]
async fn opaque(shown: impl Display + Send) -> Result<impl Display + Send, LockError> {
    tokio::task::yield_now().await;
    if shown.to_string().is_empty() {
        return Ok("nothing".to_owned());
    }
    Ok(shown.to_string())
}

#[distributed_lock(key = "mut:<count>")]
async fn mutable(mut count: u32) -> Answer<u32> {
    for _ in 0..3 {
        tokio::task::yield_now().await;
        count += 1;
    }
    Ok(count)
}

#[distributed_lock(key = "pattern:<left>:<id:04>")]
async fn pattern((left, right): (u32, u32), Order { id, ref lines, .. }: Order, _: bool) -> Result<u64, LockError> {
    Ok(u64::from(left + right) + id + lines.len() as u64)
}

#[distributed_lock(key = "unused:<PREFIX>", ttl = TTL, wait = TTL / 2)]
async fn unused(_id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "question:<text>", wait = "none")]
async fn question(text: &str) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    let number = text.parse::<u32>()?;
    Ok(number)
}

#[distributed_lock(key = "unit", on_busy = "skip", on_error = "skip", on_lost = "skip")]
async fn unit() {
    tokio::task::yield_now().await;
}

#[distributed_lock(key = "option", on_busy = "skip", on_error = "skip", on_lost = "skip")]
async fn option(value: u32) -> Option<u32> {
    let value = Some(value)?;
    Some(value)
}

#[distributed_lock(key = "value", on_busy = |_| 0, on_error = |_| 1, on_lost = |_| 2)]
async fn value() -> u32 {
    42
}

#[distributed_lock(key = "never", on_busy = |_| panic!("busy"), on_error = |error| panic!("{error}"), on_lost = |_| panic!("lost"))]
async fn never() -> ! {
    panic!("inside")
}

#[distributed_lock(key = "todo")]
async fn panics() -> Result<u32, LockError> {
    panic!("on purpose")
}

/// Recursion under a key per depth.
#[distributed_lock(key = "depth:<depth>")]
async fn recursive(depth: u32) -> Result<u32, LockError> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(depth - 1)).await?)
}

#[distributed_lock(key = "unsafe:<id>")]
async unsafe fn dangerous(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "inner")]
async fn inner_attribute() -> Result<(), LockError> {
    #![allow(unused_variables)]
    let unused = 1;
    Ok(())
}

/// A parameter may have any name, also those of our locals.
#[distributed_lock(key = "locals:<__guard>:<__key>", guard = lock)]
async fn locals(__guard: u32, __key: u32, __request: u32, __site: u32, __out: u32, __error: u32) -> Answer<u64> {
    Ok(u64::from(__guard + __key + __request + __site + __out + __error) + u64::from(lock.token().get() > 0))
}

#[distributed_lock(key = "cell:<id>")]
async fn not_send(id: u32, cell: &Cell<u32>) -> Result<u32, LockError> {
    tokio::task::yield_now().await;
    cell.set(cell.get() + id);
    Ok(cell.get())
}

impl Order {
    #[distributed_lock(key = "order:<self.id>", client = self.locks)]
    async fn by_ref(&self) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(self.id)
    }

    #[distributed_lock(key = "order:<self.id>:<index>", client = self.locks)]
    async fn by_mut(&mut self, index: usize) -> Result<&mut u32, LockError> {
        tokio::task::yield_now().await;
        self.lines[index] += 1;
        Ok(&mut self.lines[index])
    }

    #[distributed_lock(key = "order:<self.id>", client = &self.locks)]
    async fn by_value(self) -> Result<Vec<u32>, LockError> {
        tokio::task::yield_now().await;
        Ok(self.lines)
    }

    #[distributed_lock(key = "order:<self.id>", client = self.manager())]
    async fn by_arc(self: Arc<Self>) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        Ok(self.id)
    }

    fn manager(&self) -> Arc<LockManager> {
        Arc::new(self.locks.clone())
    }

    #[distributed_lock(key = "order:<self.id>", client = self.locks)]
    fn blocking(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(key = "order:<self.id>", client = self.locks)]
    fn blocking_mut(&mut self, index: usize) -> Result<&mut u32, LockError> {
        if index > 100 {
            return Ok(&mut self.lines[0]);
        }
        self.lines[index] += 1;
        Ok(&mut self.lines[index])
    }
}

trait Service {
    async fn native(&self, id: u64) -> Result<u64, LockError>;

    #[distributed_lock(key = "default:<id>")]
    async fn provided(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    fn spelled(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send;
}

struct Shop;

impl Service for Shop {
    #[distributed_lock(key = "native:<id>")]
    async fn native(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    #[distributed_lock(key = "spelled:<id>")]
    async fn spelled(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

#[async_trait]
trait Dynamic: Send + Sync {
    async fn ship(&self, id: u64, note: &str) -> Result<u64, LockError>;

    #[distributed_lock(key = "dyn-default:<id>")]
    async fn provided(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

#[async_trait]
impl Dynamic for Shop {
    #[distributed_lock(key = "ship:<id>:<note.len()>", guard = lock)]
    async fn ship(&self, id: u64, note: &str) -> Result<u64, LockError> {
        tokio::task::yield_now().await;
        if note.is_empty() {
            return Ok(0);
        }
        lock.ensure_held()?;
        Ok(id)
    }
}

/// A function that a macro of the user puts together: its variables arrive in invisible groups.
macro_rules! generated {
    ($key:literal, $ttl:expr, $keys:tt, $name:ident($argument:ident: $type:ty) -> $output:ty $body:block) => {
        #[distributed_lock(key = $key, ttl = $ttl, label = $key)]
        async fn $name($argument: $type) -> $output $body

        mod generated {
            use super::{Answer, distributed_lock};

            #[distributed_lock(keys = $keys, wait = $ttl)]
            pub(super) fn $name($argument: $type) -> $output $body
        }
    };
}

generated!("generated:<id>", "10s", ["one:<id>", "two"], made(id: u32) -> Answer<u32> { Ok(id + 1) });

macro_rules! annotated {
    ($item:item) => {
        #[distributed_lock(key = "item")]
        $item
    };
}

annotated! {
    async fn item() -> Result<(), LockError> {
        Ok(())
    }
}

fn order(locks: &LockManager) -> Order {
    Order { id: 7, lines: vec![1, 2, 3], locks: locks.clone() }
}

pub(crate) async fn asynchronous(locks: &LockManager) {
    assert_eq!(free(1).await.unwrap(), 1);
    assert_eq!(generic::<_, 2>("x").await.unwrap(), ["x", "x"]);
    assert_eq!(longest("a", "bb").await.unwrap(), "bb");
    assert_eq!(elided(" x ").await.unwrap(), "x");
    assert_eq!(opaque(5).await.unwrap().to_string(), "5");
    assert_eq!(mutable(1).await.unwrap(), 4);
    assert_eq!(pattern((1, 2), order(locks), true).await.unwrap(), 13);
    unused(1).await.unwrap();
    assert_eq!(question("12").await.unwrap(), 12);
    assert!(question("x").await.unwrap_err().is::<std::num::ParseIntError>());
    unit().await;
    assert_eq!(option(3).await, Some(3));
    assert_eq!(value().await, 42);
    assert_eq!(recursive(3).await.unwrap(), 3);
    inner_attribute().await.unwrap();
    assert_eq!(locals(1, 2, 3, 4, 5, 6).await.unwrap(), 22);
    assert_eq!(not_send(1, &Cell::new(1)).await.unwrap(), 2);
    assert_eq!(made(1).await.unwrap(), 2);
    assert_eq!(generated::made(2).unwrap(), 3);
    item().await.unwrap();
}

pub(crate) async fn methods(locks: &LockManager) {
    let mut it = order(locks);
    assert_eq!(it.by_ref().await.unwrap(), 7);
    *it.by_mut(0).await.unwrap() += 10;
    assert_eq!(it.lines[0], 12);
    *it.blocking_mut(0).unwrap() += 10;
    assert_eq!(it.lines[0], 23);
    assert_eq!(it.blocking().unwrap(), 7);
    assert_eq!(it.by_value().await.unwrap()[1], 2);
    assert_eq!(Arc::new(order(locks)).by_arc().await.unwrap(), 7);
    assert_eq!(Shop.native(1).await.unwrap(), 1);
    assert_eq!(Service::provided(&Shop, 2).await.unwrap(), 2);
    assert_eq!(Shop.spelled(3).await.unwrap(), 3);
    let shop: &dyn Dynamic = &Shop;
    assert_eq!(shop.ship(4, "x").await.unwrap(), 4);
    assert_eq!(shop.ship(4, "").await.unwrap(), 0);
    assert_eq!(shop.provided(5).await.unwrap(), 5);
}

/// A body that panics, and one that never returns: the lock is free afterwards.
pub(crate) async fn bodies_that_panic(locks: &LockManager) {
    let (one, two) = (locks.clone(), locks.clone());
    let ended = [
        tokio::spawn(async move { one.scope(panics()).await.map(drop) }).await.map(drop),
        tokio::spawn(async move { two.scope(never()).await })
            .await
            .map(|never: std::convert::Infallible| match never {}),
    ];
    for (ended, key) in ended.into_iter().zip(["todo", "never"]) {
        assert!(ended.unwrap_err().is_panic());
        let guard = locks.lock(key).with_wait(Duration::from_secs(60)).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[test]
#[limit]
fn futures_stay_send() {
    let locks = manager();
    let mut it = order(&locks);
    assert_send(&free(1));
    assert_send(&generic::<_, 3>(1));
    assert_send(&longest("a", "b"));
    assert_send(&opaque(1));
    assert_send(&mutable(1));
    assert_send(&pattern((1, 2), order(&locks), true));
    assert_send(&unit());
    assert_send(&recursive(1));
    assert_send(&it.by_mut(1));
    assert_send(&it.by_value());
    assert_send(&Arc::new(order(&locks)).by_arc());
    assert_send(&Shop.spelled(1));
    assert_send(&Dynamic::ship(&Shop, 1, ""));
}
