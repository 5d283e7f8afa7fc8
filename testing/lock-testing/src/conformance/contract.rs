//! The rules on which the machinery relies, checked by calls of the store itself.

use std::time::Duration;

use crate::conformance::tools::{MS, SECOND, key, lasts, now, outlast, pause};
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Freed, LockBackend, Release, Renewal};
use lock_store::types::error::{LockErrorKind, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::HolderInfo;

/// Longer than any stall of the machine.
const TTL: Duration = Duration::from_secs(60);

pub(super) fn ask(claim: &Claim) -> AcquireRequest {
    ask_at("suite", claim)
}

/// Asks for a claim of this call site.
pub(super) fn ask_at(site: &str, claim: &Claim) -> AcquireRequest {
    AcquireRequest::new(claim.clone(), HolderInfo::new("conformance", std::process::id(), site))
}

/// Asks until the store has an answer. It may have none in time if the lease is short and the machine is busy. The same
/// happens while some members of a quorum have not heard of a release.
pub(super) async fn attempt(store: &impl LockBackend, request: &AcquireRequest) -> Result<Attempt> {
    let mut request = request.clone();
    for _ in 0..20 {
        match store.try_acquire(&request).await {
            Err(error) if error.kind() == LockErrorKind::Unavailable => pause(5 * MS).await,
            answer => return answer,
        }
        request.repeated = true;
    }
    store.try_acquire(&request).await
}

pub(super) async fn granted(store: &impl LockBackend, request: &AcquireRequest) -> FencingToken {
    match attempt(store, request).await {
        Ok(Attempt::Granted { token, .. }) => token,
        other => panic!("{:?} was not granted: {other:?}", request.claim.key),
    }
}

pub(super) async fn refused(store: &impl LockBackend, claim: &Claim) -> bool {
    matches!(attempt(store, &ask(claim)).await, Ok(Attempt::Held { .. }))
}

/// A lock has one owner, whatever is repeated and whichever other claims ask.
pub async fn identity(store: impl LockBackend) {
    let store = &store;
    let claim = Claim::new(key("idempotent acquire"), TTL);
    let token = granted(store, &ask(&claim)).await;
    let mut repeat = ask(&claim);
    repeat.repeated = true;
    let first = token;
    let token = granted(store, &repeat).await;
    assert!(token > first, "a repeated acquire is granted again, with a new token: {first} then {token}");
    let rival = Claim::new(claim.key.clone(), TTL);
    assert!(refused(store, &rival).await, "a second owner must be refused");
    assert_eq!(store.release(&Release::new(rival.clone())).await, Ok(Freed::NotHeld), "a stranger must not release");
    assert_eq!(store.renew(std::slice::from_ref(&rival)).await, [Ok(Renewal::Lost)], "a stranger must not renew");
    assert!(refused(store, &rival).await, "a stranger's release or renewal must change nothing");

    let holder = store.holder(&claim.key).await.ok().flatten();
    let holder = holder.unwrap_or_else(|| panic!("the holder of a taken key must be known"));
    assert_eq!(holder.owner, Some(claim.owner), "holder: owner");
    assert!(holder.token.is_none_or(|known| known == token), "holder: token, where the store knows it");
    assert_eq!(holder.site(), "suite", "holder: site");
    let left = holder.ttl_left.unwrap_or(Duration::ZERO);
    assert!(left > TTL / 2 && left <= TTL, "holder: time left {left:?} of {TTL:?}");

    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::Released), "the owner releases");
    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::NotHeld), "a release is final");
    assert_eq!(store.renew(std::slice::from_ref(&claim)).await, [Ok(Renewal::Lost)], "a renewal must not re-create");
    assert!(matches!(store.holder(&claim.key).await, Ok(None)), "a released key has no holder");
    let next = granted(store, &ask(&rival)).await;
    assert!(next > token, "tokens must grow across a clean release: {token} then {next}");
    assert_eq!(store.withdraw(&rival).await, Ok(Freed::Released), "withdrawing frees what was granted");
}

/// Tokens exceed the floor that a caller knows, and each grant owns its whole range of tokens.
pub async fn floors(store: impl LockBackend) {
    let store = &store;
    let claim = Claim::new(key("floor"), TTL);
    let before = granted(store, &ask(&claim)).await;
    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::Released));
    let claim = Claim::new(claim.key, TTL);
    let mut request = ask(&claim);
    request.floor = FencingToken::new(before.get() + 1_000_000_000);
    let token = granted(store, &request).await;
    assert!(token > request.floor, "a token must exceed the floor its caller knows");
    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::Released));
    let after = granted(store, &ask(&Claim::new(claim.key.clone(), TTL))).await;
    let numbers = FencingToken::PER_GRANT;
    assert!(after.get() >= token.get() + numbers, "a number of one grant must not be of another: {token} and {after}");
    assert!(i64::try_from(after.get() + numbers).is_ok(), "a token must fit an i64: {after}");
    assert_eq!(store.release(&Release::new(claim.clone())).await, Ok(Freed::NotHeld));
    let mut nonsense = ask(&Claim::new(key("nonsense floor"), TTL));
    nonsense.floor = FencingToken::new(u64::MAX);
    assert!(store.try_acquire(&nonsense).await.is_err(), "no token exceeds a floor of nonsense");
    let spared = granted(store, &ask(&Claim::new(key("spared"), TTL))).await;
    assert!(i64::try_from(spared.get()).is_ok(), "nor does it spoil the tokens of other keys: {spared}");
}

/// Leases last as long as promised.
pub async fn leases(store: impl LockBackend) {
    let store = &store;
    let claim = Claim::new(key("min hold"), TTL);
    granted(store, &ask(&claim)).await;
    let mut release = Release::new(claim.clone());
    release.keep_for = 300 * MS;
    let since = now();
    assert_eq!(store.release(&release).await, Ok(Freed::Released));
    assert_eq!(store.release(&release).await, Ok(Freed::NotHeld), "a kept key belongs to nobody");
    lasts(refused(store, &claim).await, since, 300 * MS, "a kept key stays taken, also for its last owner");
    outlast(store, 300 * MS).await;
    // The claim does not have it, unless the check above was too late.
    let _ = store.withdraw(&claim).await;
    let short = Claim::new(claim.key.clone(), 500 * MS);
    granted(store, &ask(&short)).await;
    release.claim = short;
    release.keep_for = TTL;
    let since = now();
    if store.release(&release).await == Ok(Freed::Released) {
        lasts(refused(store, &claim).await, since, TTL, "a key may be kept for longer than its lease");
    }

    let mut claim = Claim::new(key("units"), 300 * MS);
    let since = now();
    granted(store, &ask(&claim)).await;
    let rival = Claim::new(claim.key.clone(), 24 * 3600 * SECOND);
    lasts(refused(store, &rival).await, since, 300 * MS, "a lease of 300 ms must last for a while");
    outlast(store, 300 * MS).await;
    granted(store, &ask(&rival)).await;
    let left = store.holder(&rival.key).await.ok().flatten().and_then(|holder| holder.ttl_left);
    assert!(left > Some(23 * 3600 * SECOND), "a lease of a day must last a day, not {left:?}");
    // Commands time out with their lease: a machine that stalls would not answer one of 300 ms in time.
    claim.ttl = TTL;
    assert_eq!(store.release(&Release::new(claim)).await, Ok(Freed::NotHeld), "an expired owner frees nothing");

    let mut short = rival.clone();
    short.ttl = SECOND;
    let answer = store.renew(&[short]).await.remove(0);
    assert!(answer.is_ok_and(|answer| answer.lease(SECOND).is_some()), "the holder renews its lease");
    let left = store.holder(&rival.key).await.ok().flatten().and_then(|holder| holder.ttl_left);
    assert!(left > Some(23 * 3600 * SECOND), "a renewal must never shorten a lease, but left {left:?}");
}

/// A batch gets one answer for each claim, in order.
pub async fn batches(store: impl LockBackend) {
    let claims: Vec<Claim> = (0..250).map(|_| Claim::new(key("batch"), TTL)).collect();
    for claim in claims.iter().step_by(2) {
        granted(&store, &ask(claim)).await;
    }
    let answers = store.renew(&claims).await;
    assert_eq!(answers.len(), claims.len(), "one answer for each claim");
    for (index, answer) in answers.into_iter().enumerate() {
        let lease = answer.map(|answer| answer.lease(TTL).is_some());
        assert_eq!(lease, Ok(index.is_multiple_of(2)), "answers must come in the order of the claims ({index})");
    }
}
