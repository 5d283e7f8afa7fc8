//! Calls that leave together: everything pending for one connection goes as one message.
//!
//! On an idle connection, a call is sent at once. While an answer is in flight, calls gather
//! until every ready task has run: then a separate task sends them. If that task cannot
//! run, or many batches are already in flight, the next answer of the connection sends them.
//!
//! A call whose answer nobody waits for also gathers on an idle connection. The next call takes it
//! along. So does one that has time, for a moment.
//!
//! A batch belongs to none of its callers. The driver of the connection wakes and polls it, so its
//! answers arrive no matter which callers have gone. When all callers have gone, it is dropped.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::unconstrained;

use crate::batch::exchange::{Answer, Call, exchange};
use crate::batch::inline_task::InlineTask;
use crate::batch::node::exchange_with_node;
use crate::batch::unsettled::Unsettled;
use crate::connection::link::Link;
use crate::on_drop::OnDrop;
use lock_store::contract::backend::BoxFuture;
use lock_store::types::owner::OwnerId;
use lock_store::types::system::sync::Mutex;

/// How many calls go in one message. The server does nothing else meanwhile, for about 0.3 ms.
const AT_MOST: usize = 32;

/// How many batches may be in flight before calls wait for one to land, unless they fill a batch. A
/// lower limit makes batches fuller, but calls wait longer where a round trip is slow.
const IN_FLIGHT: usize = 16;

/// For how long calls gather that have time. Calls that are due together arrive within less.
const A_MOMENT: Duration = Duration::from_millis(2);

/// When a call leaves if the connection is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// At once.
    Now,
    /// With the next call, or when everything that is ready to run has run.
    WithTheNext,
    /// The same, or after [`A_MOMENT`]: for claims that confirm their places.
    Soon,
}

/// A connection, and what is pending for it.
#[derive(Debug)]
pub(crate) struct Coalescer {
    pub(crate) link: Link,
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
    /// Whether all of it has time.
    has_time: bool,
    /// How many batches are sent and not answered.
    in_flight: usize,
}

impl Coalescer {
    pub(crate) fn new(link: Link, unsettled: Arc<Unsettled>) -> Self {
        Self { link, state: Mutex::default(), unsettled }
    }

    /// Makes one call, together with others that are pending.
    ///
    /// Dropping the future takes back a call that is not sent yet, and no other.
    pub(crate) fn call(self: &Arc<Self>, call: Call, flush: Flush) -> Part {
        let mut state = self.state.lock();
        let idle = state.in_flight == 0 && flush == Flush::Now;
        let (batch, opens) = match &state.gathering {
            Some(batch) => (Arc::clone(batch), false),
            // In full at once: it would be moved again and again as it grows.
            None => (Arc::new(Batch::new(Arc::clone(self), if idle { 1 } else { AT_MOST })), true),
        };
        let place = batch.add(call);
        if place + 1 >= AT_MOST || idle {
            state.gathering = None;
            state.in_flight += 1;
            drop(state);
            batch.send();
        } else if opens || state.has_time && flush != Flush::Soon {
            state.gathering = Some(Arc::clone(&batch));
            state.due = false;
            state.has_time = flush == Flush::Soon;
            drop(state);
            flush_later(Arc::clone(&batch), flush);
        }
        Part { batch, place, over: false }
    }

    /// Sends a batch if nobody else has, now or when another has landed.
    fn flush(&self, batch: &Arc<Batch>) {
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
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

/// One caller's part in a batch: the answer to its call.
#[must_use = "a call whose answer nobody awaits is taken back"]
pub(crate) struct Part {
    batch: Arc<Batch>,
    place: usize,
    /// Whether the answer was taken.
    over: bool,
}

impl Future for Part {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut callers = self.batch.callers.lock();
        let waits = &mut callers[self.place].waits;
        match mem::replace(waits, Waits::Over) {
            Waits::For(waker) => {
                let waker = waker.filter(|waker| waker.will_wake(cx.waker()));
                *waits = Waits::For(Some(waker.unwrap_or_else(|| cx.waker().clone())));
                Poll::Pending
            }
            Waits::Answered(answer) => {
                drop(callers);
                self.over = true;
                Poll::Ready(answer)
            }
            Waits::Over => Poll::Pending,
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.over {
            self.batch.leave(self.place);
        }
    }
}

/// Sends a batch when everything else that is ready has run, and a moment has passed if there is time; or when the runtime ends.
fn flush_later(batch: Arc<Batch>, flush: Flush) {
    let flushes = OnDrop(move || batch.connection.flush(&batch));
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            if flush == Flush::Soon {
                #[expect(clippy::disallowed_methods, reason = "a runtime without a timer has no connection")]
                tokio::time::sleep(A_MOMENT).await;
            } else {
                // A worker thread runs a new task before the others.
                step_back().await;
            }
            drop(flushes);
        });
    }
}

/// Calls that leave together.
pub(crate) struct Batch {
    connection: Arc<Coalescer>,
    /// Locked before the callers, if both are.
    stage: Mutex<Stage>,
    callers: Mutex<Vec<Caller>>,
    task: InlineTask,
}

enum Stage {
    /// One call for each caller.
    Gathering(Vec<Call>),
    Sent(BoxFuture<'static, Vec<Answer>>),
    Over,
}

/// The caller of a call.
struct Caller {
    /// The claim, if the call takes a lock.
    taking: Option<OwnerId>,
    /// Whether the call was sent.
    sent: bool,
    waits: Waits,
}

/// The event that a caller waits for.
enum Waits {
    /// The answer.
    For(Option<Waker>),
    /// Only to be polled.
    Answered(Answer),
    /// Nothing: it has its answer, or has gone.
    Over,
}

impl Caller {
    fn is_waiting(&self) -> bool {
        matches!(self.waits, Waits::For(_))
    }
}

impl Batch {
    fn new(connection: Arc<Coalescer>, calls: usize) -> Self {
        Self {
            connection,
            stage: Mutex::new(Stage::Gathering(Vec::with_capacity(calls))),
            callers: Mutex::new(Vec::with_capacity(calls)),
            task: InlineTask::default(),
        }
    }

    /// Adds a call. Returns its place.
    fn add(&self, call: Call) -> usize {
        match &mut *self.stage.lock() {
            Stage::Gathering(calls) => {
                let taking = call.taking();
                calls.push(call);
                let mut callers = self.callers.lock();
                callers.push(Caller { taking, sent: false, waits: Waits::For(None) });
                callers.len() - 1
            }
            Stage::Sent(_) | Stage::Over => unreachable!("a batch that gathers is not sent"),
        }
    }

    fn send(self: &Arc<Self>) {
        let mut stage = self.stage.lock();
        if let Stage::Gathering(gathered) = &mut *stage {
            let mut calls = mem::take(gathered);
            let mut callers = self.callers.lock();
            callers.iter_mut().for_each(|caller| caller.sent = caller.is_waiting());
            if callers.iter().any(|caller| !caller.sent) {
                // A call whose caller has gone must not be executed.
                let mut sent = callers.iter().map(|caller| caller.sent);
                calls.retain(|_| sent.next() == Some(true));
            }
            drop(callers);
            let connection = Arc::clone(&self.connection);
            // The driver of the connection polls it, and must not use up its own budget on it.
            let work = Box::pin(unconstrained(async move { run(&connection.link, calls).await }));
            *stage = Stage::Sent(work);
        }
        drop(stage);
        Arc::clone(self).wake();
    }

    fn poll(self: &Arc<Self>) -> Poll<()> {
        let mut stage = self.stage.lock();
        let Stage::Sent(work) = &mut *stage else { return Poll::Ready(()) };
        let waker = Waker::from(Arc::clone(self));
        let answers = match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answers) => answers,
            Poll::Pending => return Poll::Pending,
        };
        let _dropped_after_the_lock = mem::replace(&mut *stage, Stage::Over);
        drop(stage);
        self.answer(answers);
        self.connection.landed();
        Poll::Ready(())
    }

    /// Gives each caller its answer.
    fn answer(&self, answers: Vec<Answer>) {
        let Coalescer { unsettled, link, .. } = &*self.connection;
        let mut wakers = Vec::with_capacity(answers.len());
        let mut callers = self.callers.lock();
        for (caller, answer) in callers.iter_mut().filter(|caller| caller.sent).zip(answers) {
            let waits = caller.is_waiting();
            match caller.taking {
                // The server may have received it, and execute it later.
                Some(owner) if waits && answer.is_lost() => unsettled.note(owner, link),
                Some(owner) if !waits && !answer.is_lost() => unsettled.answered(owner),
                _ => {}
            }
            if let Waits::For(waker) = mem::replace(&mut caller.waits, Waits::Over) {
                caller.waits = Waits::Answered(answer);
                wakers.extend(waker);
            }
        }
        drop(callers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes that a caller has gone. Drops a batch that was sent if no caller waits for it any more.
    fn leave(&self, place: usize) {
        let mut stage = self.stage.lock();
        let mut callers = self.callers.lock();
        let caller = &mut callers[place];
        caller.waits = Waits::Over;
        if let (true, Some(owner), Stage::Sent(_)) = (caller.sent, caller.taking, &*stage) {
            self.connection.unsettled.note(owner, &self.connection.link);
        }
        // Before it is sent, a caller may join after the last one has gone. A batch that takes locks
        // continues: the cleanup of those locks waits for its answer.
        let abandoned = matches!(&*stage, Stage::Sent(_))
            && !callers.iter().any(|caller| caller.is_waiting() || caller.sent && caller.taking.is_some());
        drop(callers);
        if abandoned {
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
        f.debug_struct("Batch").finish_non_exhaustive()
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
