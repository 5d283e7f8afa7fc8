//! The keeper: one thread per manager that renews, times out, and cleans up behind callers.
//!
//! It has a runtime of its own. A blocked or starved application runtime cannot starve the
//! watchdog, a runtime that ends does not take it along, and `Drop` works anywhere because it only
//! enqueues here.

mod background;
pub(crate) mod grants;
mod hear;
mod owned_hold;
mod pending;
mod release;
pub(crate) mod schedule;
mod wait;
mod watchdog;
mod wheel;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use crate::backend::{BoxFuture, DynBackend, Inbox, Message};
use crate::claim::Handoff;
use crate::clock::{Clock, Timestamp, jitter};
use crate::error::{LockError, LockErrorKind, Result};
use crate::event::{Notice, Observers};
use crate::gate::Gate;
use crate::keeper::grants::Grants;
use crate::keeper::schedule::{Alarm, Schedule};
use crate::key::LockKey;
use crate::lease::HandoffLimits;

pub(crate) use owned_hold::OwnedHold;
pub(crate) use pending::PendingEntry;
pub use release::ReleaseOutcome;
pub(crate) use release::{abandon, ensure_freed, retire, revoke};
pub(crate) use wait::Interrupted;

use pending::Pending;

/// How long the last handle of a manager waits for releases that are still on their way.
const DRAIN_ON_DROP: Duration = Duration::from_millis(250);

/// The time a command must have had before the lack of an answer counts against the store. One that is
/// sent in the last moments of a wait says nothing of it.
const FAIR_TIME: Duration = Duration::from_millis(100);

/// The shared engine of one manager: what callers, guards and the keeper work on together.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn DynBackend>,
    pub(crate) clock: Clock,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) gate: Arc<Gate<Handoff>>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) inbox: Inbox,
    /// Whether the store queues waiters.
    pub(crate) queues: bool,
    /// How far local hand-offs may go.
    pub(crate) handoff: HandoffLimits,
    pub(crate) observers: Arc<Observers>,
    /// The newest fencing token seen for any key: the floor of the next.
    pub(crate) newest_token: AtomicU64,
    /// Background work for the keeper.
    jobs: UnboundedSender<BoxFuture<'static, ()>>,
    /// Background work that must not be lost when the program ends.
    pending: Pending,
    closed: AtomicBool,
    /// Wakes those who wait when the manager is shut down.
    closing: Notify,
    /// Whether the keeper has a thread of its own.
    threaded: bool,
}

/// Where a command to the store is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// By an asynchronous caller: on its own runtime if it has one.
    Async,
    /// By a caller that blocks its thread, and with it perhaps the runtime: on the keeper.
    Blocking,
}

impl Engine {
    /// Tells this engine from others that live at the same time.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Starts an engine with a keeper thread.
    pub(crate) fn start(
        backend: Arc<dyn DynBackend>,
        observers: Arc<Observers>,
        handoff: HandoffLimits,
    ) -> Result<Arc<Self>> {
        let refused = |error: std::io::Error| {
            LockError::misconfigured("the keeper thread could not be started; raise the process's thread limit")
                .with_source(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let (engine, keeper) = Self::assemble(backend, observers, handoff, Clock::system(), true);
        let run = move || runtime.block_on(keeper.run());
        std::thread::Builder::new().name("lock-keeper".to_owned()).spawn(run).map_err(refused)?;
        Ok(engine)
    }

    /// Starts an engine whose keeper is a task of the current runtime, on its clock.
    pub(crate) fn start_on_current_runtime(
        backend: Arc<dyn DynBackend>,
        observers: Arc<Observers>,
        handoff: HandoffLimits,
    ) -> Result<Arc<Self>> {
        if Handle::try_current().is_err() {
            return Err(LockError::misconfigured(
                "drive_on_current_runtime was asked for outside of a tokio runtime; build the manager inside of one",
            ));
        }
        let (engine, keeper) = Self::assemble(backend, observers, handoff, Clock::of_current_runtime(), false);
        #[expect(clippy::disallowed_methods, reason = "the caller asked for the keeper to live on this runtime")]
        tokio::spawn(keeper.run());
        Ok(engine)
    }

    fn assemble(
        backend: Arc<dyn DynBackend>,
        observers: Arc<Observers>,
        handoff: HandoffLimits,
        clock: Clock,
        threaded: bool,
    ) -> (Arc<Self>, Keeper) {
        backend.attach_dyn(&clock);
        let (jobs, job_queue) = unbounded_channel();
        let (inbox, messages) = Inbox::new(Arc::clone(&observers));
        let schedule = Arc::new(Schedule::new(clock.clone()));
        let engine = Arc::new(Self {
            backend: Arc::clone(&backend),
            clock,
            schedule: Arc::clone(&schedule),
            gate: Arc::new(Gate::new()),
            grants: Arc::default(),
            inbox: inbox.clone(),
            queues: backend.capabilities_dyn().queue,
            handoff,
            observers,
            newest_token: AtomicU64::new(0),
            jobs,
            pending: Pending::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            threaded,
        });
        let keeper = Keeper {
            engine: Arc::downgrade(&engine),
            backend,
            schedule,
            jobs: job_queue,
            messages,
            inbox,
            tasks: JoinSet::new(),
        };
        (engine, keeper)
    }

    /// Numbers an acquire, across all managers of the process.
    pub(crate) fn number_attempt() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs cleanup on the keeper, which is waited for when the program ends.
    pub(crate) fn clean_up(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let entry = self.enter();
        let job = Box::pin(async move {
            work.await;
            drop(entry);
        });
        // Refused only when the runtime that drove the keeper has ended: then nothing can be sent.
        let _ = self.jobs.send(job);
    }

    /// Counts something as not done until the entry is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> PendingEntry {
        PendingEntry::new(self)
    }

    /// Chooses where a command is polled: by the caller, or on the keeper if the caller has no
    /// runtime to poll it on.
    pub(crate) fn route<T: Send + 'static>(
        &self,
        caller: Caller,
        command: BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'static, Result<T>> {
        if caller == Caller::Async && Handle::try_current().is_ok() {
            return command;
        }
        let (sender, receiver) = oneshot::channel();
        let sent = self.jobs.send(Box::pin(async move {
            let _ = sender.send(command.await);
        }));
        Box::pin(async move {
            match (sent, receiver.await) {
                (Ok(()), Ok(answer)) => answer,
                _ => Err(LockError::unavailable("the keeper has ended with the runtime it was driven on")),
            }
        })
    }

    /// Awaits a command to the store, at most until a moment, and tells the observers how it went,
    /// unless it had no time to go anyhow.
    pub(crate) async fn bounded<T>(
        &self,
        op: &'static str,
        key: &LockKey,
        until: Timestamp,
        command: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let sent_at = self.clock.now();
        let answer = tokio::select! {
            biased;
            answer = command => answer,
            () = self.schedule.sleep_until(until) => {
                let error = self.no_answer(key, sent_at);
                if until.since(sent_at) < FAIR_TIME {
                    return Err(error);
                }
                Err(error)
            }
        };
        self.emit_command(op, key, sent_at, answer.as_ref().err());
        answer
    }

    /// The error of a command that was not answered in time.
    fn no_answer(&self, key: &LockKey, sent_at: Timestamp) -> LockError {
        let waited = self.clock.now().since(sent_at);
        let node = self.backend.node_dyn(self.backend.lane_dyn(key));
        LockError::unavailable(format!(
            "{node} did not answer within {waited:.1?}; check that it is up, and that the ttl leaves time for slow answers",
        ))
    }

    pub(crate) fn emit_command(&self, op: &'static str, key: &LockKey, sent_at: Timestamp, error: Option<&LockError>) {
        let node = self.backend.node_dyn(self.backend.lane_dyn(key));
        let elapsed = self.clock.now().since(sent_at);
        self.observers.notice(&Notice::Command { op, node, elapsed, error });
    }

    /// Blocks until all cleanup is done, or time is up. Does nothing where blocking would keep the
    /// keeper itself from working.
    fn drain_blocking(&self, within: Duration) {
        if self.threaded && std::thread::current().name() != Some("lock-keeper") {
            self.pending.wait(within);
        }
    }

    /// Waits until all cleanup is done, or a moment has come. Returns whether it is done.
    pub(crate) async fn drained(&self, until: Timestamp) -> bool {
        tokio::select! {
            biased;
            () = self.pending.emptied() => true,
            () = self.schedule.sleep_until(until) => false,
        }
    }

    /// Returns whether a caller may block its thread and still be served.
    pub(crate) fn serves_blocking_callers(&self) -> bool {
        self.threaded
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("backend", &self.backend).field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// What every handle, guard and acquire of a manager shares. The last of them to go waits for the
/// cleanup that is still to be done, since the program may be about to end.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    pub(crate) engine: Arc<Engine>,
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.engine.drain_blocking(DRAIN_ON_DROP);
    }
}

/// The keeper's side of an engine. It ends when the engine is gone, with every guard and handle.
struct Keeper {
    engine: Weak<Engine>,
    backend: Arc<dyn DynBackend>,
    schedule: Arc<Schedule>,
    jobs: UnboundedReceiver<BoxFuture<'static, ()>>,
    messages: UnboundedReceiver<Message>,
    inbox: Inbox,
    /// Everything the keeper runs: aborted when it ends.
    tasks: JoinSet<()>,
}

impl Keeper {
    async fn run(mut self) {
        self.tasks.spawn(drive(Arc::clone(&self.backend), self.inbox.clone(), self.schedule.clock.clone()));
        loop {
            self.ring_alarms();
            tokio::select! {
                // In a fixed order, so that a run on virtual time can be repeated. Alarms come first.
                biased;
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        self.tasks.spawn(job);
                    }
                    None => return,
                },
                Some(message) = self.messages.recv() => self.hear(message),
                Some(_) = self.tasks.join_next() => {}
                () = self.schedule.first_alarm() => {}
            }
        }
    }

    /// Wakes every sleeper and serves every lease whose time has come.
    fn ring_alarms(&mut self) {
        let due = self.schedule.take_due(self.schedule.clock.now());
        let mut leases = Vec::new();
        for alarm in due {
            match alarm {
                Alarm::Sleeper(sleeper) => sleeper.ring(),
                Alarm::Lease(lease) => leases.push(lease),
            }
        }
        if !leases.is_empty() {
            self.inspect(leases, Duration::ZERO);
            self.schedule.served();
        }
    }
}

/// How long to pause before the store's background work is started again: at first, and at most.
const RESTART: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Runs the store's own background work, again and again. A store that it ends at once for, as one that
/// refuses our password, is asked ever less often.
async fn drive(backend: Arc<dyn DynBackend>, inbox: Inbox, clock: Clock) {
    let mut pause = RESTART.0;
    loop {
        let started = clock.now();
        let error = Arc::clone(&backend).drive_dyn(inbox.clone()).await;
        if clock.now().since(started) > RESTART.1 {
            pause = RESTART.0;
        }
        if pause == RESTART.0 && error.kind() == LockErrorKind::Misconfigured {
            tracing::warn!(%error, "the lock store refuses a background connection; waiters poll until it lets us in");
        } else {
            tracing::debug!(%error, ?pause, "the lock store's background connection ended, starting it again");
        }
        clock.sleep_until(clock.now().after(jitter(pause / 2, pause))).await;
        pause = (pause * 2).min(RESTART.1);
    }
}
