//! The engine: state that callers, guards and the keeper of one manager share.

mod pending;
mod room;
mod stage;
pub(crate) mod ticks;
mod tokens;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::engine::lease::Lease;
use crate::engine::lease::grants::Grants;
use crate::engine::shared::pending::Pending;
use crate::engine::shared::room::Room;
use crate::engine::shared::stage::Stage;
use crate::engine::shared::ticks::Ticks;
use crate::engine::shared::tokens::NewestTokens;
use crate::engine::timer::Timer;
use lock_store::contract::backend::{BoxFuture, DynBackend, Inbox, Message};
use lock_store::contract::event::{Notice, Observers};
use lock_store::types::error::{LockError, LossReason, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::{Durability, HandoffLimits, LockOptions};
use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::fork::MadeIn;

/// How long a command must have been in flight before a missing answer counts against the store. In the last moments of a
/// wait a missing answer proves nothing, nor after the one second in which waits and observers look at a holder.
pub(crate) const FAIR_TIME: Duration = Duration::from_millis(100);

/// The shared engine of one manager. Callers, guards and the keeper work on it together.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn DynBackend>,
    pub(crate) clock: Clock,
    pub(crate) timer: Arc<Timer<Lease>>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) inbox: Inbox,
    /// Whether the store tells waiters when to ask again.
    pub(crate) wakes: bool,
    /// When sleeping claims ask again.
    pub(crate) ticks: Ticks,
    /// The limits of local hand-offs.
    pub(crate) handoff: HandoffLimits,
    pub(crate) observers: Arc<Observers>,
    /// The newest fencing token of each key. The next token of the key must be higher.
    pub(crate) newest_tokens: NewestTokens,
    /// Whether a lease of this process has ever shared its lock.
    pub(crate) shares: AtomicBool,
    /// Background work for the keeper.
    jobs: UnboundedSender<BoxFuture<'static, ()>>,
    /// Background work that must not be lost when the program ends.
    pending: Pending,
    /// How many cleanups are in flight.
    room: Room,
    stage: Stage,
    /// Whether the keeper has a thread of its own.
    threaded: bool,
    /// The process in which the keeper runs.
    pub(crate) made_in: MadeIn,
}

/// The keeper's input: work from this process, and the store's own messages.
pub(crate) struct Mail {
    pub(crate) jobs: UnboundedReceiver<BoxFuture<'static, ()>>,
    pub(crate) messages: UnboundedReceiver<Message>,
}

/// Why a wait ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    TimedOut,
    Closed,
}

/// Where a command to the store is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// By an asynchronous caller, on its own runtime if it has one.
    Async,
    /// On the keeper, for a caller that blocks its thread and perhaps the runtime with it.
    Blocking,
}

impl Engine {
    /// Makes an engine, and the receiving end for its keeper.
    pub(crate) fn new(
        backend: Arc<dyn DynBackend>,
        observers: Arc<Observers>,
        handoff: HandoffLimits,
        clock: Clock,
        threaded: bool,
        batch: usize,
    ) -> (Arc<Self>, Mail) {
        backend.attach(&clock);
        let (jobs, job_queue) = unbounded_channel();
        let (inbox, messages) = Inbox::new(Arc::clone(&observers));
        let engine = Self {
            wakes: backend.capabilities().queue || backend.capabilities().wakes,
            ticks: Ticks::default(),
            timer: Arc::new(Timer::new(clock.clone(), batch)),
            backend,
            clock,
            grants: Arc::default(),
            inbox,
            handoff,
            observers,
            newest_tokens: NewestTokens::default(),
            shares: AtomicBool::new(false),
            jobs,
            pending: Pending::default(),
            room: Room::default(),
            stage: Stage::default(),
            threaded,
            made_in: MadeIn::this_process(),
        };
        (Arc::new(engine), Mail { jobs: job_queue, messages })
    }

    /// Returns a number that no other living engine has.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Numbers an acquire, across all managers of the process.
    pub(crate) fn number_attempt() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs a cleanup on the keeper. The program waits for it before it ends.
    pub(crate) fn clean_up(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.room.take();
        let cleanup = Cleanup(self.enter());
        let job = Box::pin(async move {
            work.await;
            drop(cleanup);
        });
        // The send fails only if the runtime that drove the keeper has ended. Then no command can be sent to the store.
        let _ = self.jobs.send(job);
    }

    /// Returns whether a new claim need not wait for [`room`](Self::room).
    pub(crate) fn has_room(&self) -> bool {
        self.room.is_left()
    }

    /// Waits until few enough cleanups are in flight to allow a new claim, until a time at the latest.
    pub(crate) async fn room(&self, until: Timestamp, accepted: bool) -> Result<()> {
        self.until(until, accepted, self.room.left()).await.map_err(|why| match why {
            Interrupted::Closed => self.refusal(),
            Interrupted::TimedOut => LockError::unavailable(
                "too many releases of dropped guards still wait for the store, which frees locks more slowly than \
                 the program drops guards; await release() instead of dropping guards, or take locks less often",
            ),
        })
    }

    /// Runs a future on the keeper for as long as the keeper lives.
    pub(crate) fn run_on_keeper(&self, work: impl Future<Output = ()> + Send + 'static) {
        let _ = self.jobs.send(Box::pin(work));
    }

    /// Counts one piece of work as pending until the entry is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> PendingEntry {
        self.pending.begin();
        PendingEntry(Arc::clone(self))
    }

    /// Chooses where a command is polled: by the caller, or on the keeper if the caller has no runtime.
    pub(crate) fn route<T: Send + 'static>(
        &self,
        caller: Caller,
        command: BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'static, Result<T>> {
        if caller == Caller::Async && Handle::try_current().is_ok() {
            return command;
        }
        let (mut sender, receiver) = oneshot::channel();
        let sent = self.jobs.send(Box::pin(async move {
            tokio::select! {
                biased;
                // The caller has stopped waiting, so the command must not be sent again.
                () = sender.closed() => {}
                answer = command => {
                    let _ = sender.send(answer);
                }
            }
        }));
        Box::pin(async move {
            match (sent, receiver.await) {
                (Ok(()), Ok(answer)) => answer,
                _ => Err(LockError::unavailable("the runtime that drove the lock manager has ended")),
            }
        })
    }

    /// Sends a command of an asynchronous caller, and waits so long for the answer. An error names the key.
    pub(crate) async fn send<T: Send + 'static>(
        &self,
        op: &'static str,
        key: &LockKey,
        within: Duration,
        command: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let (until, command) = (self.clock.now().after(within), self.route(Caller::Async, command));
        self.bounded(op, key, until, command).await.map_err(|error| error.with_key(key))
    }

    /// Awaits a command to the store, until a time at the latest. Tells the observers how it went, unless it had too
    /// little time to count.
    pub(crate) async fn bounded<T>(
        &self,
        op: &'static str,
        key: &LockKey,
        until: Timestamp,
        command: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.timed(op, key, (self.clock.now(), until), command, |_| None).await.0
    }

    /// Does the same for a command whose send time is known, and whose answer may tell that it failed. Also returns when it ended.
    pub(crate) async fn timed<T>(
        &self,
        op: &'static str,
        key: &LockKey,
        (sent_at, until): (Timestamp, Timestamp),
        command: impl Future<Output = Result<T>>,
        failed: impl FnOnce(&T) -> Option<&LockError>,
    ) -> (Result<T>, Timestamp) {
        let answer = tokio::select! {
            biased;
            answer = command => Some(answer),
            () = self.timer.sleep_long(sent_at, until) => None,
        };
        let now = self.clock.now();
        let counts = answer.is_some() || until.since(sent_at) >= FAIR_TIME * if op == "holder" { 20 } else { 1 };
        let answer = answer.unwrap_or_else(|| Err(self.no_answer(key, now.since(sent_at))));
        if counts {
            let (node, elapsed) = (self.backend.node(self.backend.lane(key)), now.since(sent_at));
            let error = answer.as_ref().map_or_else(Some, failed);
            self.observers.notice(&Notice::Command { op, node, elapsed, error });
        }
        (answer, now)
    }

    /// Returns the error of a command that was not answered in time.
    pub(crate) fn no_answer(&self, key: &LockKey, waited: Duration) -> LockError {
        let node = self.backend.node(self.backend.lane(key));
        LockError::unavailable(format!(
            "{node} did not answer within {waited:.1?}; check that it is up, that both ends use TLS or \
             neither does, and that the ttl leaves time for slow answers",
        ))
    }

    /// Checks that the store can do what the caller asks for.
    pub(crate) fn check(&self, options: &LockOptions) -> Result<()> {
        options.validate()?;
        let asks = options.durability.is_some_and(|durability| durability != Durability::Master);
        if asks && !self.backend.capabilities().durability {
            return Err(LockError::misconfigured(
                "this store cannot have locks confirmed by replicas or disks; remove the durability, or use one Redis server, \
                 Sentinel or a cluster",
            ));
        }
        Ok(())
    }

    /// Returns how many failovers of the server that has the key are known.
    pub(crate) fn failovers(&self, key: &LockKey) -> u64 {
        self.backend.failovers(self.backend.lane(key))
    }

    /// Returns why a lease ended whose key is gone although it had time left.
    pub(crate) fn loss_by_others(&self, lease: &Lease) -> LossReason {
        let (lane, before) = (self.backend.lane(&lease.claim.key), lease.state().failovers);
        if self.backend.has_failed_over(lane, before) { LossReason::Failover } else { LossReason::Stolen }
    }

    /// Blocks until all cleanup is done or the time is up. Does nothing on the keeper's thread, which would wait for
    /// itself, or without one.
    pub(crate) fn drain_blocking(&self, within: Duration) {
        if self.threaded && !self.made_in.was_forked() && std::thread::current().name() != Some("lock-keeper") {
            self.pending.wait(within);
        }
    }

    /// Waits until all cleanup is done or `until` has come. Returns whether it is done.
    pub(crate) async fn drained(&self, until: Timestamp) -> bool {
        tokio::select! {
            biased;
            () = self.pending.emptied() => true,
            () = self.timer.sleep_until(until) => false,
        }
    }

    /// Returns whether no cleanup is left, and no acquire is under way that may need one.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        self.pending.is_empty()
    }

    /// Awaits a future, until a time at the latest or until a shutdown refuses the caller.
    pub(crate) async fn until<T>(
        &self,
        at: Timestamp,
        accepted: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        let mut refused = pin!(self.stage.until_refused(accepted));
        if self.refuses(accepted) {
            return Err(Interrupted::Closed);
        }
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.timer.sleep_until(at) => Err(Interrupted::TimedOut),
            () = &mut refused => Err(Interrupted::Closed),
        }
    }

    /// Refuses new work, and wakes all callers that wait for the store.
    pub(crate) fn stop(&self) {
        self.stage.stop();
    }

    /// Refuses all work, and wakes all callers that wait for the store.
    pub(crate) fn close(&self) {
        self.stage.close();
    }

    /// Waits until new work is refused, or accepted work if `accepted` is set.
    pub(crate) async fn until_refused(&self, accepted: bool) {
        self.stage.until_refused(accepted).await;
    }

    /// Returns whether an acquire is refused. `accepted` says whether it belongs to work accepted before the shutdown.
    pub(crate) fn refuses(&self, accepted: bool) -> bool {
        self.stage.refuses(accepted)
    }

    /// Returns the error of an acquire that is refused.
    pub(crate) fn refusal(&self) -> LockError {
        if self.is_closed() { LockError::shut_down() } else { LockError::stopping() }
    }

    /// Returns whether the keeper has ended with the runtime that drove it.
    pub(crate) fn is_unattended(&self) -> bool {
        self.jobs.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.refuses(true)
    }

    /// Returns whether a caller may block its thread and is still served.
    pub(crate) fn serves_blocking_callers(&self) -> bool {
        self.threaded
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("backend", &self.backend).field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// One piece of pending work. It counts until it is dropped, finished or not.
#[derive(Debug)]
pub(crate) struct PendingEntry(Arc<Engine>);

impl PendingEntry {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        self.0.pending.finish();
    }
}

/// One cleanup in flight. It counts until it is dropped, finished or not.
struct Cleanup(PendingEntry);

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.engine().room.give_back();
    }
}
