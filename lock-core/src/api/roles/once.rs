//! Work that a fleet does once for a version. One instance does it, the others wait for it, and later starts skip it.

use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lock::LockRequest;
use crate::api::manager::LockManager;
use crate::api::protect::{self, Drive};
use crate::engine::shared::{Caller, Engine};
use lock_store::contract::backend::{BoxFuture, DoneMark, DynBackend, JobVersion};
use lock_store::types::error::{LockError, LockErrorKind, LossReason, Result};
use lock_store::types::key::LockKey;
use lock_store::types::naming::{IntoLockKey, RequestedKeys};
use lock_store::types::options::command_timeout;
use lock_store::types::system::blocking::block_on;
use lock_store::types::system::clock::{Timestamp, jitter};

/// How long reading or writing a mark is retried while the lock is held.
const TRY_FOR: Duration = Duration::from_secs(10);

/// The bounds of the pause between two tries.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

impl LockRequest {
    /// Makes this the lock of work that a fleet does once for a version, for example a migration that every instance
    /// starts.
    ///
    /// One caller does the work. The others wait for it, as long as their requests wait, and later callers find it
    /// done. The work is done when the body has returned `Ok`: the holder then writes a mark to the store. After an
    /// `Err`, a panic, a crash or a loss, no mark exists, and the next waiter does the work.
    ///
    /// So the work may begin more than once, and must be able to continue half-done work. It may even be done twice, if
    /// the store could not be told of its end; this is an error.
    ///
    /// Redis keeps a mark for 400 days. PostgreSQL keeps it until [`LockManager::forget_done`]. [`OnceFor::keep_for`]
    /// sets another time. A store that has lost its data has no marks.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let migration = || locks.lock("migrate:orders").once_for("0042");
    /// assert_eq!(migration().run(async |_| Ok::<_, LockError>("migrated")).await?, Some("migrated"));
    /// assert_eq!(migration().run(async |_| Ok::<_, LockError>("again")).await?, None);
    ///
    /// let mark = locks.done("migrate:orders", "0042").await?.expect("it is done");
    /// println!("done by {}, {:?} ago", mark.by, mark.ago);
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_for(self, version: impl AsRef<str>) -> OnceFor {
        OnceFor::of(self.for_a_job(None), JobVersion::new(version))
    }
}

/// Work that is done once for a version. Made by [`LockRequest::once_for`], which has an example of [`OnceFor`].
#[must_use = "nothing runs until run is called"]
#[derive(Debug)]
pub struct OnceFor {
    request: LockRequest,
    version: Result<JobVersion>,
    keep: Option<Duration>,
}

/// The reason for which the lock was taken: the version to be done. `None` if it was done while this caller waited. An
/// error if the mark could not be read.
type ToDo = Result<Option<JobVersion>>;

impl OnceFor {
    pub(crate) fn of(request: LockRequest, version: Result<JobVersion>) -> Self {
        Self { request, version, keep: None }
    }

    /// Sets how long the mark is kept. Default: as long as the store keeps marks.
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep = Some(time);
        self
    }

    /// Runs `body` and returns its output. Returns `None` if the work is done for this version, after waiting for a
    /// caller that does it now.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use lock_core::{LockError, LockManager};
    /// # fn demo(locks: LockManager) {
    /// tokio::spawn(async move {
    ///     // The newest migration. A version of the program would skip a migration that comes without a new one.
    ///     let migration = locks.lock("migrate:orders").with_wait(Duration::from_secs(600)).once_for("0042_paid_at");
    ///     migration.run(async move |guard| Ok::<_, LockError>(guard.token())).await
    /// });
    /// # }
    /// ```
    ///
    /// The error of the body must be one that a [`LockError`] can be converted to. Errors of databases are not. Use
    /// `Box<dyn std::error::Error + Send + Sync>`, to which `?` converts both, or your own type with `From` for both.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let locks = LockManager::in_memory();
    /// # let orders = async || Ok::<_, std::io::Error>(7);
    /// type Failure = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let migrated = locks.lock("migrate:orders").once_for("0043").run(async |_| Ok::<_, Failure>(orders().await?));
    /// assert_eq!(migrated.await?, Some(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `body`, or an error of [`LockRequest::run`], [`LockManager::done`] or [`LockGuard::mark_done`].
    /// After an error of `mark_done`, the body has succeeded, but the store may not know it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body and releases the lock in the background. The work is not done.
    pub async fn run<T, E: From<LockError>>(
        self,
        body: impl AsyncFnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let keep = self.keep;
        let Some((guard, version)) = Box::pin(self.start()).await? else { return Ok(None) };
        let output = match Drive::new(Some(&guard), Box::pin(body(&guard))).await {
            Ok(output) => *output,
            Err(lost) => {
                // An event reports a failed release.
                let _ = protect::release(guard).await;
                return Err(lost.into());
            }
        };
        guard.set_succeeded(output.is_ok());
        Box::pin(end(guard, &version, keep, output.is_ok())).await?;
        output.map(Some)
    }

    /// Runs `body` in this thread and returns its output. Returns `None` if the work is done for this version, after
    /// waiting for a caller that does it now.
    ///
    /// # Errors
    ///
    /// Like [`run`](Self::run). If the lock is lost, the body runs to its end, and its outcome is replaced by the loss.
    pub fn run_blocking<T, E: From<LockError>>(
        self,
        body: impl FnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let keep = self.keep;
        let Some((guard, version)) = self.start_blocking()? else { return Ok(None) };
        let output = protect::call(Some(&guard), || body(&guard));
        guard.set_succeeded(output.is_ok());
        end_blocking(guard, &version, keep, output.is_ok())?;
        output.map(Some)
    }

    /// Takes the lock, unless the work is done before that, or while the lock is waited for.
    pub(crate) async fn start(self) -> Result<Option<(LockGuard, JobVersion)>> {
        let Some((guard, to_do)) = self.enter(Caller::Async).await? else { return Ok(None) };
        if let Ok(Some(version)) = to_do {
            return Ok(Some((guard, version)));
        }
        // The mark was read, so a loss of the lock does not change the answer.
        let _ = protect::release(guard).await;
        to_do.map(|_| None)
    }

    /// Like [`start`](Self::start), blocking.
    pub(crate) fn start_blocking(self) -> Result<Option<(LockGuard, JobVersion)>> {
        if !self.request.manager.engine().serves_blocking_callers() {
            return Err(LockError::driven_here("once_for(…).run(…).await"));
        }
        let Some((guard, to_do)) = block_on(self.enter(Caller::Blocking))? else { return Ok(None) };
        if let Ok(Some(version)) = to_do {
            return Ok(Some((guard, version)));
        }
        let _ = protect::release_blocking(guard);
        to_do.map(|_| None)
    }

    /// Reads the mark, takes the lock unless the work is done, and reads the mark again: it may be done in the
    /// meantime.
    async fn enter(self, caller: Caller) -> Result<Option<(LockGuard, ToDo)>> {
        let manager = self.request.manager.clone();
        let key = match &self.request.keys {
            Ok(RequestedKeys::One(key)) => key.clone(),
            Ok(RequestedKeys::All(_)) => {
                return Err(LockError::misconfigured(
                    "work that is done once for a version has one lock; ask for it with lock(key)",
                ));
            }
            Err(error) => return Err(error.clone()),
        };
        let version = self.version.map_err(|error| error.with_key(&key))?;
        match look(&manager, &key, &version, caller).await {
            Ok(Some(_)) => return Ok(None),
            Ok(None) => {}
            // A caller that waits for the lock also waits for the store. The mark is read again under the lock.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        let guard = self.request.start(caller)?.await?;
        let engine = manager.engine_here()?;
        let bound = manager.options().command_timeout();
        let ask = |backend: Arc<dyn DynBackend>| backend.done(key.clone(), version.clone());
        let to_do = match repeated(engine, &guard, ("done", bound), caller, ask).await {
            Ok(mark) => Ok(mark.is_none().then_some(version)),
            Err(error) => Err(unknown(&error, &version).with_key(&key)),
        };
        if !matches!(to_do, Ok(Some(_))) {
            // This caller has done no work, so the key need not be kept.
            guard.set_min_hold(false);
        }
        Ok(Some((guard, to_do)))
    }
}

/// Ends the work: marks it if it has succeeded, and releases the lock. Marked work is done, however the lock ends.
pub(crate) async fn end(guard: LockGuard, version: &JobVersion, keep: Option<Duration>, succeeded: bool) -> Result<()> {
    if !succeeded {
        return protect::release(guard).await;
    }
    let marked = mark(&guard, version, keep, Caller::Async).await;
    let _ = protect::release(guard).await;
    marked
}

/// Like [`end`], blocking.
pub(crate) fn end_blocking(
    guard: LockGuard,
    version: &JobVersion,
    keep: Option<Duration>,
    succeeded: bool,
) -> Result<()> {
    if !succeeded {
        return protect::release_blocking(guard);
    }
    let marked = block_on(mark(&guard, version, keep, Caller::Blocking));
    let _ = protect::release_blocking(guard);
    marked
}

impl LockManager {
    /// Returns the mark that the work under a lock is done for a version, see [`LockRequest::once_for`]. `None` if it
    /// is not done.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`], [`LockErrorKind::Unavailable`] or [`LockErrorKind::Misconfigured`]. It is then
    /// unknown whether the work is done.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn done(&self, key: impl IntoLockKey, version: impl AsRef<str>) -> Result<Option<DoneMark>> {
        let (key, version) = (self.key(key)?, JobVersion::new(version)?);
        look(self, &key, &version, Caller::Async).await
    }

    /// Removes the mark that the work under a lock is done for a version, so that it is done again. Returns whether a
    /// mark existed.
    ///
    /// # Errors
    ///
    /// Like [`done`](Self::done). It is then unknown whether the mark still exists.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the mark still exists.
    pub async fn forget_done(&self, key: impl IntoLockKey, version: impl AsRef<str>) -> Result<bool> {
        let (key, version) = (self.key(key)?, JobVersion::new(version)?);
        self.ask("forget_done", &key, |store| store.forget_done(key.clone(), version)).await
    }
}

impl LockGuard {
    /// Marks in the store that the work under this lock is done for a version, like [`LockRequest::once_for`]. The mark
    /// is kept for `keep`, or without a time as long as the store keeps marks. For callers that cannot run the work in
    /// a closure. For several keys ([`LockManager::lock_all`]), the first key in the order of their bytes gets the
    /// mark.
    ///
    /// Check first whether the work is [done](LockManager::done), after you have the lock.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`] if the lock is lost: the mark was not written, unless an earlier try was executed
    /// without an answer. [`LockErrorKind::Unavailable`] if it is unknown after ten seconds whether the mark was
    /// written. [`LockErrorKind::Misconfigured`] if the store refuses it.
    ///
    /// # Cancel safety
    ///
    /// Safe. It is then unknown whether the mark is written.
    pub async fn mark_done(&self, version: &JobVersion, keep: Option<Duration>) -> Result<()> {
        mark(self, version, keep, Caller::Async).await
    }
}

async fn look(manager: &LockManager, key: &LockKey, version: &JobVersion, caller: Caller) -> Result<Option<DoneMark>> {
    let engine = manager.engine_here()?;
    let until = engine.clock.now().after(manager.options().command_timeout());
    let command = Arc::clone(&engine.backend).done(key.clone(), version.clone());
    let answer = engine.bounded("done", key, until, engine.route(caller, command)).await;
    answer.map_err(|error| unknown(&error, version).with_key(key))
}

fn unknown(error: &LockError, version: &JobVersion) -> LockError {
    same_kind(error, format!("it is unknown whether the work is done for the version {:?}: {error}", version.as_str()))
}

async fn mark(guard: &LockGuard, version: &JobVersion, keep: Option<Duration>, caller: Caller) -> Result<()> {
    let lease = &guard.first().hold.lease;
    let ask = |backend: Arc<dyn DynBackend>| backend.mark_done(lease.claim(), version.clone(), keep);
    let bound = command_timeout(lease.claim.ttl);
    match repeated(guard.first().engine(), guard, ("mark_done", bound), caller, ask).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(LockError::lost(LossReason::Stolen).with_key(guard.key())),
        Err(error) if error.kind() == LockErrorKind::Lost => Err(error),
        Err(error) => Err(same_kind(
            &error,
            format!(
                "the work ended well, but the store may not have recorded it as done for the version {:?}, so it \
                 may be done again: {error}",
                version.as_str(),
            ),
        )
        .with_key(guard.key())),
    }
}

/// Returns an error of the same kind with a longer text.
fn same_kind(error: &LockError, text: String) -> LockError {
    match error.kind() {
        LockErrorKind::Unavailable => LockError::unavailable(text),
        LockErrorKind::Misconfigured => LockError::misconfigured(text),
        _ => error.clone(),
    }
}

/// Asks the store while the lock is held. Retries for a while if it does not answer.
async fn repeated<T: Send + 'static>(
    engine: &Arc<Engine>,
    guard: &LockGuard,
    (op, within): (&'static str, Duration),
    caller: Caller,
    ask: impl Fn(Arc<dyn DynBackend>) -> BoxFuture<'static, Result<T>>,
) -> Result<T> {
    let give_up_at = engine.clock.now().after(TRY_FOR);
    loop {
        guard.ensure_held()?;
        let sent_at = engine.clock.now();
        let command = engine.route(caller, ask(Arc::clone(&engine.backend)));
        let (answer, now) = engine.timed(op, guard.key(), (sent_at, sent_at.after(within)), command, |_| None).await;
        let [least, most] = PAUSE;
        let again_at: Timestamp = now.after(jitter(least, most));
        match answer {
            Err(error) if error.is_transient() && again_at < give_up_at => engine.timer.sleep_until(again_at).await,
            answer => return answer,
        }
    }
}
