//! Annotated functions where every familiar name means something else.

mod names;

use lock_core::{LockError, LockKey, LockManager, distributed_lock};
use lock_testing::limit;

#[tokio::test]
#[limit]
async fn nothing_is_taken_from_the_callers_scope() {
    let locks = LockManager::in_memory();
    assert_eq!(names::asynchronous(&locks, 1).await.unwrap(), 1);
    assert_eq!(names::synchronous(&locks).unwrap(), 1);
    assert_eq!(names::future(&locks).await.unwrap(), 1);
    assert_eq!(names::boxed(&locks).await.unwrap(), 1);
    assert_eq!(names::key(1).unwrap().as_str(), "e:1");
}

/// Code with a suggestion by clippy, which would replace the whole key.
mod inside_a_key {
    #![deny(clippy::all, clippy::pedantic)]

    use lock_core::{LockError, LockManager, distributed_lock};

    #[distributed_lock(key = "f:<id.clone()>:<id as u32>:<id + 0>", client = locks)]
    pub(super) async fn of_numbers(locks: &LockManager, id: u32) -> Result<u32, LockError> {
        Ok(id)
    }

    #[distributed_lock(key = "f:<name.to_string()>:<name.len() * 1>:<name.chars().nth(0).unwrap()>", client = locks)]
    pub(super) async fn of_text(locks: &LockManager, name: &str) -> Result<usize, LockError> {
        Ok(name.len())
    }
}

macro_rules! locked {
    ($(#[$meta:meta])* $name:ident($($parameter:ident: $type:ty),*)) => {
        $(#[$meta])*
        async fn $name($($parameter: $type),*) -> Result<LockKey, LockError> {
            lock_core::current_lock().map(|lock| lock.key().clone()).ok_or_else(|| unreachable!())
        }
    };
}

// The key and the parameters come from one place, and the attribute from another.
locked!(#[distributed_lock(key = "g:<id>:<id.count_ones()>", client = locks)] by_macro(locks: &LockManager, id: u32));

macro_rules! with_key {
    ($key:literal, $client:ident, $function:item) => {
        #[distributed_lock(key = $key, client = $client)]
        $function
    };
}

with_key!(
    "h:<id + 1>",
    locks,
    async fn with_its_key(locks: &LockManager, id: u32) -> Result<LockKey, LockError> {
        lock_core::current_lock().map(|lock| lock.key().clone()).ok_or_else(|| unreachable!("{id}"))
    }
);

#[tokio::test]
#[limit]
async fn names_in_a_key_mean_what_they_mean_where_the_key_was_written() {
    let locks = LockManager::in_memory();
    assert_eq!(inside_a_key::of_numbers(&locks, 1).await.unwrap(), 1);
    assert_eq!(inside_a_key::of_text(&locks, "name").await.unwrap(), 4);
    assert_eq!(by_macro(&locks, 3).await.unwrap().as_str(), "g:3:2");
    assert_eq!(with_its_key(&locks, 3).await.unwrap().as_str(), "h:4");
}

#[distributed_lock(key = "<r#type>:<id>", client = locks, guard = r#lock)]
async fn raw(locks: &LockManager, r#type: &str, r#id: u32) -> Result<LockKey, LockError> {
    Ok(lock.key().clone())
}

#[tokio::test]
#[limit]
async fn raw_names_are_names() {
    let locks = LockManager::in_memory();
    assert_eq!(raw(&locks, "user", 7).await.unwrap().as_str(), "user:7");
}
