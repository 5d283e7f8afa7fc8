//! The ways in which a manager ends: at once, after its holders, or on a signal.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;

use crate::api::manager::LockManager;
use crate::engine::hold::release::revoke;
use crate::engine::watch::watchdog;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Timestamp;

/// How often a drain checks whether the last holder has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The most time of a drain that is kept for taking away locks that were not released.
const FOR_REVOKING: Duration = Duration::from_secs(1);

impl LockManager {
    /// Refuses new acquires, takes every lock away from its holder, and releases it.
    ///
    /// Holders learn of it as [`LossReason::ShutDown`](crate::LossReason::ShutDown), so protected bodies are dropped.
    /// Call it last, after the service has stopped. [`drain`](Self::drain) lets the holders finish first.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; the rest continues in the background. Another call reports the remaining locks.
    pub async fn shutdown(&self, within: Duration) -> ShutdownReport {
        let engine = self.engine();
        if engine.made_in.was_forked() {
            return ShutdownReport { released: 0, unreleased: Vec::new(), drained: true };
        }
        let until = engine.clock.now().after(within);
        self.handle().close();
        let (sender, mut results) = unbounded_channel();
        let mut unreleased = BTreeSet::new();
        for lease in watchdog::leases(&engine.timer) {
            unreleased.insert(lease.claim.key.clone());
            let (worker, sender) = (Arc::clone(engine), sender.clone());
            engine.clean_up(async move {
                let freed = revoke(&worker, &lease).await;
                let _ = sender.send((lease.claim.key.clone(), freed.is_ok()));
            });
        }
        drop(sender);
        let mut released = 0;
        loop {
            let ended = tokio::select! {
                biased;
                ended = results.recv() => ended,
                () = engine.timer.sleep_until(until) => None,
            };
            match ended {
                Some((key, true)) => {
                    released += 1;
                    unreleased.remove(&key);
                }
                Some((_, false)) => {}
                None => break,
            }
        }
        let drained = engine.drained(until).await;
        self.settled(until).await;
        ShutdownReport { released, unreleased: unreleased.into_iter().collect(), drained }
    }

    /// Refuses new work and waits until the holders have released their locks. Takes away the locks that are still held
    /// when the time is nearly up.
    ///
    /// Until then, locks are still granted to accepted work. This includes requests in a
    /// [`LockLayer`](crate::LockLayer), and holders that need another lock inside of theirs. If the manager [serves
    /// while stopping](crate::LockManagerBuilder::serve_while_stopping), it includes every request except elections.
    ///
    /// This call may therefore return before the last of them. The part of the program that accepted the work, for
    /// example a server, knows when it is done.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lock_core::LockManager;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("report").await?;
    /// let work = async {
    ///     // … the last bit of it …
    ///     guard.release().await
    /// };
    /// let (released, report) = tokio::join!(work, locks.drain(Duration::from_secs(5)));
    /// assert!(released.is_ok() && report.released == 0 && report.is_clean());
    /// # Ok::<(), lock_core::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the manager then stays closed, and held locks stay held.
    pub async fn drain(&self, within: Duration) -> ShutdownReport {
        let engine = self.engine();
        if engine.made_in.was_forked() {
            return self.shutdown(within).await;
        }
        let until = engine.clock.now().after(within);
        let patience = engine.clock.now().after(within.saturating_sub(FOR_REVOKING.min(within / 10)));
        self.handle().stop();
        loop {
            let now = engine.clock.now();
            if now >= patience {
                return self.shutdown(until.since(now)).await;
            }
            if watchdog::leases(&engine.timer).is_empty() && engine.has_nothing_pending() {
                self.shut_down_at(patience, until);
                self.settled(until).await;
                return ShutdownReport { released: 0, unreleased: Vec::new(), drained: true };
            }
            engine.timer.sleep_until(patience.min(now.after(LOOK_AGAIN))).await;
        }
    }

    /// Waits for the work that the store does after its answers, until a time at the latest.
    async fn settled(&self, until: Timestamp) {
        let engine = self.engine();
        tokio::select! {
            biased;
            () = Arc::clone(&engine.backend).settled() => {}
            () = engine.timer.sleep_until(until) => {}
        }
    }

    /// Shuts down when the time of accepted work is up, if this manager still exists then.
    fn shut_down_at(&self, patience: Timestamp, until: Timestamp) {
        let (timer, still_there) = (Arc::clone(&self.engine().timer), self.remember());
        self.engine().run_on_keeper(async move {
            timer.sleep_until(patience).await;
            if let Some(manager) = still_there() {
                manager.shutdown(until.since(patience)).await;
            }
        });
    }

    /// Waits until this manager begins to shut down, by any call or signal.
    ///
    /// For parts that must stop together with it, for example the graceful shutdown of a server.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future changes nothing.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let handle = Arc::clone(self.handle());
        async move { handle.engine.until_refused(false).await }
    }
}

#[cfg(feature = "signal")]
mod signal {
    use std::io;
    use std::time::Duration;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use crate::ShutdownReport;
    use crate::api::manager::LockManager;
    use lock_store::types::error::{LockError, Result};

    impl LockManager {
        /// Waits for Ctrl-C or SIGTERM, then [drains](Self::drain): holders finish, and new work is refused. After a
        /// second signal, the locks that are still held are taken away at once.
        ///
        /// Works on any executor, because the keeper listens. Run it beside the work:
        ///
        /// ```no_run
        /// use std::time::Duration;
        /// use lock_core::{LockError, LockManager};
        ///
        /// # async fn work(_: &LockManager) -> Result<(), LockError> { Ok(()) }
        /// # async fn demo() -> Result<(), LockError> {
        /// let locks = LockManager::from_env().await?;
        /// tokio::select! {
        ///     done = work(&locks) => done?,
        ///     report = locks.shutdown_on_signal(Duration::from_secs(5)) => println!("stopped: {:?}", report?),
        /// }
        /// locks.shutdown(Duration::from_secs(5)).await; // where the work ended by itself
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// A server stops with it by [`stopping`](Self::stopping). Join both, so that the last responses are sent. A
        /// request that the server accepted before the signal may still ask for its lock. During the drain, handlers
        /// with the attribute are refused with [`ShutDown`](crate::LockErrorKind::ShutDown), a 503, unless the manager
        /// [serves while stopping](crate::LockManagerBuilder::serve_while_stopping):
        ///
        /// ```no_run
        /// # async fn demo(listener: tokio::net::TcpListener, app: axum::Router) -> Result<(), lock_core::LockError> {
        /// use std::{future::IntoFuture, time::Duration};
        /// use lock_core::LockManager;
        ///
        /// let locks = LockManager::builder_from_env()?.serve_while_stopping().connect().await?;
        /// let server = axum::serve(listener, app).with_graceful_shutdown(locks.stopping());
        /// let (served, report) = tokio::join!(server.into_future(), locks.shutdown_on_signal(Duration::from_secs(5)));
        /// # let _ = (served, report);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// From the first poll on, these signals do not end the process any more, even after the future is dropped.
        ///
        /// # Errors
        ///
        /// [`LockErrorKind::Misconfigured`](crate::LockErrorKind::Misconfigured) if the system does not let the program
        /// listen for signals.
        ///
        /// # Cancel safety
        ///
        /// Safe to drop. Before a signal nothing has changed. After a signal the rules of [`drain`](Self::drain) apply.
        pub async fn shutdown_on_signal(&self, within: Duration) -> Result<ShutdownReport> {
            if self.engine().made_in.was_forked() {
                return Err(LockError::forked());
            }
            let (sender, mut signals) = unbounded_channel();
            self.engine().run_on_keeper(listen(sender));
            received(&mut signals).await?;
            tracing::info!(?within, "told to stop, draining");
            let until = self.engine().clock.now().after(within);
            tokio::select! {
                biased;
                report = self.drain(within) => Ok(report),
                again = received(&mut signals) => {
                    again?;
                    Ok(self.shutdown(until.since(self.engine().clock.now())).await)
                }
            }
        }
    }

    async fn received(signals: &mut UnboundedReceiver<io::Result<()>>) -> Result<()> {
        match signals.recv().await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(LockError::misconfigured("signals cannot be received here; call drain when the process is to stop")
                    .with_source(error))
            }
            None => Err(LockError::unavailable("the runtime that drove the lock manager has ended")),
        }
    }

    /// Reports every signal, until the receiver is dropped.
    async fn listen(told: UnboundedSender<io::Result<()>>) {
        let forward = async {
            #[cfg(unix)]
            {
                use tokio::signal::unix::{SignalKind, signal};
                let listening =
                    signal(SignalKind::interrupt()).and_then(|one| Ok((one, signal(SignalKind::terminate())?)));
                let (mut interrupt, mut terminate) = match listening {
                    Ok(both) => both,
                    Err(error) => return drop(told.send(Err(error))),
                };
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    let _ = told.send(Ok(()));
                }
            }
            #[cfg(not(unix))]
            loop {
                let pressed = tokio::signal::ctrl_c().await;
                let failed = pressed.is_err();
                let _ = told.send(pressed);
                if failed {
                    return;
                }
            }
        };
        tokio::select! {
            () = forward => {}
            () = told.closed() => {}
        }
    }
}

/// The result of [`LockManager::shutdown`].
///
/// ```
/// use std::time::Duration;
///
/// # use lock_core::{LockError, LockManager};
/// # async fn demo(locks: LockManager) -> Result<(), LockError> {
/// let report = locks.shutdown(Duration::from_secs(5)).await;
/// if !report.is_clean() {
///     eprintln!("not released, and free when their leases end: {:?}", report.unreleased);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How many held locks were taken away and freed.
    pub released: usize,
    /// The keys that could not be freed in time, in order. The store frees them when their leases end.
    pub unreleased: Vec<LockKey>,
    /// Whether every earlier release had been sent and answered.
    pub drained: bool,
}

impl ShutdownReport {
    /// Returns whether no lock and no release was left behind.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unreleased.is_empty() && self.drained
    }
}
