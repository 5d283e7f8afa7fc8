//! Calls that leave together: what is pending for one connection goes as one script.
//!
//! Nobody waits for a batch while the connection is idle. While an answer is on its way, calls
//! gather, until everything else that is ready has run: then a task of its own sends what there is. If
//! that task cannot run, or many batches are on their way already, the next answer of the connection
//! sends them.
//!
//! A call whose answer nobody waits for gathers also on an idle connection. The next call takes it
//! along.
//!
//! A batch belongs to none of its callers. It is polled by whoever wakes it, which is the driver of
//! the connection, so that its answers arrive no matter which of the callers have gone. When all
//! have, it is dropped.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use crate::backend::BoxFuture;
use crate::clock::Clock;
use crate::fencing::FencingToken;
use crate::inline_task::InlineTask;
use crate::redis::call::Call;
use crate::redis::link::Link;
use crate::redis::scripts::SCRIPTS;
use crate::redis::value;

/// How many calls go in one script: the server does nothing else meanwhile, for about 0.3 ms.
const AT_MOST: usize = 32;

/// How many batches may be in flight before calls wait for one to land, unless they fill a batch: the
/// fewer, the fuller they are, and the longer the wait where a round trip takes long.
const IN_FLIGHT: usize = 16;

/// The errors with which a server refuses a script for its keys, before it runs.
const OF_KEYS: [&str; 5] = ["NOPERM", "CROSSSLOT", "MOVED", "ASK", "TRYAGAIN"];

/// How long the last token of a key is remembered. It only has to outlast backward steps of the
/// server's clock, from which every token is seeded.
pub(super) const FENCE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// When a call leaves that finds the connection idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// At once.
    Now,
    /// With the next call, or when everything that is ready to run has run.
    WithTheNext,
}

/// What became of one call.
type Answer = Result<Value, RedisError>;

/// What is pending for one connection.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    state: Mutex<State>,
    /// Whether the server refuses keys of different slots in one script.
    apart: AtomicBool,
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

impl Link {
    /// Makes one call, together with others that are pending.
    ///
    /// Dropping the future takes back a call that is not sent yet, and no other.
    pub(super) async fn call(self: &Arc<Self>, call: Call, departure: Departure) -> Answer {
        let mut seat = self.join(call, departure);
        let lost = || RedisError::from((ErrorKind::Io, "the connection is gone"));
        (&mut seat.answer).await.unwrap_or_else(|_| Err(lost()))
    }

    fn join(self: &Arc<Self>, call: Call, departure: Departure) -> Seat {
        let (sender, answer) = oneshot::channel();
        let mut state = self.coalescer.lock();
        let (batch, opens) = match &state.gathering {
            Some(batch) => (Arc::clone(batch), false),
            None => (Arc::new(Batch::new(Arc::clone(self))), true),
        };
        let full = batch.add(call, sender);
        let idle = state.in_flight == 0 && departure == Departure::Now;
        if full || idle || self.coalescer.apart.load(Ordering::Relaxed) {
            state.gathering = None;
            state.in_flight += 1;
            drop(state);
            batch.send();
        } else if opens {
            state.gathering = Some(Arc::clone(&batch));
            state.due = false;
            drop(state);
            LastCall(Arc::clone(&batch)).wait();
        }
        Seat { answer, batch }
    }

    /// Makes calls, and reads one answer for each.
    async fn run(self: Arc<Self>, calls: Vec<Call>) -> Vec<Answer> {
        if calls.is_empty() {
            return Vec::new();
        }
        match self.eval_calls(&calls).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // None was executed, for the keys of one. Which one, each finds out alone.
            Err(error) if calls.len() > 1 && error.code().is_some_and(|code| OF_KEYS.contains(&code)) => {
                if error.code() == Some("CROSSSLOT") {
                    self.coalescer.apart.store(true, Ordering::Relaxed);
                }
                let link = &*self;
                let alone =
                    |call| async move { link.eval_calls(slice::from_ref(call)).await?.pop().ok_or_else(unreadable) };
                all(calls.iter().map(alone).collect()).await
            }
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Makes calls by one script, which answers all of them or fails as a whole.
    async fn eval_calls(&self, calls: &[Call]) -> Result<Vec<Value>, RedisError> {
        let keys: Vec<&[u8]> = calls.iter().flat_map(Call::keys).collect();
        let takings = || calls.iter().filter_map(|call| call.taking);
        // A token may always be greater than it must.
        let floor = takings().map(|taking| taking.floor).max().map_or(0, FencingToken::get);
        let deadline = takings().map(|taking| taking.deadline).min().unwrap_or(0);
        let answer = self
            .eval(&SCRIPTS.calls, &keys, |command| {
                command.arg(value::millis(FENCE_KEPT)).arg(floor).arg(deadline);
                for word in calls.iter().flat_map(Call::arguments) {
                    command.arg(word);
                }
            })
            .await?;
        let received = Clock::system().now();
        let Value::Array(mut answers) = answer else { return Err(unreadable()) };
        match answers.first() {
            Some(Value::Int(now)) if answers.len() == calls.len() + 1 => {
                if takings().next().is_some() {
                    self.time.observe(now.unsigned_abs(), received);
                }
                answers.remove(0);
                Ok(answers)
            }
            _ => Err(unreadable()),
        }
    }
}

impl Coalescer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a batch if nobody else has, now or when another has landed.
    fn depart(&self, batch: &Arc<Batch>) {
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

    /// Counts a batch that is over. What has gathered must not depend on a task that a busy worker
    /// thread keeps from running.
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
struct Seat {
    answer: oneshot::Receiver<Answer>,
    batch: Arc<Batch>,
}

/// Sends a batch when it is dropped: by a task that was run, or by a runtime that ends.
struct LastCall(Arc<Batch>);

impl LastCall {
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

impl Drop for LastCall {
    fn drop(&mut self) {
        self.0.link.coalescer.depart(&self.0);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.answer.close();
        if self.batch.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.batch.abandon();
        }
    }
}

/// Calls that leave together.
struct Batch {
    link: Arc<Link>,
    stage: Mutex<Stage>,
    /// How many callers have not gone.
    callers: AtomicUsize,
    task: InlineTask,
}

enum Stage {
    Gathering(Vec<(Call, oneshot::Sender<Answer>)>),
    Sent { work: BoxFuture<'static, Vec<Answer>>, callers: Vec<oneshot::Sender<Answer>> },
    Over,
}

impl Batch {
    fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            stage: Mutex::new(Stage::Gathering(Vec::new())),
            callers: AtomicUsize::new(0),
            task: InlineTask::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call along. Returns whether there is room for no other.
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
        if let Stage::Gathering(calls) = &mut *stage {
            // Whose caller has gone, it must not be executed for.
            let (calls, callers) = mem::take(calls).into_iter().filter(|(_, caller)| !caller.is_closed()).unzip();
            // It is polled by the driver of the connection, whose own budget is not to be used up.
            let work = Box::pin(unconstrained(Arc::clone(&self.link).run(calls)));
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
        for (caller, answer) in callers.into_iter().zip(answers) {
            let _ = caller.send(answer);
        }
        self.link.coalescer.landed();
        Poll::Ready(())
    }

    /// Drops a batch that was sent and that nobody waits for any more.
    fn abandon(&self) {
        let mut stage = self.lock();
        // Until it is sent, somebody may have joined after the last had gone.
        if matches!(&*stage, Stage::Sent { .. }) && self.callers.load(Ordering::Acquire) == 0 {
            let _dropped_after_the_lock = mem::replace(&mut *stage, Stage::Over);
            drop(stage);
            self.link.coalescer.landed();
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

/// Goes behind all that is ready to run.
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

/// Awaits all of some futures at once.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// The error of an answer that makes no sense.
fn unreadable() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "not what the script answers"))
}
