//! The calls on their way to the database: over a connection of the runtime that calls, or of the store's own thread.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::calls::call::{Asked, Call};
use crate::calls::renew::{self, Late, Renewals};
use crate::senders::{Common, LAST, Workers};
use crate::session::{Session, within};
use crate::url::Settings;

/// By how many calls a runtime must be ahead of others to get connections of its own. One that ends soon is not worth them.
const OFTEN: u32 = 32;

/// How long a runtime may take to prove that somebody drives it.
const PROOF: Duration = Duration::from_millis(100);

/// The runtime that calls most, whose calls leave over connections of its own.
#[derive(Default)]
struct Caller {
    /// The runtime that seems to call most, and by how many calls it is ahead of the others.
    runtime: Option<Id>,
    ahead: u32,
    /// Its workers, since it has called often.
    workers: Option<Arc<Workers>>,
}

/// State that the store and its thread share.
struct Shared {
    common: Arc<Common>,
    /// The workers of the store's own thread.
    own: Arc<Workers>,
    caller: Mutex<Caller>,
    /// Whether somebody looks soon whether the runtime that calls most runs.
    looks: AtomicBool,
    look: Notify,
}

impl Shared {
    fn caller(&self) -> MutexGuard<'_, Caller> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workers of the runtime that calls, if they have a connection.
    fn workers(&self) -> Option<Arc<Workers>> {
        let runtime = Handle::try_current().ok()?;
        let mut caller = self.caller();
        let is_caller = caller.runtime == Some(runtime.id());
        if let Some(workers) = &caller.workers {
            if workers.has_connection() {
                return Some(Arc::clone(workers)).filter(|_| is_caller);
            }
            if !workers.opens() {
                // Its connections have ended, or the runtime has.
                workers.give_up();
                *caller = Caller::default();
            }
        } else if is_caller {
            caller.ahead += 1;
            if caller.ahead >= OFTEN {
                let workers = Workers::new(Arc::clone(&self.common), Some(Arc::clone(&self.own)));
                workers.start(&runtime);
                caller.workers = Some(workers);
            }
        } else if caller.ahead == 0 {
            (caller.runtime, caller.ahead) = (Some(runtime.id()), 1);
        } else {
            caller.ahead -= 1;
        }
        None
    }

    /// Finds calls that their runtime does not send because nobody drives it. The store's own thread sends them.
    async fn watch(&self) {
        let pause = || within(PROOF, std::future::pending::<()>());
        loop {
            self.look.notified().await;
            pause().await;
            self.looks.store(false, Ordering::Release);
            let workers = self.caller().workers.clone();
            if let Some(workers) = workers.filter(|workers| workers.must_prove()) {
                pause().await;
                if !workers.runs() {
                    workers.give_up();
                }
            }
        }
    }
}

/// Sends the calls of a store. It has a thread of its own: connections outlive the runtimes of their callers.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    renewals: mpsc::UnboundedSender<Renewals>,
    /// Dropped with the store.
    _alive: watch::Sender<()>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let ((renewals, due), (alive, mut gone)) = (mpsc::unbounded_channel(), watch::channel(()));
        let common = Arc::new(Common::new(settings, renewals.downgrade(), gone.clone()));
        let own = Workers::new(Arc::clone(&common), None);
        let shared = Arc::new(Shared {
            common,
            own,
            caller: Mutex::default(),
            looks: AtomicBool::new(false),
            look: Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let refused = |error| {
            LockError::misconfigured("no thread could be started for the connections to PostgreSQL").with_source(error)
        };
        let (runtime, working) = (runtime.map_err(refused)?, Arc::clone(&shared));
        let work = move || {
            runtime.block_on(async {
                let mut workers = working.own.start(runtime.handle());
                workers.push(runtime.spawn(renew_all(Arc::clone(&working), due)));
                let ended = async {
                    for worker in workers {
                        let _ = worker.await;
                    }
                };
                tokio::select! {
                    () = ended => {}
                    () = working.watch() => {}
                    // A server that does not answer keeps neither the thread nor its connections.
                    () = async { let _ = gone.changed().await; let _ = within(LAST, std::future::pending::<()>()).await; } => {}
                }
            });
            // Without waiting for a look-up of a name that takes long.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("lock-postgres".to_owned()).spawn(work).map_err(refused)?;
        Ok(Self { shared, renewals, _alive: alive })
    }

    /// Sends a call and waits for the answer. If this is dropped, the call goes on, except for an acquire that was not sent yet.
    pub(crate) async fn ask<Q, A>(
        &self,
        question: Q,
        call: impl FnOnce(Asked<Q, A>) -> Call,
        failed: impl FnOnce(LockError) -> A,
    ) -> A {
        let (shared, (answer, answered)) = (&self.shared, oneshot::channel());
        match call(Asked { question, answer, since: shared.common.context.clock.now() }) {
            Call::Renew(asked) => drop(self.renewals.send(Renewals::Due(asked))),
            call @ (Call::Acquire(_) | Call::AcquireAll(_) | Call::Release(_)) => match shared.workers() {
                Some(workers) => {
                    workers.push(call);
                    if !shared.looks.swap(true, Ordering::AcqRel) {
                        shared.look.notify_one();
                    }
                }
                None => shared.own.push(call),
            },
            call => shared.own.push(call),
        }
        answered
            .await
            .unwrap_or_else(|_| failed(LockError::unavailable("the thread of the connections to PostgreSQL has ended")))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let caller = std::mem::take(&mut *self.shared.caller());
        caller.workers.iter().chain([&self.shared.own]).for_each(|workers| workers.end());
    }
}

/// Renews, over a connection that carries nothing else, until the store is gone. A batch waits for no row, so a renewal is never behind
/// another's.
async fn renew_all(shared: Arc<Shared>, mut due: mpsc::UnboundedReceiver<Renewals>) {
    let (again, late) = mpsc::unbounded_channel();
    let mut patient = std::pin::pin!(renew_late(Arc::clone(&shared), late));
    let renew = async {
        type Opening<'a> = Pin<Box<dyn Future<Output = Result<Session>> + Send + 'a>>;
        let never = || -> Opening<'_> { Box::pin(std::future::pending()) };
        let (mut session, mut opening, mut opens): (Option<Session>, _, _) = (None, never(), false);
        loop {
            let renewals = tokio::select! {
                biased;
                opened = &mut opening => {
                    if let Err(error) = &opened {
                        tracing::debug!(%error, "the connection that renews was not opened; those of the calls renew");
                    }
                    (session, opening, opens) = (opened.ok(), never(), false);
                    continue;
                }
                renewals = due.recv() => renewals,
            };
            let Some(renewals) = renewals else { break };
            if session.as_ref().is_none_or(Session::is_of_no_use) {
                if let Renewals::Due(due) = renewals {
                    // Over a connection of the calls, which is there sooner.
                    shared.own.push(Call::Renew(due));
                }
                // Renewals that are due meanwhile do not wait for it: a server may let nobody in for long.
                if !std::mem::replace(&mut opens, true) {
                    opening = Box::pin(shared.common.open(true));
                }
            } else if let (Renewals::Due(due), Some(open)) = (renewals, &session) {
                open.answer_within(renew::bound(&due));
                if let Some(late) = renew::renew(&shared.common.context, open, due).await {
                    let _ = again.send(late);
                }
            }
        }
        drop(again);
    };
    tokio::join!(renew, patient.as_mut());
}

/// Renews locks whose rows are locked, each alone.
async fn renew_late(shared: Arc<Shared>, mut late: mpsc::UnboundedReceiver<Late>) {
    let mut session: Option<Session> = None;
    while let Some(mut late) = late.recv().await {
        if session.as_ref().is_none_or(Session::is_of_no_use) {
            session =
                within(late.patience(&shared.common.context), shared.common.open(true)).await.and_then(Result::ok);
        }
        if let Some(open) = &session {
            late.renew(&shared.common.context, open).await;
        }
        late.answer();
    }
}
