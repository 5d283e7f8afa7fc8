//! The thread of a store. Its calls outlive the runtimes of their callers, and a caller needs no runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_store::{AcquireRequest, Attempt, Inbox, LockError, Result, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::calls::acquire::{acquire, undo};
use crate::connection::within;
use crate::shared::{LAST, Shared};
use crate::url::Settings;
use crate::watch::{wake, watch};

/// How long a background connection is waited for before its failure is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread on which the client and all calls run.
pub(crate) struct Runner {
    pub(crate) shared: Arc<Shared>,
    /// Each call that is worked on has one, too. The thread waits for them for a while after the store is dropped.
    busy: mpsc::Sender<()>,
    /// Dropped with the store.
    _alive: oneshot::Sender<()>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let refused = |error| LockError::misconfigured("no thread could be started for Kubernetes").with_source(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let shared = Arc::new(Shared::new(settings, runtime.handle().clone()));
        let (alive, gone) = oneshot::channel::<()>();
        let (busy, mut idle) = mpsc::channel(1);
        let working = Arc::clone(&shared);
        let work = move || {
            runtime.block_on(async {
                working.spawn(wake(Arc::clone(&working)));
                let _ = gone.await; // It ends when the store is dropped.
                within(LAST, idle.recv()).await;
            });
            // Without waiting for a program that gives a token.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lock-kubernetes".to_owned()).spawn(work).map_err(refused)?;
        Ok(Self { shared, busy, _alive: alive })
    }

    /// Runs a call on the store's thread, which gives it up when its time is over. If its caller drops this, the call goes on.
    pub(crate) async fn ask_within<A: Send + 'static, F>(
        &self,
        time: Duration,
        call: impl FnOnce(Arc<Shared>, Timestamp) -> F,
    ) -> Result<A>
    where
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (shared, in_flight) = (Arc::clone(&self.shared), self.busy.clone());
        let work = call(Arc::clone(&shared), shared.now().after(time));
        shared.spawn(async move {
            let _in_flight = in_flight;
            let late = || {
                LockError::unavailable(format!("the API server has not answered within {time:?}, and may still do so"))
            };
            // The caller may have gone.
            let _ = answer.send(within(time, work).await.unwrap_or_else(|| Err(late())));
        });
        answered.await.map_err(|_| gone())?
    }

    /// Takes a lock. If its caller has gone when the answer comes, what was taken is given back.
    pub(crate) async fn acquire(&self, request: AcquireRequest) -> Result<Attempt> {
        let (answer, answered) = oneshot::channel();
        let (shared, in_flight) = (Arc::clone(&self.shared), self.busy.clone());
        let until = shared.now().after(request.execute_within);
        self.shared.spawn(async move {
            let (_in_flight, claim) = (in_flight, request.claim.clone());
            let turn = match shared.turn(claim.owner, until).await {
                Ok(turn) => turn,
                Err(error) => return drop(answer.send(Err(error))),
            };
            if answer.is_closed() {
                return;
            }
            let attempt = acquire(&shared, &request, until).await;
            if answer.send(attempt.map_err(|error| error.with_key(&claim.key))).is_err() {
                undo(&shared, &claim).await;
            }
            drop(turn);
        });
        answered.await.map_err(|_| gone())?
    }

    /// Watches the namespace while an inbox listens.
    pub(crate) async fn attend(&self, inbox: &Inbox) -> LockError {
        let shared = &self.shared;
        if let Err(error) = shared.api.connection(shared.now().after(PATIENCE)).await {
            inbox.notice(&lock_store::Notice::Connection { node: &shared.api.settings.node, up: false });
            return error;
        }
        let _registered = Registered::new(shared, inbox);
        std::future::pending().await
    }
}

fn gone() -> LockError {
    LockError::unavailable("the thread of the store for Kubernetes has ended")
}

/// The inbox of a store's manager with its watch, for as long as the manager listens.
struct Registered<'a> {
    shared: &'a Shared,
    inbox: &'a Inbox,
    watching: AbortHandle,
}

impl<'a> Registered<'a> {
    fn new(shared: &'a Arc<Shared>, inbox: &'a Inbox) -> Self {
        shared.set_inbox(Some(inbox.clone()));
        Self { shared, inbox, watching: shared.spawn(watch(Arc::clone(shared))) }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.watching.abort();
        self.shared.watches.store(false, Ordering::Release);
        self.inbox.set_open(false);
        self.shared.set_inbox(None);
    }
}
