//! The calls on their way to the database: what waits leaves together.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::{LockError, Result};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::calls;
use crate::calls::call::{Asked, Call};
use crate::calls::context::Context;
use crate::calls::renew::{self, Late, Renewals};
use crate::calls::waiting::Waiting;
use crate::session::{Session, open, within};
use crate::url::Settings;

/// How many connections carry calls. A call is sent at once while one of them is idle.
const CONNECTIONS: usize = 4;

/// How long a worker rests that finds no connection while others have one.
const REST: Duration = Duration::from_secs(1);

/// How long what waits may take to be sent after the store is dropped.
const LAST: Duration = Duration::from_secs(2);

/// State that the store and its thread share.
struct Shared {
    context: Context,
    waiting: Mutex<Waiting>,
    /// Held by the worker that opens a connection: the others may find that its connection is enough.
    opening: tokio::sync::Mutex<()>,
    /// The connections of the workers. An idle worker does not notice that its connection has ended, so each is looked at.
    open: Mutex<Vec<Weak<Session>>>,
    /// How many connections were given up because no answer came. A connection that has not answered since is opened anew: a firewall, for
    /// example, may have forgotten it too.
    silent: AtomicU64,
    /// Whether a lock was ever taken.
    renews: AtomicBool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, call: Call) {
        if let Some(worker) = self.waiting().push(call) {
            worker.notify_one();
        }
    }

    /// Waits until a call waits. Returns whether one does: none comes any more once the store is gone.
    async fn has_work(&self, worker: &Arc<Notify>, connected: bool) -> bool {
        loop {
            let known = self.waiting().has_work(worker, connected);
            if let Some(known) = known {
                return known;
            }
            worker.notified().await;
        }
    }

    async fn open(&self, may_make: bool) -> Result<Session> {
        let (context, settings) = (&self.context, &self.context.settings);
        let opened = open(settings, &settings.config, may_make, |_| {}).await?;
        context.server_time.set(context.clock.now(), opened.server_time);
        Ok(opened.session)
    }

    fn is_of_use(&self, session: &Session) -> bool {
        !session.is_of_no_use() && session.answered.load(Ordering::Relaxed) == self.silent.load(Ordering::Relaxed)
    }

    /// Returns whether a worker has a connection that is of use.
    fn has_connection(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|session| session.strong_count() > 0);
        open.iter().filter_map(Weak::upgrade).any(|session| self.is_of_use(&session))
    }

    /// Opens a connection for a worker that has none, if calls still wait when it is its turn.
    async fn open_next(&self) -> Option<Arc<Session>> {
        let turn = self.opening.lock().await;
        let may_make = self.waiting().may_make()?;
        let error = match self.open(may_make).await {
            Ok(session) => {
                let session = Arc::new(session);
                session.answered.store(self.silent.load(Ordering::Relaxed), Ordering::Relaxed);
                self.open.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&session));
                return Some(session);
            }
            Err(error) => error,
        };
        drop(turn);
        if self.has_connection() {
            tracing::debug!(%error, "a further connection to PostgreSQL was not opened; those that are open carry its calls");
            // This worker was woken for the calls. A worker that is idle beside it has to send them now.
            self.waiting().wake_connected().into_iter().for_each(|worker| worker.notify_one());
            let _ = within(REST, std::future::pending::<()>()).await;
        } else {
            let refused = self.waiting().take_all(may_make);
            refused.into_iter().for_each(|batch| calls::refuse(batch, &error));
        }
        None
    }
}

/// Sends the calls of a store, on a thread of its own: connections outlive the runtimes of their callers.
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
        let shared = Arc::new(Shared {
            context: Context::new(settings),
            waiting: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            silent: AtomicU64::new(0),
            renews: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let refused = |error| {
            LockError::misconfigured("no thread could be started for the connections to PostgreSQL").with_source(error)
        };
        let (runtime, working) = (runtime.map_err(refused)?, Arc::clone(&shared));
        let (renewals, due) = mpsc::unbounded_channel();
        let (ahead, (alive, mut gone)) = (renewals.downgrade(), watch::channel(()));
        let work = move || {
            runtime.block_on(async {
                let mut workers: Vec<_> =
                    (0..CONNECTIONS).map(|_| runtime.spawn(work(Arc::clone(&working), ahead.clone()))).collect();
                workers.push(runtime.spawn(renew_all(Arc::clone(&working), due)));
                let ended = async {
                    for worker in workers {
                        let _ = worker.await;
                    }
                };
                tokio::select! {
                    () = ended => {}
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
        let (answer, answered) = oneshot::channel();
        match call(Asked { question, answer, since: self.shared.context.clock.now() }) {
            Call::Renew(asked) => drop(self.renewals.send(Renewals::Due(asked))),
            call => self.shared.push(call),
        }
        answered
            .await
            .unwrap_or_else(|_| failed(LockError::unavailable("the thread of the connections to PostgreSQL has ended")))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.waiting().end().into_iter().for_each(|worker| worker.notify_one());
    }
}

/// Sends what waits, over one connection, until the store is gone.
async fn work(shared: Arc<Shared>, ahead: mpsc::WeakUnboundedSender<Renewals>) {
    let (mut session, worker): (Option<Arc<Session>>, _) = (None, Arc::new(Notify::new()));
    while shared.has_work(&worker, session.is_some()).await {
        session = session.filter(|session| shared.is_of_use(session));
        let Some(open) = &session else {
            session = shared.open_next().await;
            continue;
        };
        let Some((batch, lane)) = shared.waiting().take() else { continue };
        if batch.takes_locks() && !shared.renews.swap(true, Ordering::Relaxed) {
            // Its connection is to be open when the first renewal is due.
            let _ = ahead.upgrade().map(|renewals| renewals.send(Renewals::Ahead));
        }
        let sent = calls::send(&shared.context, open, batch).await;
        if sent.moved_away {
            open.close();
        }
        if open.was_given_up() {
            shared.silent.fetch_add(1, Ordering::Relaxed);
        }
        open.answered.store(shared.silent.load(Ordering::Relaxed), Ordering::Relaxed);
        let next = shared.waiting().sent(lane, sent);
        next.into_iter().for_each(|worker| worker.notify_one());
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
                    shared.push(Call::Renew(due));
                }
                // Renewals that are due meanwhile do not wait for it: a server may let nobody in for long.
                if !std::mem::replace(&mut opens, true) {
                    opening = Box::pin(shared.open(true));
                }
            } else if let (Renewals::Due(due), Some(open)) = (renewals, &session) {
                open.answer_within(renew::bound(&due));
                if let Some(late) = renew::renew(&shared.context, open, due).await {
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
            session = within(late.patience(&shared.context), shared.open(true)).await.and_then(Result::ok);
        }
        if let Some(open) = &session {
            late.renew(&shared.context, open).await;
        }
        late.answer();
    }
}
