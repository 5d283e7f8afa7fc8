//! The thread of a store. Its client and its calls outlive the runtimes of their callers, and a caller needs none.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{OwnedMutexGuard, oneshot, watch};

use crate::contract::backend::{AcquireRequest, Claim, Inbox};
use crate::types::error::{LockError, Result};
use crate::types::fencing::FencingToken;
use crate::types::owner::OwnerId;
use crate::types::system::clock::{Clock, Timestamp};
use crate::types::system::sync::Mutex;

/// How long calls in flight may take after their caller or the store is gone.
pub const LAST: Duration = Duration::from_secs(2);

/// How many turns are kept that may be unused.
const TURNS: usize = 1024;

/// Gives a future up after a time. Only on the runtime of a store or of the keeper, which have timers.
pub async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    #[expect(clippy::disallowed_methods, reason = "runs on a runtime with a timer")]
    tokio::time::timeout(time, future).await.ok()
}

/// Pauses, where [`within`] may be called.
pub async fn sleep(time: Duration) {
    within(time, std::future::pending::<()>()).await;
}

/// The state that the calls of a store share.
pub trait OnThread: Deref<Target = ThreadState> + Send + Sync + Sized + 'static {
    type Settings: Clone + Debug;

    /// The names of the thread and, in error texts, of the server.
    const THREAD: &'static str;
    const SERVER: &'static str;

    /// Makes the state, and starts the tasks that run until the store is dropped.
    fn begin(settings: Self::Settings, state: ThreadState) -> Arc<Self>;

    /// Gives back a lock whose caller has gone.
    fn give_back(shared: &Arc<Self>, claim: &Claim) -> impl Future<Output = ()> + Send;

    /// Ends the work of a store that was dropped, after its calls in flight.
    fn end(shared: &Arc<Self>) -> impl Future<Output = ()> + Send;
}

/// The part of the state that is the same in every store.
#[derive(Debug)]
pub struct ThreadState {
    pub clock: Clock,
    pub runtime: Handle,
    turns: Mutex<HashMap<OwnerId, Arc<tokio::sync::Mutex<()>>>>,
    inbox: Mutex<Option<Inbox>>,
    /// Each call in flight has a receiver.
    in_flight: watch::Sender<()>,
}

impl ThreadState {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits until no other call works on a claim.
    pub async fn turn(&self, owner: OwnerId, until: Timestamp) -> Result<OwnedMutexGuard<()>> {
        let turn = {
            let mut turns = self.turns.lock();
            if turns.len() >= TURNS {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(turns.entry(owner).or_default())
        };
        within(until.since(self.now()), turn.lock_owned()).await.ok_or_else(|| {
            LockError::not_executed("an earlier request of this claim has no answer yet; the server is slow or away")
        })
    }

    /// Returns the inbox of the store's manager while the manager listens.
    pub fn inbox(&self) -> Option<Inbox> {
        self.inbox.lock().clone()
    }

    /// Lets messages reach an inbox until the returned guard is dropped.
    pub fn listen<'a>(&'a self, inbox: &'a Inbox) -> Listening<'a> {
        *self.inbox.lock() = Some(inbox.clone());
        Listening(self, inbox)
    }

    /// Runs a call on the thread. If its caller drops this, the call goes on.
    async fn run<A, F>(&self, call: impl FnOnce(oneshot::Sender<Result<A>>) -> F) -> Result<A>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (call, in_flight) = (call(answer), self.in_flight.subscribe());
        self.runtime.spawn(async move {
            call.await;
            drop(in_flight);
        });
        answered.await.map_err(|_| LockError::unavailable("the thread of the store has ended"))?
    }
}

#[derive(Debug)]
pub struct Listening<'a>(&'a ThreadState, &'a Inbox);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.1.set_open(false);
        *self.0.inbox.lock() = None;
    }
}

/// A store's thread. The first call starts it.
pub struct StoreThread<S: OnThread> {
    pub settings: S::Settings,
    /// The thread ends when the sender is dropped.
    started: OnceLock<(Arc<S>, oneshot::Sender<()>)>,
}

impl<S: OnThread> Debug for StoreThread<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl<S: OnThread> StoreThread<S> {
    pub const fn new(settings: S::Settings) -> Self {
        Self { settings, started: OnceLock::new() }
    }

    /// Returns the shared state if the thread was started.
    pub fn started(&self) -> Option<&Arc<S>> {
        self.started.get().map(|(shared, _)| shared)
    }

    /// Returns the shared state.
    pub fn shared(&self) -> Result<&Arc<S>> {
        if let Some(shared) = self.started() {
            return Ok(shared);
        }
        let failed = |error| LockError::misconfigured("no thread could be started for the store").with_source(error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (turns, inbox, in_flight) = Default::default();
        let state = ThreadState { clock: Clock::system(), runtime: runtime.handle().clone(), turns, inbox, in_flight };
        let shared = S::begin(self.settings.clone(), state);
        let (working, (alive, dropped)) = (Arc::clone(&shared), oneshot::channel::<()>());
        let work = move || {
            runtime.block_on(async {
                let _ = dropped.await;
                within(LAST, working.in_flight.closed()).await;
                S::end(&working).await;
            });
            // Without waiting for a look-up of a name, or for a program that gives a token.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name(S::THREAD.to_owned()).spawn(work).map_err(failed)?;
        // Another caller may have been first. Then the thread of this one ends at once.
        Ok(&self.started.get_or_init(|| (shared, alive)).0)
    }

    /// Runs a call, and gives it up when its time is over. If its caller drops this, the call goes on.
    pub async fn ask_within<A, F>(&self, time: Duration, call: impl FnOnce(Arc<S>, Timestamp) -> F) -> Result<A>
    where
        A: Send + 'static,
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let shared = self.shared()?;
        let call = call(Arc::clone(shared), shared.now().after(time));
        let late = move || format!("{} has not answered within {time:?}, and may still do so", S::SERVER);
        let answered = async move { within(time, call).await.unwrap_or_else(|| Err(LockError::unavailable(late()))) };
        // The caller may have gone.
        shared.run(|answer| async move { drop(answer.send(answered.await)) }).await
    }

    /// Takes a lock by a call. If its caller has gone when the answer comes, the lock is given back.
    pub async fn acquire<A: Send + 'static, F>(
        &self,
        request: &AcquireRequest,
        call: impl FnOnce(Arc<S>, AcquireRequest, Timestamp) -> F + Send + 'static,
    ) -> Result<A>
    where
        F: Future<Output = Result<A>> + Send,
    {
        if request.floor.get() > FencingToken::PLAIN.get() / 2 * 3 {
            let text = "the newest token known leaves too little room for others; find out which program stored it";
            return Err(LockError::misconfigured(text).with_key(&request.claim.key));
        }
        let (state, request, claim) = (self.shared()?, request.clone(), request.claim.clone());
        let (shared, until) = (Arc::clone(state), state.now().after(request.execute_within));
        state
            .run(|answer| async move {
                let _turn = match shared.turn(claim.owner, until).await {
                    Ok(turn) if !answer.is_closed() => turn,
                    Ok(_) => return,
                    Err(error) => return drop(answer.send(Err(error))),
                };
                let attempt = call(Arc::clone(&shared), request, until).await;
                if answer.send(attempt.map_err(|error| error.with_key(&claim.key))).is_err() {
                    S::give_back(&shared, &claim).await;
                }
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Deref;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use lock_testing::limit;
    use tokio::sync::oneshot;

    use super::{OnThread, StoreThread, ThreadState, sleep};
    use crate::contract::backend::{AcquireRequest, Claim};
    use crate::types::error::LockErrorKind;
    use crate::types::fencing::FencingToken;
    use crate::types::key::LockKey;
    use crate::types::owner::HolderInfo;
    use crate::types::system::blocking::block_on;

    /// Counts of the steps of a store.
    #[derive(Clone, Debug, Default)]
    struct Log {
        calls: Arc<AtomicU32>,
        given_back: Arc<AtomicU32>,
        ends: Arc<AtomicU32>,
    }

    struct Counting(ThreadState, Log);

    impl Deref for Counting {
        type Target = ThreadState;

        fn deref(&self) -> &ThreadState {
            &self.0
        }
    }

    impl OnThread for Counting {
        type Settings = Log;

        const THREAD: &'static str = "lock-test";
        const SERVER: &'static str = "the test";

        fn begin(settings: Log, state: ThreadState) -> Arc<Self> {
            Arc::new(Self(state, settings))
        }

        async fn give_back(shared: &Arc<Self>, _: &Claim) {
            shared.1.given_back.fetch_add(1, Ordering::Relaxed);
        }

        async fn end(shared: &Arc<Self>) {
            shared.1.ends.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn store() -> (StoreThread<Counting>, Log) {
        let log = Log::default();
        (StoreThread::new(log.clone()), log)
    }

    fn request() -> AcquireRequest {
        let claim = Claim::new(LockKey::new("report").unwrap(), Duration::from_secs(60));
        AcquireRequest::new(claim, HolderInfo::new("h", 1, "s"))
    }

    async fn grant(shared: Arc<Counting>, pause: Duration) -> crate::Result<u32> {
        sleep(pause).await;
        Ok(shared.1.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// Polls a future once, and drops it.
    fn give_up(call: impl Future) {
        assert!(pin!(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    const SHORT: Duration = Duration::from_millis(10);

    #[test]
    #[limit]
    fn a_call_ends_in_time_and_goes_on_without_its_caller() {
        let (store, log) = store();
        assert_eq!(block_on(store.ask_within(Duration::from_secs(30), |shared, _| grant(shared, SHORT))), Ok(0));
        let late = block_on(store.ask_within(SHORT, |shared, _| grant(shared, Duration::from_secs(3600)))).unwrap_err();
        assert!(late.is_ambiguous() && late.to_string().contains("the test has not answered within 10ms"), "{late}");
        give_up(store.ask_within(Duration::from_secs(30), |shared, _| grant(shared, SHORT)));
        wait_until(|| log.calls.load(Ordering::Relaxed) == 2);
        assert_eq!(log.ends.load(Ordering::Relaxed), 0);
        drop(store);
        wait_until(|| log.ends.load(Ordering::Relaxed) == 1);
    }

    #[test]
    #[limit]
    fn a_lock_whose_caller_has_gone_is_given_back() {
        let (store, log) = store();
        assert_eq!(block_on(store.acquire(&request(), |shared, _, _| grant(shared, SHORT))), Ok(0));
        let (go_on, waits) = oneshot::channel::<()>();
        let (request, mut context) = (request(), Context::from_waker(Waker::noop()));
        let mut call = Box::pin(store.acquire(&request, |shared, _, _| async move {
            let granted = grant(shared, SHORT).await;
            let _ = waits.await;
            granted
        }));
        assert!(call.as_mut().poll(&mut context).is_pending());
        wait_until(|| log.calls.load(Ordering::Relaxed) == 2);
        drop((call, go_on));
        wait_until(|| log.given_back.load(Ordering::Relaxed) == 1);
    }

    #[test]
    #[limit]
    fn calls_of_one_claim_take_turns() {
        let ((store, log), mut request) = (store(), request());
        let owner = request.claim.owner;
        let take = |shared: Arc<Counting>, until| async move { shared.turn(owner, until).await };
        let turn = block_on(store.ask_within(Duration::from_secs(30), take)).unwrap();
        request.execute_within = SHORT;
        let refused = block_on(store.acquire(&request, |shared, _, _| grant(shared, SHORT))).unwrap_err();
        assert!(!refused.is_ambiguous() && refused.to_string().contains("earlier request"), "{refused}");
        drop(turn);
        request.execute_within = Duration::from_secs(30);
        assert_eq!(block_on(store.acquire(&request, |shared, _, _| grant(shared, SHORT))), Ok(0));
        assert_eq!(log.given_back.load(Ordering::Relaxed), 0);
    }

    #[test]
    #[limit]
    fn a_floor_without_room_above_it_is_refused() {
        let (store, plain) = (store().0, FencingToken::PLAIN.get());
        let mut request = request();
        for (floor, is_refused) in [(plain / 2 * 3, false), (plain / 2 * 3 + 1, true), (u64::MAX, true)] {
            request.floor = FencingToken::new(floor);
            let refused = block_on(store.acquire(&request, |shared, _, _| grant(shared, SHORT))).err();
            let kind = refused.map(|error| error.kind());
            assert_eq!(kind, is_refused.then_some(LockErrorKind::Misconfigured), "{floor}");
        }
    }
}
