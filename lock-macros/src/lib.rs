//! The attribute of `lock-core`. Use it through that crate: `use lock_core::distributed_lock;`.
//!
//! An expansion goes from [`distributed_lock`] through `args` (what was written), `function` (what
//! it was written on) and `expand` (what becomes of it); `template` reads keys. Everything that an
//! expansion calls lives in `lock_core::__private`.

mod args;
mod duration;
mod expand;
mod expr;
mod function;
mod key;
#[cfg(feature = "test-util")]
mod limit;
mod suggest;
mod template;

use proc_macro::TokenStream;

/// Runs a function under a distributed lock: at most one caller in the whole fleet is inside it for
/// one key.
///
/// ```
/// use lock_core::{LockError, LockManager, distributed_lock};
///
/// #[derive(Debug, thiserror::Error)]
/// enum ChargeError {
///     #[error(transparent)]
///     Lock(#[from] LockError),
/// }
///
/// #[distributed_lock(key = "lock:user:<user_id>", ttl = "10s")]
/// async fn charge(user_id: u64, cents: u64) -> Result<u64, ChargeError> {
///     Ok(cents)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ChargeError> {
/// LockManager::in_memory().install().expect("installed once, at start-up");
/// assert_eq!(charge(42, 990).await?, 990);
/// # Ok(())
/// # }
/// ```
///
/// The lock is acquired before the body, renewed by the watchdog while the body runs, and released
/// when it ends: by `return`, `?`, panic, or because the caller dropped the future. If the lock is
/// lost meanwhile, the body is dropped at its next await and the caller gets
/// `LockErrorKind::Lost`. Stopping halfway is no rollback: send the fencing token
/// (`guard = lock`, `lock.token()`) along with writes that must not come from a stale holder.
///
/// # Keys
///
/// `<expr>` in a key is a value, `<expr:spec>` one with a format spec of `std::fmt`; `<<` and `>>`
/// are literal brackets. An expression may use parameters, `self`, fields, methods, indices, calls
/// and literals, but no `await`, `?`, block, closure or macro. It is evaluated once, by reference,
/// before the lock is acquired. An empty value is refused, because it would turn a lock per user into one
/// for all. Braces in the text are Redis hash tags: `"{<tenant>}:order:<id>"`.
///
/// The key that is locked is the key that is written. In a value, only that is percent-encoded which would
/// let it imitate another key or move it to another slot: `%`, braces, control characters, and the
/// delimiters of the template's own text, which are all its characters but letters and digits. (`-`, `_`
/// and `.` join words: they count only next to a value.) `<expr:raw>` encodes nothing.
///
/// | template | value | key |
/// |---|---|---|
/// | `cart:<email>` | `ann@example.org` | `cart:ann@example.org` |
/// | `cart:<name>` | `a b`, `a/b`, `ünï` | `cart:a b`, `cart:a/b`, `cart:ünï` |
/// | `cart:<name>` | `x:y` | `cart:x%3Ay` |
/// | `cart:<name:raw>` | `x:y` | `cart:x:y` |
/// | `nightly-report:<day>` | `2026-11-22` | `nightly-report:2026-11-22` |
/// | `order-<id>` | `7-b` | `order-7%2Db` |
/// | `{<tenant>}:x` | `a{b}` | `{a%7Bb%7D}:x` |
///
/// Use `raw` for values that are keys by themselves, and never for text from outside. A key has at most 512
/// bytes.
///
/// # Options
///
/// In any order, each once. Durations are `"10s"`, `"250ms"`, `"1m30s"` (`ms`, `s`, `m`, `h`, `d`),
/// or an expression of type `Duration`.
///
/// | option | value | default | meaning |
/// |---|---|---|---|
/// | `key` | template | required | what is locked |
/// | `keys` | `[template, …]` | – | several keys, sorted, without duplicates, all or nothing |
/// | `ttl` | duration | the manager's (30 s) | the lease: how long others wait after this process died |
/// | `wait` | duration, `"none"`, `"forever"` | the manager's (5 s) | how long to wait for a lock that is taken |
/// | `on_busy` | `"error"`, `"skip"`, `\|busy\| value` | `"error"` | what a call returns that did not get the lock in time |
/// | `on_error` | `"error"`, `"skip"`, `"run_unlocked"`, `\|error\| value` | `"error"` | … that could not get it for another reason |
/// | `on_lost` | `"cancel"`, `"error"`, `"skip"`, `"ignore"`, `\|lost\| value` | `"cancel"`; `"error"` without `async` | … that lost it while it ran |
/// | `map_err` | function or closure | `From<LockError>` | makes the error of the return type |
/// | `renew` | `true`, `false`, duration | `true` (a third of the ttl) | the watchdog |
/// | `max_hold` | duration | none | the lock is given up after this long, even if the body hangs |
/// | `min_hold` | duration | zero | the key stays taken at least this long, even if the body is quick |
/// | `reentrant` | flag | off | a nested call with the same key shares the lock instead of failing |
/// | `guard` | name | – | names the `&LockGuard` in the body: `token()`, `ensure_held()`, `extend()` |
/// | `client` | expression | see below | the manager, such as `self.locks` |
/// | `when` | expression of type `bool` | `true` | whether to lock at all |
/// | `label` | string | the key's template | the metric label |
/// | `stuck_after` | duration | the manager's | the age at which alerts call a hold stuck |
/// | `docs` | `true`, `false` | `true` | whether key, lease and ready queries are added to the function's docs |
/// | `crate` | path | `::lock_core` | where `lock-core` is, if you renamed it |
///
/// * `"skip"` returns `()`, `None`, `Ok(())` or `Ok(None)`. A return type that is no `Result` needs
///   `"skip"` or a closure for all three of `on_busy`, `on_error` and `on_lost`.
/// * Closures get the `LockError` and give a value of the return type. Those of `on_busy` and
///   `on_error` may use the parameters; for `on_lost` they have moved into the body.
/// * `on_error = "run_unlocked"` runs the body **without** a lock while the store is unavailable. It
///   is counted and logged. Every other failure (no manager, a bad key) still refuses.
/// * `on_lost = "cancel"` and `"skip"` drop the body; `"error"` lets it end and then fails;
///   `"ignore"` lets it end and says nothing. A synchronous body always runs to its end.
/// * Without `client`, the manager is that of the task (`LockManager::scope`), of the thread
///   (`LockManager::set_default`), or the one installed. With none of them a call fails with
///   `LockErrorKind::NotInstalled`.
/// * A nested call for a key that the task holds already fails with `LockErrorKind::WouldDeadlock`
///   at once. With `reentrant` it enters; beware of `join!`, whose branches are one task and would
///   enter together.
///
/// # Functions
///
/// Free functions and methods, generic or not, `async` or not. A function that is not `async` but
/// returns `impl Future`, `Pin<Box<dyn Future>>` or `BoxFuture` is locked from the first poll of that
/// future to its end, with every statement before it; this covers methods under `async-trait`. Any
/// other function blocks its thread while it waits, so inside an async runtime give it a short
/// `wait`.
///
/// What a function returns to be run later is run without the lock. A stream in the return type
/// (`impl Stream`, `dyn Stream`, `BoxStream`) is an error therefore, unless an alias hides it; an iterator
/// or a closure may be complete already, so watch for those.
///
/// Futures stay `Send` if they were, and grow by about 250 bytes, however large arguments, locals and
/// output are.
///
/// # Other attributes
///
/// The attribute nearest to `fn` runs outermost. So write this one **below** `#[transactional]` and
/// the like: the other way round the lock is released before the commit, and that is an error for
/// attributes of that name. Below `#[instrument]` the span covers the body, above it the waiting too.
/// Below `#[tokio::main]` or `#[tokio::test]` it meets a synchronous function, and blocks around the
/// runtime; above them it is awaited inside.
///
/// # Testing
///
/// ```
/// # use lock_core::{LockError, LockManager, distributed_lock};
/// #[distributed_lock(key = "report:<day>", wait = "none", on_busy = "skip")]
/// async fn report(day: u32) -> Result<Option<String>, LockError> {
///     Ok(Some(format!("day {day}")))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let locks = LockManager::in_memory();
/// let _taken = locks.lock("report:7").acquire().await.unwrap();
/// assert_eq!(locks.scope(report(7)).await.unwrap(), None);
/// # }
/// ```
///
/// `let _default = locks.set_default();` serves every call of the thread instead, synchronous ones too.
/// For a test on paused time, build the manager with `drive_on_current_runtime()`: waits and leases then
/// take no real time.
#[proc_macro_attribute]
pub fn distributed_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

/// Renders a lock key from a template, as `Result<LockKey, LockError>`, which
/// `LockManager::lock` takes as it is.
///
/// The grammar is that of [`macro@distributed_lock`], and the template becomes the metric label.
///
/// ```
/// use lock_core::{LockError, LockManager, lock_key};
///
/// # async fn demo(locks: LockManager, user_id: u64) -> Result<(), LockError> {
/// let guard = locks.lock(lock_key!("lock:user:<user_id>")).await?;
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A renamed `lock-core` is named first: `lock_key!(crate = ::locks, "lock:user:<user_id>")`.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    key::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Fails a test that does not end: `lock_core::testing::limit`, where it is documented.
#[cfg(feature = "test-util")]
#[proc_macro_attribute]
pub fn limit(seconds: TokenStream, test: TokenStream) -> TokenStream {
    limit::expand(seconds.into(), test.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
