//! A network between a manager and a store that delays, loses, duplicates and reorders messages, as
//! a seed decides.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lock_core::{Clock, Holder, LockBackend, LockError, LockKey, OwnerId};
use lock_store::{AcquireRequest, Attempt, AttemptAll, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_testing::{Report, Reports, stand_in};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// Carries every command over a network of its own. Nothing is ordered: each command and each reply
/// takes the time it takes, as if it had a connection to itself.
#[derive(Debug)]
pub(crate) struct Network<B> {
    store: Arc<B>,
    random: Mutex<fastrand::Rng>,
    /// How many of a hundred commands meet a fault. Zero once the network is healed.
    faults: Mutex<u8>,
    /// Whether nothing ever passes again.
    cut_off: AtomicBool,
    pub(crate) flaw: Option<Flaw>,
    /// How many times as long as others this process takes for everything it sends and receives.
    pub(crate) slower: u32,
    /// When the clock of the manager on this side began.
    clock: OnceLock<Instant>,
    /// Claims whose release or withdraw was answered.
    ended: Mutex<HashSet<OwnerId>>,
}

/// A mutant: a rule that the network breaks, because it sees the messages that the rule is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flaw {
    /// Commands are executed after their deadline.
    LateCommands,
    /// A grant counts from its receipt.
    CountedFromReceipt,
    /// A claim is released or withdrawn once, and not again after its last send has settled.
    OneEnding,
}

/// The fate of one command.
#[derive(Clone, Copy)]
enum Fate {
    Answered,
    /// Never sent: the connection could not be opened.
    Refused,
    /// Sent and lost.
    RequestLost,
    /// Executed, but the caller gets no answer.
    ReplyLost,
    /// Executed at some time, while the caller sees a broken connection.
    Broken,
}

struct Course {
    fate: Fate,
    connect: Duration,
    there: Duration,
    back: Duration,
}

impl<B: LockBackend> Network<B> {
    pub(crate) fn new(store: Arc<B>, seed: u64, faults: u8) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self {
            store,
            random,
            faults: Mutex::new(faults),
            cut_off: AtomicBool::new(false),
            flaw: None,
            slower: 1,
            clock: OnceLock::new(),
            ended: Mutex::default(),
        }
    }

    pub(crate) fn heal(&self) {
        *self.faults.lock().unwrap() = 0;
    }

    /// Cuts the process off from the store forever: to all others it is dead.
    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    fn draw(&self, patience: Duration) -> Course {
        let faulty = *self.faults.lock().unwrap();
        let mut random = self.random.lock().unwrap();
        let quick = Duration::from_micros(random.u64(50..2_000)) * self.slower;
        if random.u8(0..100) >= faulty {
            return Course { fate: Fate::Answered, connect: Duration::ZERO, there: quick, back: quick };
        }
        // Up to twice as long as any caller waits for it.
        let mut slow = || patience.mul_f64(2.0 * random.f64());
        let (connect, there, back) = (slow(), slow(), slow());
        let connect = if random.bool() { Duration::ZERO } else { connect };
        let fate = match random.u8(0..6) {
            0 => Fate::Refused,
            1 => Fate::RequestLost,
            2 => Fate::ReplyLost,
            3 => Fate::Broken,
            _ => Fate::Answered,
        };
        Course { fate, connect, there, back }
    }

    /// Carries a command there and its answer back. Once it is sent, dropping the future changes
    /// nothing any more. `within` is how long after the sending it may be executed.
    async fn carry<T: Send + 'static>(
        &self,
        patience: Duration,
        within: Option<Duration>,
        work: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Result<T, LockError> {
        let Course { fate, connect, there, back } = self.draw(patience);
        sleep(connect).await;
        if matches!(fate, Fate::Refused) || self.is_cut_off() {
            return Err(LockError::not_executed("simulated: refused"));
        }
        let (reply, answer) = oneshot::channel();
        let (sent, lost) = (Instant::now(), matches!(fate, Fate::RequestLost));
        let within = within.filter(|_| self.flaw != Some(Flaw::LateCommands));
        tokio::spawn(async move {
            sleep(there).await;
            if lost {
                return;
            }
            let result = if within.is_some_and(|within| sent.elapsed() > within) {
                Err(LockError::not_executed("simulated: stale"))
            } else {
                work.await
            };
            sleep(back).await;
            let _ = reply.send(result);
        });
        match fate {
            Fate::Answered | Fate::Refused => {}
            Fate::RequestLost | Fate::ReplyLost => pending().await,
            Fate::Broken => {
                sleep(back / 2).await;
                return Err(LockError::unavailable("simulated: broken"));
            }
        }
        answer.await.unwrap_or_else(|_| Err(LockError::unavailable("simulated: lost")))
    }
}

/// Grants.
impl<B: LockBackend> Network<B> {
    async fn pass_on(&self, reports: &mut Reports, inbox: &Inbox) {
        while let Some(report) = reports.next().await {
            if self.is_cut_off() {
                continue;
            }
            let grant = match report {
                Report::Granted(grant) => grant,
                Report::Wanted(owner) => {
                    for delay in self.deliveries() {
                        let inbox = inbox.clone();
                        tokio::spawn(async move {
                            sleep(delay).await;
                            inbox.wanted(owner);
                        });
                    }
                    continue;
                }
                _ => continue,
            };
            // One grant may arrive twice, not at all, or after grants that were sent later.
            for delay in self.deliveries() {
                let (inbox, mut grant) = (inbox.clone(), grant.clone());
                let (flaw, clock) = (self.flaw, self.clock.get().copied());
                tokio::spawn(async move {
                    sleep(delay).await;
                    if flaw == Some(Flaw::CountedFromReceipt) {
                        grant.stamp = u64::try_from(clock.unwrap().elapsed().as_nanos()).unwrap();
                    }
                    inbox.granted(grant);
                });
            }
        }
    }

    /// Carries the end of a claim, unless a flaw keeps it back.
    async fn end(
        &self,
        claim: &Claim,
        work: impl Future<Output = Result<Freed, LockError>> + Send + 'static,
    ) -> Result<Freed, LockError> {
        if self.flaw == Some(Flaw::OneEnding) && self.ended.lock().unwrap().contains(&claim.owner) {
            return Ok(Freed::NotHeld);
        }
        let answer = self.carry(patience(claim.ttl), None, work).await;
        if answer.is_ok() {
            self.ended.lock().unwrap().insert(claim.owner);
        }
        answer
    }

    /// Waits until the connection breaks: never once the network is healed.
    async fn breaks(&self) {
        loop {
            sleep(Duration::from_millis(100) + self.up_to(4_000)).await;
            if *self.faults.lock().unwrap() > 0 || self.is_cut_off() {
                return;
            }
        }
    }

    fn deliveries(&self) -> Vec<Duration> {
        let faulty = *self.faults.lock().unwrap();
        let mut random = self.random.lock().unwrap();
        let quick = Duration::from_micros(random.u64(50..2_000)) * self.slower;
        if random.u8(0..100) >= faulty {
            return vec![quick];
        }
        let mut slow = || Duration::from_millis(random.u64(0..3_000));
        let (first, second) = (slow(), slow());
        match random.u8(0..3) {
            0 => vec![],
            1 => vec![first],
            _ => vec![first.min(quick), second],
        }
    }

    fn up_to(&self, most: u64) -> Duration {
        Duration::from_millis(self.random.lock().unwrap().u64(0..most))
    }

    fn flips(&self) -> bool {
        self.random.lock().unwrap().bool()
    }
}

fn patience(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(20), Duration::from_secs(5))
}

impl<B: LockBackend> LockBackend for Network<B> {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(Instant::now());
        self.store.attach(clock);
    }

    /// Carries grants, over a connection that breaks now and then. Which side notices first, by
    /// how much, and how long it stays away, is drawn each time.
    async fn drive(&self, inbox: Inbox) -> LockError {
        loop {
            if self.is_cut_off() {
                return pending().await;
            }
            let (far_end, mut reports) = stand_in(&inbox);
            let mut server = Box::pin(self.store.drive(far_end));
            inbox.set_open(true);
            inbox.reconnected();
            tokio::select! {
                biased;
                _ = &mut server => {}
                () = self.breaks() => {}
                () = self.pass_on(&mut reports, &inbox) => {}
            }
            if self.flips() {
                // The server continues, and its grants reach nobody.
                inbox.set_open(false);
                tokio::select! {
                    biased;
                    _ = &mut server => {}
                    () = sleep(self.up_to(1_000)) => {}
                }
            } else {
                drop(server);
                sleep(self.up_to(1_000)).await;
                inbox.set_open(false);
            }
            sleep(self.up_to(1_000)).await;
        }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, LockError> {
        let (store, request, within) = (Arc::clone(&self.store), request.clone(), request.execute_within);
        self.carry(patience(request.claim.ttl), Some(within), async move { store.try_acquire(&request).await }).await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, LockError> {
        let (store, requests, within) = (Arc::clone(&self.store), requests.to_vec(), requests[0].execute_within);
        let patience = patience(requests[0].claim.ttl);
        self.carry(patience, Some(within), async move { store.try_acquire_all(&requests).await }).await
    }

    async fn requeue(&self, release: &Release, request: &AcquireRequest) -> Result<Attempt, LockError> {
        let (store, release, request) = (Arc::clone(&self.store), release.clone(), request.clone());
        let (patience, within) = (patience(request.claim.ttl), request.execute_within);
        self.carry(patience, Some(within), async move { store.requeue(&release, &request).await }).await
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal, LockError>> {
        let (store, claims) = (Arc::clone(&self.store), one_lane.to_vec());
        let answers = self.carry(patience(claims[0].ttl), None, async move { Ok(store.renew(&claims).await) }).await;
        answers.unwrap_or_else(|error| one_lane.iter().map(|_| Err(error.clone())).collect())
    }

    async fn release(&self, release: &Release) -> Result<Freed, LockError> {
        let (store, release) = (Arc::clone(&self.store), release.clone());
        let claim = release.claim.clone();
        self.end(&claim, async move { store.release(&release).await }).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed, LockError> {
        let (store, sent) = (Arc::clone(&self.store), claim.clone());
        self.end(claim, async move { store.withdraw(&sent).await }).await
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>, LockError> {
        self.store.holder(key).await
    }
}
