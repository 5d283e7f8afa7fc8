//! The attribute of `lock-core`. Use it through that crate: `use lock_core::distributed_lock;`.
//!
//! An expansion starts at [`distributed_lock`]. `args` reads the arguments, `function` reads the annotated function,
//! `template` reads keys, and `expand` writes the result. Everything that an expansion calls is in
//! `lock_core::attribute`.

mod args;
mod bounds;
mod duration;
mod expand;
mod expr;
mod function;
mod key;
#[cfg(feature = "test-util")]
mod limit;
mod page;
mod returned;
mod suggest;
mod template;
mod text;

use proc_macro::TokenStream;

/// Runs a function under a distributed lock. At most one caller in the whole fleet is inside it for one key.
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
/// The lock is acquired before the body, renewed by the watchdog while the body runs, and released when the body ends.
/// The body may end by `return`, by `?`, by a panic, or because the caller dropped the future. If the lock is lost, the
/// body is dropped at its next await and the caller gets `LockErrorKind::Lost`. Stopping halfway does not roll anything
/// back. Send the fencing token (`guard = lock`, `lock.token()`) along with writes that must not come from a stale
/// holder.
///
/// # Keys
///
/// `<expr>` in a key is a value, and `<expr:spec>` is a value with a format spec of `std::fmt`. `<<` and `>>` are
/// literal brackets. An expression may use parameters, `self`, fields, methods, indices, calls and literals. It may not
/// use `await`, `?`, a block, a closure or a macro. It is evaluated once, by reference, before the lock is acquired. An
/// empty value is refused, because it would turn one lock per user into one lock for all. Braces in the text are Redis
/// hash tags: `"{<tenant>}:order:<id>"`.
///
/// The locked key is the key as it is written. A value is percent-encoded only where it could imitate another key or
/// move its key to another slot. These characters are `%`, `#`, braces, control characters, and the delimiters of the
/// template's own text. Its delimiters are all of its characters except letters and digits. (`-`, `_` and `.` join
/// words: they count only next to a value.) `<expr:raw>` encodes nothing.
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
/// Use `raw` for values that are themselves keys, and never for text from outside. A key has at most 512 bytes. A
/// template that exceeds this with every possible value does not compile. A value of more than 512 bytes, or with
/// brackets nested more than 32 deep, does not compile either. The same holds for an attribute of more than 600 tokens:
/// put long expressions into a function. In the signature, types nest at most 64 deep: give them names.
///
/// # Options
///
/// In any order, each once. Durations are `"10s"`, `"250ms"`, `"1m30s"` (`ms`, `s`, `m`, `h`, `d`), or an expression of
/// type `Duration`.
///
#[doc = args::table_of_options!()]
///
/// **A bare attribute waits up to 5 s** for a lock that is taken. `wait = "none"` refuses at once, and
/// `wait = "forever"` waits until the caller drops the future. `LockManagerBuilder` changes the default for every call,
/// and [`overriding`] changes it for one call:
///
/// ```
/// # use std::time::Duration;
/// # use lock_core::{LockError, LockManager, distributed_lock, overriding};
/// #[distributed_lock(key = "lock:user:<user_id>")]
/// async fn charge(user_id: u64) -> Result<(), LockError> {
///     Ok(())
/// }
///
/// # async fn nightly() -> Result<(), LockError> {
/// overriding(|request| request.with_wait(Duration::from_secs(60))).scope(charge(42)).await
/// # }
/// ```
///
/// * `"skip"` returns `()`, `None`, `Ok(())` or `Ok(None)`. Any other value is returned as it is: `on_busy = None`,
///   `on_refused = Err(Refused)`. If the return type is not a `Result`, all three of `on_busy`, `on_error` and
///   `on_lost` need `"skip"`, a value or a closure. `on_refused` sets all three at once.
/// * Closures get the `LockError` and return a value of the return type. Closures of `on_busy` and `on_error` may use
///   the parameters. For `on_lost`, the parameters have moved into the body. A path may name a function of the error or
///   a value: its type decides.
/// * `"skip"` and values apply when the lock is taken or the store cannot be reached. **A mistake in the program is
///   never skipped**: without a manager, with an invalid key or with invalid options, a call fails with that error. If
///   the return type cannot carry the error, the call panics and says what to do. Closures see every error.
/// * `on_error = "run_unlocked"` runs the body **without** a lock while the store is unavailable. It is counted and
///   logged. Every other failure still refuses the call.
/// * `min_hold` is for work that must not run again too soon, for example a job that every instance starts. It may be
///   longer than the ttl. The lease stays short while the body runs, so that a crash frees the key soon. At the end the
///   server keeps the key for the rest of the `min_hold`, even if a shorter `max_hold` ended the work.
/// * `mode = "read"` shares the key with other readers, in this function and in others. Without it, a function writes.
///   `permits = 16` lets 16 calls in at the same time. Both need a store that can share locks (`Capabilities::modes`).
/// * `keys` takes an iterator of strings or of results of [`lock_key!`], for example
///   `keys = ids.iter().map(|id| lock_key!("order:<id>"))`. The label is then the function's path, unless `label` is
///   set.
/// * `on_lost = "cancel"` and `"skip"` drop the body. `"error"` lets the body end and then fails. `"ignore"` lets the
///   body end and reports nothing. A synchronous body always runs to its end.
/// * Without `client`, the manager is that of the task (`LockManager::scope`), of the thread
///   (`LockManager::set_default`), or the installed one. Without any of them, a call fails with
///   `LockErrorKind::NotInstalled`.
/// * Metrics, traces and other processes name the annotated site with its type, for example `billing::Billing::charge`.
/// * A nested call for a key that the task already holds fails at once with `LockErrorKind::WouldDeadlock`. With
///   `reentrant` it enters. Beware of `join!`: its branches are one task and would enter together.
///
/// [`overriding`]: https://docs.rs/lock-core/latest/lock_core/fn.overriding.html
///
/// # Functions
///
/// Free functions and methods, generic or not, `async` or not. A function may return `impl Future`,
/// `Pin<Box<dyn Future>>` or `BoxFuture` without being `async`. It is then locked from the first poll of that future to
/// its end, with every statement before it. This covers methods under `async-trait`. Any other function blocks its
/// thread while it waits, so give it a short `wait` inside an async runtime.
///
/// Code that a function returns to be run later runs without the lock. A stream in the return type (`impl Stream`,
/// `dyn Stream`, `BoxStream`) is therefore an error, unless an alias hides it. An iterator or a closure is not an
/// error, because it may be harmless. Check those yourself.
///
/// Futures stay `Send` if they were, and grow by about 250 bytes, however large arguments, locals and output are.
///
/// # Other attributes
///
/// The attribute nearest to `fn` runs outermost. Write this one **below** `#[transactional]` and similar attributes.
/// Otherwise the lock would be released before the commit; for attributes with such names, that order is an error.
/// Below `#[instrument]`, the span covers the body. Above it, the span covers the waiting too. Below `#[tokio::main]`
/// or `#[tokio::test]`, it meets a synchronous function, and blocks around the runtime. Above them it is awaited
/// inside.
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
/// `let _default = locks.set_default();` serves every call of the thread instead, including synchronous ones. For a
/// test on paused time, build the manager with `drive_on_current_runtime()`: waits and leases then take no real time.
#[proc_macro_attribute]
pub fn distributed_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

/// Renders a lock key from a template, as `Result<LockKey, LockError>`. `LockManager::lock` takes the result as it is.
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
/// If `lock-core` was renamed, name it first: `lock_key!(crate = ::locks, "lock:user:<user_id>")`.
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    key::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The text of a page for rustdoc, whose links work there. The module `guide` of `lock-core` has these pages.
#[doc(hidden)]
#[proc_macro]
pub fn page(name: TokenStream) -> TokenStream {
    page::expand(name.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Fails a test that does not end. It is documented as `lock_testing::limit`.
#[cfg(feature = "test-util")]
#[proc_macro_attribute]
pub fn limit(seconds: TokenStream, test: TokenStream) -> TokenStream {
    limit::expand(seconds.into(), test.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
