//! The connections of one runtime, and the calls that wait for them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::Result;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::calls;
use crate::calls::call::Call;
use crate::calls::context::Context;
use crate::calls::renew::Renewals;
use crate::calls::waiting::Waiting;
use crate::session::{Session, open, within};
use crate::url::Settings;

/// How many connections carry the calls of a runtime. A call is sent at once while one of them is idle.
const CONNECTIONS: usize = 4;

/// How long a worker rests that finds no connection while others have one.
const REST: Duration = Duration::from_secs(1);

/// How long what waits may take to be sent after the store is dropped.
pub(crate) const LAST: Duration = Duration::from_secs(2);

/// State that all workers of a store share.
pub(crate) struct Common {
    pub(crate) context: Context,
    /// How many connections were given up because no answer came. A connection that has not answered since is opened anew: a firewall, for
    /// example, may have forgotten it too.
    silent: AtomicU64,
    /// Whether a lock was ever taken.
    renews: AtomicBool,
    ahead: mpsc::WeakUnboundedSender<Renewals>,
    /// Changes when the store is dropped.
    gone: watch::Receiver<()>,
}

impl Common {
    pub(crate) fn new(
        settings: Settings,
        ahead: mpsc::WeakUnboundedSender<Renewals>,
        gone: watch::Receiver<()>,
    ) -> Self {
        Self { context: Context::new(settings), silent: AtomicU64::new(0), renews: AtomicBool::new(false), ahead, gone }
    }

    pub(crate) async fn open(&self, may_make: bool) -> Result<Session> {
        let (context, settings) = (&self.context, &self.context.settings);
        let opened = open(settings, &settings.config, may_make, |_| {}).await?;
        context.server_time.set(context.clock.now(), opened.server_time);
        Ok(opened.session)
    }

    fn is_of_use(&self, session: &Session) -> bool {
        !session.is_of_no_use() && session.answered.load(Ordering::Relaxed) == self.silent.load(Ordering::Relaxed)
    }
}

/// The workers of one runtime.
pub(crate) struct Workers {
    common: Arc<Common>,
    waiting: Mutex<Waiting>,
    /// Held by the worker that opens a connection: the others may find that its connection is enough.
    opening: tokio::sync::Mutex<()>,
    /// The connections. An idle worker does not notice that its connection has ended, so each is looked at.
    open: Mutex<Vec<Weak<Session>>>,
    /// Those of the store's own thread, which send what these cannot. `None` for those themselves.
    others: Option<Arc<Self>>,
    /// Whether the first of them still opens its connection.
    opens: AtomicBool,
    /// How many of them there are. A runtime that ends drops them.
    alive: AtomicUsize,
    /// Has the runtime prove that somebody drives it, by `runs`.
    prove: Notify,
    runs: AtomicBool,
}

impl Workers {
    pub(crate) fn new(common: Arc<Common>, others: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            common,
            waiting: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            open: Mutex::default(),
            opens: AtomicBool::new(others.is_some()),
            others,
            alive: AtomicUsize::new(CONNECTIONS),
            prove: Notify::new(),
            runs: AtomicBool::new(true),
        })
    }

    /// Starts to work on a runtime, until the store is dropped and nothing waits. The first worker of a caller's runtime opens its
    /// connection at once.
    pub(crate) fn start(self: &Arc<Self>, runtime: &Handle) -> Vec<JoinHandle<()>> {
        let work = |number| {
            let (last, first) = (Last(Arc::clone(self)), number == 0 && self.others.is_some());
            runtime.spawn(async move { last.0.run(first).await })
        };
        let workers = (0..CONNECTIONS).map(work).collect();
        if self.others.is_some() {
            let proves = Arc::clone(self);
            runtime.spawn(async move {
                while !proves.waiting().has_ended() {
                    proves.runs.store(true, Ordering::Relaxed);
                    proves.prove.notified().await;
                }
            });
        }
        workers
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, call: Call) {
        let pushed = self.waiting().push(call);
        match (pushed, &self.others) {
            (Ok(worker), _) => worker.into_iter().for_each(|worker| worker.notify_one()),
            (Err(call), Some(others)) => others.push(*call),
            // The store is gone, and nobody waits for the answer.
            (Err(_), None) => {}
        }
    }

    /// Takes in no more calls.
    pub(crate) fn end(&self) {
        self.waiting().end().into_iter().for_each(|worker| worker.notify_one());
        self.prove.notify_one();
    }

    /// Ends, and gives the calls that were not sent to the store's own thread.
    pub(crate) fn give_up(&self) {
        self.end();
        let Some(others) = &self.others else { return };
        let left = self.waiting().leave();
        left.into_iter().for_each(|call| others.push(call));
    }

    /// Has the runtime prove that somebody drives it, if calls wait. Returns whether they do.
    pub(crate) fn must_prove(&self) -> bool {
        let must = !self.waiting().is_empty();
        if must {
            self.runs.store(false, Ordering::Relaxed);
            self.prove.notify_one();
        }
        must
    }

    pub(crate) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns whether the first connection is still being opened.
    pub(crate) fn opens(&self) -> bool {
        self.opens.load(Ordering::Relaxed) && self.alive.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a worker has a connection that is of use.
    pub(crate) fn has_connection(&self) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|session| session.strong_count() > 0);
        open.iter().filter_map(Weak::upgrade).any(|session| self.common.is_of_use(&session))
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

    async fn connect(&self, may_make: bool) -> Result<Arc<Session>> {
        let session = Arc::new(self.common.open(may_make).await?);
        session.answered.store(self.common.silent.load(Ordering::Relaxed), Ordering::Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&session));
        Ok(session)
    }

    /// Opens a connection for a worker that has none, if calls still wait when it is its turn.
    async fn open_next(&self) -> Option<Arc<Session>> {
        let turn = self.opening.lock().await;
        let may_make = self.waiting().may_make()?;
        let error = match self.connect(may_make).await {
            Ok(session) => return Some(session),
            Err(error) => error,
        };
        drop(turn);
        if self.has_connection() {
            tracing::debug!(%error, "a further connection to PostgreSQL was not opened; those that are open carry its calls");
            // This worker was woken for the calls. A worker that is idle beside it has to send them now.
            self.waiting().wake_connected().into_iter().for_each(|worker| worker.notify_one());
            let _ = within(REST, std::future::pending::<()>()).await;
        } else if self.others.is_some() {
            self.give_up();
        } else {
            let refused = self.waiting().take_all(may_make);
            refused.into_iter().for_each(|batch| calls::refuse(batch, &error));
        }
        None
    }

    async fn run(&self, first: bool) {
        let mut gone = self.common.gone.clone();
        tokio::select! {
            () = self.work(first) => {}
            // A server that does not answer keeps neither the runtime nor its connections.
            () = async { let _ = gone.changed().await; let _ = within(LAST, std::future::pending::<()>()).await; } => {}
        }
    }

    /// Sends what waits, over one connection.
    async fn work(&self, first: bool) {
        let (common, worker) = (&self.common, Arc::new(Notify::new()));
        let mut session = if first { self.connect(true).await.ok() } else { None };
        if first {
            self.opens.store(false, Ordering::Relaxed);
        }
        while self.has_work(&worker, session.is_some()).await {
            session = session.filter(|session| common.is_of_use(session));
            let Some(open) = &session else {
                session = self.open_next().await;
                continue;
            };
            let Some((batch, lane)) = self.waiting().take() else { continue };
            if batch.takes_locks() && !common.renews.swap(true, Ordering::Relaxed) {
                // Its connection is to be open when the first renewal is due.
                let _ = common.ahead.upgrade().map(|renewals| renewals.send(Renewals::Ahead));
            }
            let sent = calls::send(&common.context, open, batch).await;
            if sent.moved_away {
                open.close();
            }
            if open.was_given_up() {
                common.silent.fetch_add(1, Ordering::Relaxed);
            }
            open.answered.store(common.silent.load(Ordering::Relaxed), Ordering::Relaxed);
            let next = self.waiting().sent(lane, sent);
            next.into_iter().for_each(|worker| worker.notify_one());
        }
    }
}

/// Gives the calls to others when the last worker of a runtime has ended.
struct Last(Arc<Workers>);

impl Drop for Last {
    fn drop(&mut self) {
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.give_up();
        }
    }
}
