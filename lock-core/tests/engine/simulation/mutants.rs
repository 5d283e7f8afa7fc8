//! Stores with one bug each, as other libraries have shipped them. The harness must catch every
//! one, or its silence about our own stores means nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use lock_core::{Clock, FencingToken, Holder, LockBackend, LockError, LockKey, MemoryStore};
use lock_store::{AcquireRequest, Attempt, Capabilities, Claim, Freed, Inbox, Release, Renewal};
use lock_testing::{Violation, limit};

use super::{MS, Mode, breaks_the_contract, simulate};

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// `DEL` without checking the owner of the key.
    UnownedRelease,
    /// `PEXPIRE` without checking the owner of the key.
    UnownedRenew,
    /// After a lost reply to the first attempt, a retry takes its own key for somebody else's.
    RetryIsBusy,
    /// `SET` without `NX`: the last one wins.
    TakesWhatIsTaken,
    /// The key is kept for less time than was promised.
    ShortLease,
    /// `SET`, then `EXPIRE`, where a failure in between goes unnoticed: one key in four never
    /// expires.
    SetThenExpire,
    /// A renewal creates a key that no longer exists.
    RenewalCreates,
    /// A renewal sets the expiry, even to an earlier time.
    RenewalShortens,
    /// `INCR`, on a counter that is lost now and then.
    ForgetfulCounter,
    /// Every grant gets the same token.
    NoTokens,
    /// A withdrawal does not free a lock that was granted meanwhile.
    WithdrawDoesNothing,
    /// A release that is answered before it is done, and then is not done.
    ReleaseDoesNothing,
}

const BUGS: [Bug; 12] = [
    Bug::UnownedRelease,
    Bug::UnownedRenew,
    Bug::RetryIsBusy,
    Bug::TakesWhatIsTaken,
    Bug::ShortLease,
    Bug::SetThenExpire,
    Bug::RenewalCreates,
    Bug::RenewalShortens,
    Bug::ForgetfulCounter,
    Bug::NoTokens,
    Bug::WithdrawDoesNothing,
    Bug::ReleaseDoesNothing,
];

/// The memory store with a bug.
#[derive(Debug)]
struct Mutant {
    store: MemoryStore,
    bug: Bug,
    count: AtomicU64,
}

impl Mutant {
    fn new(store: MemoryStore, bug: Bug) -> Self {
        Self { store, bug, count: AtomicU64::new(0) }
    }

    fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn token(&self, token: FencingToken) -> FencingToken {
        match self.bug {
            // Lost every seven grants.
            Bug::ForgetfulCounter => FencingToken::new(1 + self.count() % 7),
            Bug::NoTokens => FencingToken::new(1),
            _ => token,
        }
    }

    /// Makes a claim that acts for the current holder of the key.
    async fn impersonate(&self, claim: &Claim) -> Option<Claim> {
        let owner = self.store.holder(&claim.key).await.ok()??.owner?;
        let mut other = claim.clone();
        other.owner = owner;
        Some(other)
    }
}

impl LockBackend for Mutant {
    fn kind(&self) -> &'static str {
        "mutant"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn drive(&self, inbox: Inbox) -> LockError {
        self.store.drive(inbox).await
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, LockError> {
        let mut request = request.clone();
        let holder = self.store.holder(&request.claim.key).await?;
        match self.bug {
            Bug::RetryIsBusy => {
                if let Some(holder) = holder {
                    return Ok(Attempt::Held { holder });
                }
            }
            Bug::TakesWhatIsTaken if holder.is_some_and(|holder| holder.owner != Some(request.claim.owner)) => {
                self.store.steal(&request.claim.key);
            }
            Bug::ShortLease => request.claim.ttl = request.claim.ttl.mul_f64(0.5).max(MS),
            Bug::SetThenExpire if self.count().is_multiple_of(4) => request.claim.ttl = lock_core::MAX_TTL,
            _ => {}
        }
        match self.store.try_acquire(&request).await? {
            Attempt::Granted { token, lease } => Ok(Attempt::Granted { token: self.token(token), lease }),
            other => Ok(other),
        }
    }

    async fn renew(&self, one_lane: &[Claim]) -> Vec<Result<Renewal, LockError>> {
        let mut claims = one_lane.to_vec();
        for claim in &mut claims {
            match self.bug {
                Bug::UnownedRenew => {
                    if let Some(other) = self.impersonate(claim).await {
                        *claim = other;
                    }
                }
                Bug::RenewalCreates => {
                    let request = AcquireRequest::new(claim.clone(), lock_core::HolderInfo::new("h", 1, "s"));
                    let _ = self.store.try_acquire(&request).await;
                }
                Bug::RenewalShortens => {
                    let token = self.store.holder(&claim.key).await.ok().flatten();
                    if token.is_some_and(|holder| holder.owner == Some(claim.owner)) {
                        self.store.steal(&claim.key);
                        let request = AcquireRequest::new(claim.clone(), lock_core::HolderInfo::new("h", 1, "s"));
                        let _ = self.store.try_acquire(&request).await;
                    }
                }
                Bug::ShortLease => claim.ttl = claim.ttl.mul_f64(0.5),
                _ => {}
            }
        }
        self.store.renew(&claims).await
    }

    async fn release(&self, release: &Release) -> Result<Freed, LockError> {
        match self.bug {
            Bug::UnownedRelease => {
                self.store.steal(&release.claim.key);
                Ok(Freed::Released)
            }
            Bug::ReleaseDoesNothing => Ok(Freed::Released),
            _ => self.store.release(release).await,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<Freed, LockError> {
        match self.bug {
            Bug::WithdrawDoesNothing => Ok(Freed::NotHeld),
            Bug::UnownedRelease => self.release(&Release::new(claim.clone())).await,
            _ => self.store.withdraw(claim).await,
        }
    }

    async fn holder(&self, key: &LockKey) -> Result<Option<Holder>, LockError> {
        self.store.holder(key).await
    }
}

/// The faults that the simulation finds within a number of seeds.
fn simulated(bug: Bug, mode: Mode, seeds: u64) -> Option<&'static str> {
    (0..seeds).find_map(|seed| {
        let outcome = simulate(seed, mode, None, |memory| Mutant::new(memory, bug));
        let named = |violation: &Violation| match violation {
            Violation::Overlap { .. } => "two holders",
            Violation::TokenOrder { .. } => "token order",
            _ => "something else",
        };
        outcome.violations.first().map(named).or((outcome.left > 0).then_some("keys left"))
    })
}

#[test]
#[limit(300)]
fn every_mutant_is_caught() {
    let mut caught = Vec::new();
    for bug in BUGS {
        let by_contract = breaks_the_contract(|store| Mutant::new(store, bug));
        // A bug that the contract refuses is simulated only a little, to see whether users would
        // have noticed it.
        let seeds = if by_contract { 6 } else { 600 };
        let by_simulation = simulated(bug, Mode::Short, seeds).or_else(|| simulated(bug, Mode::Long, seeds));
        println!("figure: mutant {bug:?}: contract {by_contract}, simulation {by_simulation:?}");
        caught.push((bug, by_contract || by_simulation.is_some()));
    }
    let escaped: Vec<Bug> = caught.into_iter().filter(|(_, caught)| !caught).map(|(bug, _)| bug).collect();
    assert_eq!(escaped, []);
}
