//! Work that a fleet does once for a version: every instance starts it, one does it, the others wait, and later starts skip it.

use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::LockGuard;
use crate::api::lock::{LockRequest, RequestedKeys};
use crate::api::manager::LockManager;
use crate::api::protect::{self, Drive};
use crate::contract::backend::{BoxFuture, DoneMark, DynBackend, JobVersion};
use crate::engine::shared::{Caller, Engine};
use crate::types::error::{LockError, LockErrorKind, LossReason, Result};
use crate::types::key::LockKey;
use crate::types::naming::IntoLockKey;
use crate::types::options::command_timeout;
use crate::types::system::blocking::block_on;
use crate::types::system::clock::{Timestamp, jitter};

/// For how long it is tried to read or write a mark while the lock is held.
const TRY_FOR: Duration = Duration::from_secs(10);

/// The bounds of a pause between two tries.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

impl LockRequest {
    /// Makes this the lock of work that a fleet does once for a version, such as a migration that every instance starts.
    ///
    /// One caller does it, the others wait for it, as long as the request waits, and whoever comes later finds it done. It is done when
    /// the body has returned `Ok`: then the store gets a mark, from the holder alone. After an `Err`, a panic, a crash or a loss there
    /// is none, and the next in the queue does the work. So the work may be begun more than once, and must be able to find itself
    /// half done; it may even be done twice, when its end could not be told to the store, which is an error.
    ///
    /// Redis keeps a mark for 400 days, PostgreSQL until [`LockManager::forget_done`], and [`OnceFor::keep_for`] sets another time. A
    /// store that has lost its data knows of nothing that is done.
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

/// What the lock was taken for: the version that is to be done, `None` if it was done while the lock was waited for, or why that could
/// not be read.
type ToDo = Result<Option<JobVersion>>;

impl OnceFor {
    pub(crate) fn of(request: LockRequest, version: Result<JobVersion>) -> Self {
        Self { request, version, keep: None }
    }

    /// Sets for how long it is remembered that the work is done. Default: what the store keeps.
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.keep = Some(time);
        self
    }

    /// Runs `body` unless it is done for this version, by whoever: then returns `None`, after waiting for whoever does it now.
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
    /// The error of the body is one that a [`LockError`] can become. Those of databases cannot: let it be a
    /// `Box<dyn std::error::Error + Send + Sync>`, which both become by `?`, or a type of yours that is `From` both.
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
    /// What `body` returns, what [`LockRequest::run`] fails with, and what [`LockManager::done`] and [`LockGuard::mark_done`] fail with:
    /// after a failure of the latter the body has succeeded, and the store may not know it.
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

    /// Runs `body` in this thread unless it is done for this version, by whoever: then returns `None`, after waiting for whoever does
    /// it now.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run). A body that has lost the lock runs to its end, and its outcome is replaced by the loss.
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

    /// Takes the lock, unless the work is done, before or while the lock is waited for.
    pub(crate) async fn start(self) -> Result<Option<(LockGuard, JobVersion)>> {
        let Some((guard, to_do)) = self.enter(Caller::Async).await? else { return Ok(None) };
        if let Ok(Some(version)) = to_do {
            return Ok(Some((guard, version)));
        }
        // What is known stays so, if the lock was lost that this caller took to see it.
        let _ = protect::release(guard).await;
        to_do.map(|_| None)
    }

    /// As [`start`](Self::start), blocking.
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

    /// Looks, takes the lock unless the work is done, and looks again: it may have been done meanwhile.
    async fn enter(self, caller: Caller) -> Result<Option<(LockGuard, ToDo)>> {
        let manager = self.request.manager.clone();
        let key = match &self.request.keys {
            Ok(RequestedKeys::One(key)) => key.clone(),
            Ok(RequestedKeys::All(_)) => {
                return Err(LockError::misconfigured(
                    "what is done once for a version has one lock; ask for it with lock(key)",
                ));
            }
            Err(error) => return Err(error.clone()),
        };
        let version = self.version.map_err(|error| error.with_key(&key))?;
        match look(&manager, &key, &version, caller).await {
            Ok(Some(_)) => return Ok(None),
            Ok(None) => {}
            // Whoever waits for the lock waits for the store too. It is read again under the lock.
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
            // This caller has done nothing that the lock is to be kept for.
            guard.set_min_hold(false);
        }
        Ok(Some((guard, to_do)))
    }
}

/// Ends the work: marks it if it has succeeded, and releases the lock. What is marked is done, however the lock ends.
pub(crate) async fn end(guard: LockGuard, version: &JobVersion, keep: Option<Duration>, succeeded: bool) -> Result<()> {
    if !succeeded {
        return protect::release(guard).await;
    }
    let marked = mark(&guard, version, keep, Caller::Async).await;
    let _ = protect::release(guard).await;
    marked
}

/// As [`end`], blocking.
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
    /// Returns the mark that the work under a lock is done for a version, see [`LockRequest::once_for`]. `None` if it is not done.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::InvalidKey`], [`LockErrorKind::Unavailable`] or [`LockErrorKind::Misconfigured`]: it is then unknown whether it
    /// is done.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only reads.
    pub async fn done(&self, key: impl IntoLockKey, version: impl AsRef<str>) -> Result<Option<DoneMark>> {
        let (key, version) = (self.key(key)?, JobVersion::new(version)?);
        look(self, &key, &version, Caller::Async).await
    }

    /// Removes the mark that the work under a lock is done for a version, so that it is done again. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As [`done`](Self::done): it is then unknown whether there is one still.
    ///
    /// # Cancel safety
    ///
    /// Safe. Whether the mark is still there is then unknown.
    pub async fn forget_done(&self, key: impl IntoLockKey, version: impl AsRef<str>) -> Result<bool> {
        let (key, version) = (self.key(key)?, JobVersion::new(version)?);
        let engine = self.engine_here()?;
        let until = engine.clock.now().after(self.options().command_timeout());
        let command = Arc::clone(&engine.backend).forget_done(key.clone(), version);
        let command = engine.route(Caller::Async, command);
        engine.bounded("forget_done", &key, until, command).await.map_err(|error| error.with_key(&key))
    }
}

impl LockGuard {
    /// Marks in the store that the work under this lock is done for a version, as [`LockRequest::once_for`] does: for `keep`, or without a
    /// time for as long as the store keeps such things. For who cannot run the work in a closure. Of several keys
    /// ([`LockManager::lock_all`]) the first has the mark, in the order of their bytes.
    ///
    /// Whoever does so looks first whether it is [done](LockManager::done), when it has the lock.
    ///
    /// # Errors
    ///
    /// [`LockErrorKind::Lost`] if the lock is lost: the mark was not written, unless an earlier try was not answered.
    /// [`LockErrorKind::Unavailable`] if it is unknown whether it was written, after ten seconds. [`LockErrorKind::Misconfigured`] if
    /// the store refuses it.
    ///
    /// # Cancel safety
    ///
    /// Safe. Whether the mark is written is then unknown.
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
                "the work ended well, but it is not certain that the store knows it to be done for the version {:?}, so it may be done \
                 again: {error}",
                version.as_str(),
            ),
        )
        .with_key(guard.key())),
    }
}

/// Says more about an error.
fn same_kind(error: &LockError, text: String) -> LockError {
    match error.kind() {
        LockErrorKind::Unavailable => LockError::unavailable(text),
        LockErrorKind::Misconfigured => LockError::misconfigured(text),
        _ => error.clone(),
    }
}

/// Asks the store, and again for a while if it gave no answer, while the lock is held.
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
        let (answer, now) = engine.timed(op, guard.key(), (sent_at, sent_at.after(within)), command).await;
        let [least, most] = PAUSE;
        let again_at: Timestamp = now.after(jitter(least, most));
        match answer {
            Err(error) if error.is_transient() && again_at < give_up_at => engine.timer.sleep_until(again_at).await,
            answer => return answer,
        }
    }
}
