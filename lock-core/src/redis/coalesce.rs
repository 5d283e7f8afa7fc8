//! Calls that leave together: everything pending for one connection goes as one message.
//!
//! Nobody waits for a batch while the connection is idle. While an answer is on its way, calls gather
//! until everything else that is ready has run: then a separate task sends them. If that task cannot
//! run, or many batches are on their way already, the next answer of the connection sends them.
//!
//! A call whose answer nobody waits for also gathers on an idle connection. The next call takes it
//! along.
//!
//! A batch belongs to none of its callers. The driver of the connection wakes and polls it, so its
//! answers arrive no matter which callers have gone. When all callers have gone, it is dropped.

use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use redis::{ErrorKind, RedisError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::backend::BoxFuture;
use crate::owner::OwnerId;
use crate::redis::batch::exchange_with_node;
use crate::redis::exchange::{Answer, Call, exchange};
use crate::redis::inline_task::InlineTask;
use crate::redis::link::Link;
use crate::redis::unsettled::Unsettled;

/// How many calls go in one message. The server does nothing else meanwhile, for about 0.3 ms.
const AT_MOST: usize = 32;

/// How many batches may be in flight before calls wait for one to land, unless they fill a batch. A
/// lower limit makes batches fuller, but calls wait longer where a round trip is slow.
const IN_FLIGHT: usize = 16;

/// When a call leaves if the connection is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// At once.
    Now,
    /// With the next call, or when everything that is ready to run has run.
    WithTheNext,
}

/// A connection, and what is pending for it.
#[derive(Debug)]
pub(super) struct Coalescer {
    pub(super) link: Link,
    state: Mutex<State>,
    /// Attempts on all connections of the store that nobody awaits any more.
    unsettled: Arc<Unsettled>,
}

#[derive(Debug, Default)]
struct State {
    /// The batch that is not sent yet.
    gathering: Option<Arc<Batch>>,
    /// Whether it is to be sent as soon as another has landed.
    due: bool,
    /// How many batches are sent and not answered.
    in_flight: usize,
}

impl Coalescer {
    pub(super) fn new(link: Link, unsettled: Arc<Unsettled>) -> Self {
        Self { link, state: Mutex::default(), unsettled }
    }

    /// Makes one call, together with others that are pending.
    ///
    /// Dropping the future takes back a call that is not sent yet, and no other.
    pub(super) async fn call(self: &Arc<Self>, call: Call, flush: Flush) -> Answer {
        let mut part = self.join(call, flush);
        let lost = || Answer::Failed(RedisError::from((ErrorKind::Io, "the connection is gone")));
        let answer = (&mut part.answer).await.unwrap_or_else(|_| lost());
        if let Some(owner) = part.taking.take().filter(|_| answer.is_lost()) {
            // The server may have received it, and execute it later.
            self.unsettled.note(owner, &self.link);
        }
        answer
    }

    fn join(self: &Arc<Self>, call: Call, flush: Flush) -> Part {
        let (sender, answer) = oneshot::channel();
        let taking = call.taking();
        let mut state = self.lock();
        let idle = state.in_flight == 0 && flush == Flush::Now;
        let (batch, opens) = match &state.gathering {
            Some(batch) => (Arc::clone(batch), false),
            // In full at once: it would be moved again and again as it grows.
            None => (Arc::new(Batch::new(Arc::clone(self), if idle { 1 } else { AT_MOST })), true),
        };
        let full = batch.add(call, sender);
        if full || idle {
            state.gathering = None;
            state.in_flight += 1;
            drop(state);
            batch.send();
        } else if opens {
            state.gathering = Some(Arc::clone(&batch));
            state.due = false;
            drop(state);
            FlushOnDrop(Arc::clone(&batch)).wait();
        }
        Part { answer, batch, taking }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a batch if nobody else has, now or when another has landed.
    fn flush(&self, batch: &Arc<Batch>) {
        let mut state = self.lock();
        if state.gathering.as_ref().is_some_and(|gathering| Arc::ptr_eq(gathering, batch)) {
            if state.in_flight < IN_FLIGHT {
                state.gathering = None;
                state.in_flight += 1;
                drop(state);
                batch.send();
            } else {
                state.due = true;
            }
        }
    }

    /// Counts a batch as finished. Sends gathered calls itself, because a busy worker thread may
    /// keep their own task from running.
    fn landed(&self) {
        let mut state = self.lock();
        state.in_flight -= 1;
        if (state.due || state.in_flight == 0)
            && let Some(batch) = state.gathering.take()
        {
            state.in_flight += 1;
            drop(state);
            batch.send();
        }
    }
}

/// One caller's part in a batch.
struct Part {
    answer: oneshot::Receiver<Answer>,
    batch: Arc<Batch>,
    /// The claim, if the call takes a lock and is not answered yet.
    taking: Option<OwnerId>,
}

/// Sends a batch when dropped: by a task that has run, or by a runtime that ends.
struct FlushOnDrop(Arc<Batch>);

impl FlushOnDrop {
    /// Lets everything else that is ready run first.
    fn wait(self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // A worker thread runs a new task before the others.
                step_back().await;
                drop(self);
            });
        }
    }
}

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        self.0.connection.flush(&self.0);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.answer.close();
        if let Some(owner) = self.taking
            && matches!(&*self.batch.lock(), Stage::Sent { .. })
        {
            self.batch.connection.unsettled.note(owner, &self.batch.connection.link);
        }
        if self.batch.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.batch.abandon();
        }
    }
}

/// Calls that leave together.
struct Batch {
    connection: Arc<Coalescer>,
    stage: Mutex<Stage>,
    /// How many callers have not gone.
    callers: AtomicUsize,
    task: InlineTask,
}

/// The receiver of a call's answer, and the claim if the call takes a lock.
type Caller = (oneshot::Sender<Answer>, Option<OwnerId>);

enum Stage {
    Gathering(Vec<(Call, oneshot::Sender<Answer>)>),
    Sent { work: BoxFuture<'static, Vec<Answer>>, callers: Vec<Caller> },
    Over,
}

impl Batch {
    fn new(connection: Arc<Coalescer>, calls: usize) -> Self {
        Self {
            connection,
            stage: Mutex::new(Stage::Gathering(Vec::with_capacity(calls))),
            callers: AtomicUsize::new(0),
            task: InlineTask::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call. Returns whether the batch is now full.
    fn add(&self, call: Call, caller: oneshot::Sender<Answer>) -> bool {
        self.callers.fetch_add(1, Ordering::AcqRel);
        match &mut *self.lock() {
            Stage::Gathering(calls) => {
                calls.push((call, caller));
                calls.len() >= AT_MOST
            }
            Stage::Sent { .. } | Stage::Over => unreachable!("a batch that gathers is not sent"),
        }
    }

    fn send(self: &Arc<Self>) {
        let mut stage = self.lock();
        if let Stage::Gathering(gathered) = &mut *stage {
            let mut calls = Vec::with_capacity(gathered.len());
            let mut callers = Vec::with_capacity(gathered.len());
            for (call, caller) in gathered.drain(..) {
                // A call whose caller has gone must not be executed.
                if !caller.is_closed() {
                    callers.push((caller, call.taking()));
                    calls.push(call);
                }
            }
            let connection = Arc::clone(&self.connection);
            // The driver of the connection polls it, and must not use up its own budget on it.
            let work = Box::pin(unconstrained(async move { run(&connection.link, calls).await }));
            *stage = Stage::Sent { work, callers };
        }
        drop(stage);
        Arc::clone(self).wake();
    }

    fn poll(self: &Arc<Self>) -> Poll<()> {
        let mut stage = self.lock();
        let Stage::Sent { work, callers } = &mut *stage else { return Poll::Ready(()) };
        let waker = Waker::from(Arc::clone(self));
        let answers = match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answers) => answers,
            Poll::Pending => return Poll::Pending,
        };
        let callers = mem::take(callers);
        let _dropped_after_the_lock = mem::replace(&mut *stage, Stage::Over);
        drop(stage);
        for ((caller, taking), answer) in callers.into_iter().zip(answers) {
            if let Err(answer) = caller.send(answer)
                && let Some(owner) = taking
                && !answer.is_lost()
            {
                self.connection.unsettled.answered(owner);
            }
        }
        self.connection.landed();
        Poll::Ready(())
    }

    /// Drops a batch that was sent and that no caller waits for any more.
    fn abandon(&self) {
        let mut stage = self.lock();
        // Before it is sent, a caller may join after the last one has gone. A batch that takes locks
        // continues: the cleanup of those locks waits for its answer.
        if matches!(&*stage, Stage::Sent { callers, .. } if callers.iter().all(|(_, taking)| taking.is_none()))
            && self.callers.load(Ordering::Acquire) == 0
        {
            let _dropped_after_the_lock = mem::replace(&mut *stage, Stage::Over);
            drop(stage);
            self.connection.landed();
        }
    }
}

impl Wake for Batch {
    fn wake(self: Arc<Self>) {
        self.task.wake(|| self.poll());
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("callers", &self.callers).finish_non_exhaustive()
    }
}

/// Yields to everything that is ready to run.
async fn step_back() {
    let mut stepped = false;
    poll_fn(|context| {
        if mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn run(link: &Link, calls: Vec<Call>) -> Vec<Answer> {
    match calls.as_slice() {
        [] => Vec::new(),
        _ if link.is_cluster() => exchange_with_node(link, calls).await,
        _ => exchange(link, calls).await,
    }
}
