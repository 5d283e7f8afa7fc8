//! The calls on their way to the database: what waits leaves together.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{AcquireRequest, Attempt, Freed, LockError, Release, Result};
use tokio::sync::{Notify, oneshot};

use crate::calls;
use crate::calls::call::{Asked, Batch, Call};
use crate::calls::context::Context;
use crate::session::{Session, open};
use crate::url::Settings;

/// How many connections carry calls. A call is sent at once while one of them is idle.
const CONNECTIONS: usize = 4;

/// How many claims one statement carries at most.
const TOGETHER: usize = 32;

/// The calls that wait, for those who send them.
#[derive(Default)]
struct Waiting {
    acquires: VecDeque<Asked<AcquireRequest, Result<Attempt>>>,
    releases: VecDeque<Asked<Release, Result<Freed>>>,
    others: VecDeque<Box<Call>>,
    /// Who has nothing to send. The last that had is asked first: its session has seen these statements a moment ago, and those of
    /// the others sleep on while one is enough.
    idle: Vec<Arc<Notify>>,
    /// Whether the last that left were releases.
    released: bool,
    ended: bool,
}

/// What the store and its thread share.
struct Shared {
    context: Context,
    waiting: Mutex<Waiting>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, call: Call) {
        let mut waiting = self.waiting();
        match call {
            Call::Acquire(asked) => waiting.acquires.push_back(asked),
            Call::Release(asked) => waiting.releases.push_back(asked),
            other => waiting.others.push_back(Box::new(other)),
        }
        if let Some(worker) = waiting.idle.pop() {
            worker.notify_one();
        }
    }

    /// Waits for calls. `None` once the store is gone.
    async fn next(&self, worker: &Arc<Notify>) -> Option<Batch> {
        loop {
            {
                let mut waiting = self.waiting();
                if let Some(batch) = waiting.take() {
                    return Some(batch);
                }
                if waiting.ended {
                    return None;
                }
                waiting.idle.push(Arc::clone(worker));
            }
            worker.notified().await;
        }
    }
}

impl Waiting {
    /// Takes what leaves next: renewals and questions, which are few, and else acquires and releases by turns.
    fn take(&mut self) -> Option<Batch> {
        if let Some(other) = self.others.pop_front() {
            return Some(Batch::One(other));
        }
        // Nobody waits for the answer any more: what was not sent has not been executed.
        self.acquires.retain(|asked| !asked.answer.is_closed());
        self.released = match (self.acquires.is_empty(), self.releases.is_empty()) {
            (true, true) => return None,
            (false, false) => !self.released,
            (no_acquires, _) => no_acquires,
        };
        Some(if self.released {
            let some = self.releases.len().min(TOGETHER);
            Batch::Releases(self.releases.drain(..some).collect())
        } else {
            let some = self.acquires.len().min(TOGETHER);
            Batch::Acquires(self.acquires.drain(..some).collect())
        })
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
        let shared = Arc::new(Shared { context: Context::new(settings), waiting: Mutex::default() });
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
        self.0.push(call(Asked { question, answer, since: self.0.context.clock.now() }));
        answered
            .await
            .unwrap_or_else(|_| failed(LockError::unavailable("the thread of the connections to PostgreSQL has ended")))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.ended = true;
        waiting.idle.drain(..).for_each(|worker| worker.notify_one());
    }
}

/// Sends what waits, over one connection, until the store is gone.
async fn work(shared: Arc<Shared>) {
    let context = &shared.context;
    let (mut session, worker): (Option<Session>, _) = (None, Arc::new(Notify::new()));
    while let Some(batch) = shared.next(&worker).await {
        if session.as_ref().is_none_or(Session::is_closed) {
            session = None;
            match open(&context.settings, &context.settings.config, batch.may_make(), |_| {}).await {
                Ok(opened) => {
                    context.server_time.set(context.clock.now(), opened.server_time);
                    session = Some(opened.session);
                }
                Err(error) => {
                    calls::refuse(batch, &error);
                    continue;
                }
            }
        }
        if let Some(open) = &session
            && calls::send(context, open, batch).await.moved_away
        {
            session = None;
        }
    }
}
