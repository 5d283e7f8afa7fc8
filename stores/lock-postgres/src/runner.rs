//! The calls on their way to the database: what waits leaves together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{
    AcquireRequest, Attempt, Claim, Clock, Freed, Holder, JobRecord, LockError, LockKey, Release, Renewal, Result,
    Timestamp,
};
use tokio::sync::{Notify, oneshot};

use crate::calls;
use crate::session::Session;
use crate::url::Settings;

/// How many connections carry calls. A call is sent at once while one of them is idle.
const CONNECTIONS: usize = 4;

/// How many claims one statement carries at most.
const TOGETHER: usize = 32;

/// A question, where its answer goes, and when it was asked.
pub(crate) struct Asked<Q, A> {
    pub(crate) question: Q,
    pub(crate) answer: oneshot::Sender<A>,
    pub(crate) since: Timestamp,
}

/// What the database is asked.
pub(crate) enum Call {
    Acquire(Asked<AcquireRequest, Result<Attempt>>),
    Release(Asked<Release, Result<Freed>>),
    Renew(Asked<Vec<Claim>, Vec<Result<Renewal>>>),
    Holder(Asked<LockKey, Result<Option<Holder>>>),
    LastRun(Asked<LockKey, Result<Option<JobRecord>>>),
    Ping(Asked<(), Result<()>>),
    Sweep(Asked<(), Result<()>>),
}

/// What leaves together.
pub(crate) enum Batch {
    Acquires(Vec<Asked<AcquireRequest, Result<Attempt>>>),
    Releases(Vec<Asked<Release, Result<Freed>>>),
    One(Call),
}

/// The calls that wait, for those who send them.
#[derive(Default)]
struct Waiting {
    calls: VecDeque<Call>,
    ended: bool,
}

/// What the store and its thread share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) server_time: calls::ServerTime,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, call: Call) {
        self.waiting().calls.push_back(call);
        self.arrived.notify_one();
    }

    /// Waits for calls. `None` once the store is gone.
    async fn next(&self) -> Option<Batch> {
        loop {
            {
                let mut waiting = self.waiting();
                if let Some(batch) = waiting.take() {
                    return Some(batch);
                }
                if waiting.ended {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }
}

impl Waiting {
    /// Takes the oldest call, and with it those of its kind.
    fn take(&mut self) -> Option<Batch> {
        // Nobody waits for the answer any more: what was not sent has not been executed.
        self.calls.retain(|call| !matches!(call, Call::Acquire(asked) if asked.answer.is_closed()));
        Some(match self.calls.pop_front()? {
            Call::Acquire(first) => Batch::Acquires(self.more(first, |call| match call {
                Call::Acquire(asked) => Ok(asked),
                other => Err(other),
            })),
            Call::Release(first) => Batch::Releases(self.more(first, |call| match call {
                Call::Release(asked) => Ok(asked),
                other => Err(other),
            })),
            other => Batch::One(other),
        })
    }

    fn more<T>(&mut self, first: T, of_kind: impl Fn(Call) -> Result<T, Call>) -> Vec<T> {
        let mut taken = vec![first];
        for call in std::mem::take(&mut self.calls) {
            if taken.len() == TOGETHER {
                self.calls.push_back(call);
                continue;
            }
            match of_kind(call) {
                Ok(one) => taken.push(one),
                Err(other) => self.calls.push_back(other),
            }
        }
        taken
    }
}

/// Sends the calls of a store, on a thread of its own: connections outlive the runtimes of their callers.
pub(crate) struct Runner(Arc<Shared>);

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    pub(crate) fn start(settings: Settings) -> Result<Self> {
        let shared = Arc::new(Shared {
            settings,
            clock: Clock::system(),
            server_time: calls::ServerTime::default(),
            waiting: Mutex::default(),
            arrived: Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let refused = |error| {
            LockError::misconfigured("no thread could be started for the connections to PostgreSQL").with_source(error)
        };
        let (runtime, working) = (runtime.map_err(refused)?, Arc::clone(&shared));
        let work = move || {
            runtime.block_on(async {
                let workers: Vec<_> = (0..CONNECTIONS).map(|_| runtime.spawn(work(Arc::clone(&working)))).collect();
                for worker in workers {
                    let _ = worker.await;
                }
            });
        };
        std::thread::Builder::new().name("lock-postgres".to_owned()).spawn(work).map_err(refused)?;
        Ok(Self(shared))
    }

    /// Asks, and waits for the answer. What is asked goes on if this is dropped, unless it is an acquire that was not sent.
    pub(crate) async fn ask<Q, A>(
        &self,
        question: Q,
        call: impl FnOnce(Asked<Q, A>) -> Call,
        failed: impl FnOnce(LockError) -> A,
    ) -> A {
        let (answer, answered) = oneshot::channel();
        self.0.push(call(Asked { question, answer, since: self.0.clock.now() }));
        answered
            .await
            .unwrap_or_else(|_| failed(LockError::unavailable("the thread of the connections to PostgreSQL has ended")))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.waiting().ended = true;
        for _ in 0..CONNECTIONS {
            self.0.arrived.notify_one();
        }
        self.0.arrived.notify_waiters();
    }
}

/// Sends what waits, over one connection, until the store is gone.
async fn work(shared: Arc<Shared>) {
    let mut session: Option<Session> = None;
    while let Some(batch) = shared.next().await {
        if session.as_ref().is_none_or(Session::is_closed) {
            session = None;
            match Session::open(&shared.settings, &shared.settings.config, |_| {}).await {
                Ok(opened) => session = Some(opened),
                Err(error) => {
                    calls::refuse(batch, &error);
                    continue;
                }
            }
        }
        if let Some(open) = &session
            && calls::send(&shared, open, batch).await.moved_away
        {
            session = None;
        }
    }
    // Those that wait for their turn end too.
    shared.arrived.notify_one();
}
