//! A manager's reaction to grants that come late, twice, or without a waiter. The store is a puppet
//! that queues every claim and grants when the test says so; time is virtual.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{FencingToken, Holder, HolderInfo, LockBackend, LockError, LockGuard, LockKey, LockManager, OwnerId};
use lock_store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Grant, Inbox, Release, Renewal};
use lock_testing::limit;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The lease of a grant through the queue. A confirmation is due after each third of it.
const GRANT_TTL: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Puppet(Mutex<Strings>);

#[derive(Debug, Default)]
struct Strings {
    inbox: Option<Inbox>,
    /// The requests so far, in order.
    asked: Vec<AcquireRequest>,
    /// The claims that were released or withdrawn, in order.
    ended: Vec<OwnerId>,
    /// Whether a request is granted in the reply.
    grants: bool,
    /// Whether the connection for grants is refused, and how often it was asked for.
    refuses: bool,
    driven: usize,
}

impl Puppet {
    fn asked(&self) -> Vec<AcquireRequest> {
        self.0.lock().unwrap().asked.clone()
    }

    fn endings(&self, owner: OwnerId) -> usize {
        self.0.lock().unwrap().ended.iter().filter(|other| **other == owner).count()
    }

    /// Sends the manager a grant that follows one of its requests.
    fn grant(&self, request: &AcquireRequest, token: u64, ttl: Duration) {
        let mut claim = request.claim.clone();
        claim.ttl = ttl;
        let stamp = request.ticket.as_ref().unwrap().stamp;
        let inbox = self.0.lock().unwrap().inbox.clone();
        inbox.unwrap().granted(Grant::new(claim, FencingToken::new(token), stamp));
    }
}

impl LockBackend for Puppet {
    fn kind(&self) -> &'static str {
        "puppet"
    }

    fn capabilities(&self) -> Capabilities {
        let mut known = Capabilities::polled().with_queue();
        known.modes = true;
        known
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        {
            let mut strings = self.0.lock().unwrap();
            strings.driven += 1;
            if strings.refuses {
                return LockError::misconfigured("simulated: a wrong password");
            }
        }
        inbox.set_open(true);
        self.0.lock().unwrap().inbox = Some(inbox);
        std::future::pending().await
    }

    fn is_contended(&self, _: &LockKey) -> bool {
        true
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, LockError> {
        if request.claim.mode.is_shared() {
            // A writer comes, and its message overtakes the answer.
            let inbox = {
                let mut strings = self.0.lock().unwrap();
                strings.asked.push(request.clone());
                strings.inbox.clone().unwrap()
            };
            inbox.wanted(request.claim.owner);
            sleep(MS).await;
            return Ok(Attempt::Shared { token: FencingToken::new(20), wanted: false });
        }
        let mut strings = self.0.lock().unwrap();
        strings.asked.push(request.clone());
        if strings.grants {
            return Ok(Attempt::Granted { token: FencingToken::new(20), lease: None });
        }
        let info = HolderInfo::new("elsewhere", 1, "somebody");
        Ok(Attempt::Queued { holder: Holder::new(info, OwnerId::random(), FencingToken::new(1), None) })
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal, LockError>> {
        one_lane.iter().map(|_| Ok(Renewal::Renewed)).collect()
    }

    async fn release(&self, release: &Release) -> Result<Freed, LockError> {
        self.withdraw(&release.claim).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed, LockError> {
        self.0.lock().unwrap().ended.push(claim.owner);
        Ok(Freed::NotHeld)
    }

    async fn holder(&self, _: &LockKey) -> Result<Option<Holder>, LockError> {
        Ok(None)
    }
}

/// Starts to wait, and returns once the first answer has come.
async fn waiting() -> (Arc<Puppet>, LockManager, JoinHandle<Result<LockGuard, LockError>>) {
    let puppet = Arc::new(Puppet::default());
    let locks = LockManager::builder_shared(Arc::clone(&puppet)).drive_on_current_runtime().build().unwrap();
    // Waits until the inbox is open: before that, no claim queues.
    sleep(10 * MS).await;
    let request = locks.lock("k").with_wait(600 * SECOND);
    let waiting = tokio::spawn(request.acquire());
    sleep(10 * MS).await;
    assert_eq!(puppet.asked().len(), 1);
    (puppet, locks, waiting)
}

/// If the manager believed such a grant, it would count the lease from a moment after which the lock
/// may have been somebody else's, and use a token that is older than theirs.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_from_before_the_newest_confirmation_is_void() {
    let (puppet, _locks, waiting) = waiting().await;
    sleep(GRANT_TTL / 3 + 100 * MS).await;
    let asked = puppet.asked();
    let [first, second] = asked.as_slice() else { panic!("asked {} times", asked.len()) };
    puppet.grant(first, 7, GRANT_TTL);
    sleep(100 * MS).await;
    assert!(!waiting.is_finished(), "a grant was believed that an answer had overtaken");
    puppet.grant(second, 9, GRANT_TTL);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.token().get(), 9);
    // Counted from the second send, and not from now.
    assert!(guard.remaining() < GRANT_TTL - 150 * MS, "{:?}", guard.remaining());
}

/// If the grant were kept, the lock would stay taken until it runs out, with no holder.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_for_a_claim_that_has_ended_is_given_back() {
    let (puppet, _locks, waiting) = waiting().await;
    waiting.abort();
    // Waits until every release and repeat that the end caused is over.
    sleep(600 * SECOND).await;
    let request = puppet.asked().pop().unwrap();
    let owner = request.claim.owner;
    let before = puppet.endings(owner);
    assert!(before > 0, "the place in the queue was kept");
    puppet.grant(&request, 7, GRANT_TTL);
    sleep(SECOND).await;
    assert!(puppet.endings(owner) > before, "the grant was kept");
}

/// The reply and the message report one grant: a manager that released for the second would free its
/// own lock.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_for_a_claim_that_holds_the_lock_tells_nothing() {
    let (puppet, _locks, waiting) = waiting().await;
    puppet.0.lock().unwrap().grants = true;
    let guard = waiting.await.unwrap().unwrap();
    let request = puppet.asked().pop().unwrap();
    for _ in 0..2 {
        puppet.grant(&request, 7, GRANT_TTL);
        sleep(SECOND).await;
    }
    guard.ensure_held().unwrap();
    assert_eq!((guard.token().get(), puppet.endings(request.claim.owner)), (20, 0));
}

#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_with_too_little_left_is_asked_for_at_once() {
    let (puppet, _locks, waiting) = waiting().await;
    let first = puppet.asked().pop().unwrap();
    sleep(190 * MS).await;
    puppet.grant(&first, 7, 220 * MS);
    sleep(10 * MS).await;
    assert_eq!(puppet.asked().len(), 2, "it was relied on, or left to the next confirmation");
    assert!(!waiting.is_finished());
}

/// A grant counts only if its lease still runs when it is checked. If not, a caller with budget left
/// must not get an error.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_grant_with_nothing_left_is_asked_for_again_too() {
    let (puppet, _locks, waiting) = waiting().await;
    let first = puppet.asked().pop().unwrap();
    puppet.0.lock().unwrap().grants = true;
    puppet.grant(&first, 7, Duration::ZERO);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!((guard.token().get(), puppet.asked().len()), (20, 2));
}

/// Other clients log in again as fast as they can, for as long as they live.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_store_that_refuses_us_is_asked_ever_less_often() {
    let puppet = Arc::new(Puppet::default());
    puppet.0.lock().unwrap().refuses = true;
    let locks = LockManager::builder_shared(Arc::clone(&puppet)).drive_on_current_runtime().build().unwrap();
    let driven = || puppet.0.lock().unwrap().driven;
    sleep(SECOND).await;
    assert!((2..=5).contains(&driven()), "{}", driven());
    sleep(3600 * SECOND).await;
    let before = driven();
    assert!((100..=300).contains(&before), "{before} times in an hour");
    // Once accepted, the connection stays.
    puppet.0.lock().unwrap().refuses = false;
    sleep(3600 * SECOND).await;
    assert_eq!(driven(), before + 1);
    drop(locks);
}

#[tokio::test]
#[limit]
async fn a_guard_prints_what_a_log_needs_and_no_more() {
    let guard = LockManager::in_memory().lock_all(["b", "a"]).await.unwrap();
    let text = format!("{guard:?}");
    assert!(text.starts_with("LockGuard { keys: [\"a\", \"b\"], token: FencingToken(") && text.len() < 150, "{text}");
}

/// The door behind a reader would stay open until the store has a word for it, and readers would keep the writer out.
#[tokio::test(start_paused = true)]
#[limit]
async fn a_reader_that_is_wanted_before_its_answer_has_come_lets_nobody_in() {
    let puppet = Arc::new(Puppet::default());
    let locks = LockManager::builder_shared(Arc::clone(&puppet)).drive_on_current_runtime().build().unwrap();
    sleep(10 * MS).await;
    let first = locks.read("k").await.unwrap();
    let second = locks.read("k").await.unwrap();
    assert_eq!(puppet.asked().len(), 2, "the second has a claim of its own, which the store puts behind the writer");
    drop((first, second));
}
