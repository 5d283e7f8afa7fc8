//! Rules for read-write locks and semaphores, in stores that have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::conformance::contract::{ask, attempt, granted, refused};
use crate::conformance::queue::all_hear;
use crate::conformance::tools::{MS, PATIENCE, SECOND, give_back, key, lasts, now, pause, take};
use lock_core::LockManager;
use lock_store::contract::backend::{
    AcquireRequest, Attempt, Claim, Freed, LockBackend, Release, Renewal, SharedClaims,
};
use lock_store::types::error::LockErrorKind;
use lock_store::types::fencing::FencingToken;
use lock_store::types::mode::Mode;

/// Longer than any stall of the machine.
const TTL: Duration = Duration::from_secs(60);

/// How long to check that a forbidden claim does not enter.
const A_WHILE: Duration = Duration::from_millis(300);

fn permits(units: u32, limit: u32) -> Mode {
    Mode::permits(units, limit).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the part for claims that share a lock, if the store has it.
fn sharing(store: &impl LockBackend) -> Option<&impl SharedClaims> {
    let part = store.shared();
    assert_eq!(part.is_some(), store.capabilities().modes, "a store says that it has modes if it has `shared()`");
    part
}

async fn shared(store: &impl LockBackend, request: &AcquireRequest) -> FencingToken {
    match attempt(store, request).await {
        Ok(Attempt::Shared { token, .. }) => token,
        other => panic!("{:?} was not shared: {other:?}", request.claim.key),
    }
}

async fn release(store: &impl LockBackend, claim: &Claim) -> Freed {
    store.release(&Release::new(claim.clone())).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Readers hold the lock together, with one token, and never together with a writer.
pub async fn shared_phase(store: impl LockBackend) {
    let store = &store;
    let Some(part) = sharing(store) else { return };
    let key = key("shared phase");
    let claim = |mode: Mode| Claim::new(key.clone(), TTL).with_mode(mode);
    let (before, one, two, after) =
        (claim(Mode::Exclusive), claim(Mode::READ), claim(Mode::READ), claim(Mode::Exclusive));
    let first = granted(store, &ask(&before)).await;
    assert!(refused(store, &one).await, "no reader beside a writer");
    assert_eq!(release(store, &before).await, Freed::Released);

    let phase = shared(store, &ask(&one)).await;
    assert!(phase > first, "the token of readers exceeds that of the writer before: {first} then {phase}");
    assert_eq!(shared(store, &ask(&two)).await, phase, "readers of one phase have one token");
    let mut repeat = ask(&one);
    repeat.repeated = true;
    assert_eq!(shared(store, &repeat).await, phase, "a repeat is confirmed");
    assert!(refused(store, &after).await, "no writer beside readers");
    assert_eq!(store.renew(&[one.clone(), two.clone()]).await, [Ok(Renewal::Renewed), Ok(Renewal::Renewed)]);
    assert_eq!(store.renew(std::slice::from_ref(&after)).await, [Ok(Renewal::Lost)], "a stranger must not renew");
    let of = |token: FencingToken| one.clone().with_token(token);
    let other = FencingToken::new(phase.get() + FencingToken::PER_GRANT);
    assert_eq!(store.renew(&[of(phase)]).await, [Ok(Renewal::Renewed)]);
    assert_eq!(store.renew(&[of(other)]).await, [Ok(Renewal::Lost)], "it holds it in another phase than it believes");
    let holders = part.holders(&key).await.unwrap_or_else(|error| panic!("{error}"));
    let mut owners: Vec<_> = holders.iter().filter_map(|holder| holder.owner).collect();
    owners.sort_by_key(|owner| *owner != one.owner);
    assert_eq!(owners, [one.owner, two.owner], "everybody who holds a key is known");
    let holder = store.holder(&key).await.ok().flatten();
    assert_eq!(holder.map(|holder| holder.site().to_owned()).as_deref(), Some("suite"), "somebody holds it");

    assert_eq!(release(store, &one).await, Freed::Released);
    assert_eq!(release(store, &one).await, Freed::NotHeld, "a release is final");
    assert!(refused(store, &after).await, "one reader is left");
    assert_eq!(store.renew(std::slice::from_ref(&one)).await, [Ok(Renewal::Lost)], "a renewal must not bring it back");
    assert_eq!(store.withdraw(&two).await, Ok(Freed::Released), "withdrawing frees what was shared");
    assert!(matches!(store.holder(&key).await, Ok(None)), "the last reader leaves nothing");
    let last = granted(store, &ask(&after)).await;
    assert!(last > phase, "the token of the writer after exceeds that of the readers: {phase} then {last}");
    assert_eq!(release(store, &after).await, Freed::Released);
}

/// Permits are counted, whatever is repeated, and by the limit of each claim that asks.
pub async fn shared_limits(store: impl LockBackend) {
    if sharing(&store).is_none() {
        return;
    }
    let store = &store;
    let key = key("shared limits");
    let claim = |units: u32, limit: u32| Claim::new(key.clone(), TTL).with_mode(permits(units, limit));
    let (two, one, more) = (claim(2, 3), claim(1, 3), claim(1, 3));
    shared(store, &ask(&two)).await;
    for _ in 0..2 {
        let mut repeat = ask(&two);
        repeat.repeated = true;
        shared(store, &repeat).await;
    }
    shared(store, &ask(&one)).await;
    assert!(refused(store, &more).await, "three of three permits are taken");
    let (raised, raised_again) = (claim(2, 5), claim(1, 5));
    shared(store, &ask(&raised)).await;
    assert!(refused(store, &raised_again).await, "five of five");
    assert_eq!(release(store, &raised).await, Freed::Released);
    assert!(refused(store, &claim(1, 2)).await, "a lowered limit lets nobody in before enough have left");
    assert_eq!(release(store, &two).await, Freed::Released);
    let lowered = claim(1, 2);
    shared(store, &ask(&lowered)).await;
    assert!(refused(store, &Claim::new(key.clone(), TTL)).await, "nobody has it for itself beside permits");
    for claim in [&one, &lowered] {
        assert_eq!(release(store, claim).await, Freed::Released);
    }
    granted(store, &ask(&Claim::new(key.clone(), TTL))).await;
}

/// Each holder has a lease of its own, whatever other claims do.
pub async fn shared_leases(store: impl LockBackend) {
    if sharing(&store).is_none() {
        return;
    }
    let store = &store;
    let key = key("shared leases");
    let claim = |ttl: Duration| Claim::new(key.clone(), ttl).with_mode(permits(1, 2));
    let (short, long, next) = (claim(400 * MS), claim(TTL), claim(TTL));
    shared(store, &ask(&short)).await;
    shared(store, &ask(&long)).await;
    pause(500 * MS).await;
    assert_eq!(store.renew(std::slice::from_ref(&long)).await, [Ok(Renewal::Renewed)]);
    assert_eq!(store.renew(std::slice::from_ref(&short)).await, [Ok(Renewal::Lost)], "a lease that is over is lost");
    shared(store, &ask(&next)).await;
    assert_eq!(release(store, &short).await, Freed::NotHeld, "and its units are another's");
    assert!(refused(store, &claim(TTL)).await);

    let mut keep = Release::new(long);
    keep.keep_for = 400 * MS;
    let since = now();
    assert_eq!(store.release(&keep).await, Ok(Freed::Released), "a permit can stay taken for a while");
    let other = claim(TTL);
    lasts(refused(store, &other).await, since, 400 * MS, "and is");
    pause(500 * MS).await;
    // The claim has no lease, unless the check above was too late.
    let _ = store.withdraw(&other).await;
    shared(store, &ask(&claim(TTL))).await;
}

/// A writer becomes a reader in one step.
pub async fn downgrade(store: impl LockBackend) {
    let store = &store;
    let Some(part) = sharing(store) else { return };
    let key = key("downgrade");
    let claim = |mode: Mode| Claim::new(key.clone(), TTL).with_mode(mode);
    let writer = claim(Mode::Exclusive);
    let token = granted(store, &ask(&writer)).await;
    let (now, last) = (writer.clone().with_mode(Mode::READ), FencingToken::new(token.get() + 3));
    for _ in 0..2 {
        assert_eq!(part.downgrade(&now, last).await, Ok(Renewal::Renewed), "also when it is repeated");
    }
    assert!(refused(store, &claim(Mode::Exclusive)).await, "no writer comes between");
    let reader = claim(Mode::READ);
    assert_eq!(shared(store, &ask(&reader)).await, last, "readers have the last token of the writer");
    let mut late = ask(&writer);
    late.repeated = true;
    assert_eq!(shared(store, &late).await, last, "its acquire that comes late finds it among those who share");
    assert_eq!(store.renew(std::slice::from_ref(&now)).await, [Ok(Renewal::Renewed)]);
    for claim in [&now, &reader] {
        assert_eq!(release(store, claim).await, Freed::Released);
    }
    assert_eq!(part.downgrade(&now, last).await, Ok(Renewal::Lost), "what is over cannot become anything");
    let stranger = claim(Mode::READ);
    assert!(granted(store, &ask(&claim(Mode::Exclusive))).await > last);
    assert_eq!(part.downgrade(&stranger, last).await, Ok(Renewal::Lost), "nor can what is somebody else's");
}

/// Serves readers and writers of several processes in order of arrival: readers together, writers alone.
pub async fn readers_and_writers(managers: [LockManager; 3]) {
    let key = key("readers and writers");
    all_hear(&managers, &key).await;
    let [one, two, three] = managers;
    match one.read(&key).try_acquire().await {
        Ok(guard) => give_back(guard.unwrap_or_else(|| panic!("a free lock must be readable"))).await,
        Err(error) => return assert_eq!(error.kind(), LockErrorKind::Misconfigured, "a clear refusal: {error}"),
    }
    for _ in 0..10 {
        let first = one.read(&key).with_wait(PATIENCE).await;
        let first = first.unwrap_or_else(|error| panic!("a free lock must be readable: {error}"));
        let second = two.read(&key).with_wait(PATIENCE).await;
        let second = second.unwrap_or_else(|error| panic!("readers share: {error}"));
        assert_eq!(first.token(), second.token());
        let mut writing = Box::pin(three.write(&key).with_wait(PATIENCE).acquire());
        assert!(tokio::select! { _ = &mut writing => false, () = pause(30 * MS) => true }, "a writer beside readers");
        // These readers must wait behind the writer, even in processes that already read, once those have been told of it.
        let mut passed = 0;
        let [a, b, c] = loop {
            let mut behind = [&one, &two, &three].map(|locks| Box::pin(locks.read(&key).with_wait(PATIENCE).acquire()));
            let [a, b, c] = &mut behind;
            let reader = tokio::select! {
                reader = a => reader,
                reader = b => reader,
                reader = c => reader,
                () = pause(30 * MS) => break behind,
            };
            give_back(reader.unwrap_or_else(|error| panic!("readers share: {error}"))).await;
            passed += 1;
            assert!(passed < 25, "readers pass a writer that waits, again and again");
            pause(10 * MS).await;
        };
        let ((), (), writer) = tokio::join!(give_back(first), give_back(second), &mut writing);
        let writer = writer.unwrap_or_else(|error| panic!("a writer must be served: {error}"));
        give_back(writer).await;
        let (a, b, c) = tokio::join!(a, b, c);
        let readers = [a, b, c].map(|read| read.unwrap_or_else(|error| panic!("readers must be served: {error}")));
        assert!(readers.windows(2).all(|pair| pair[0].token() == pair[1].token()), "they were granted together");
        for reader in readers {
            give_back(reader).await;
        }
    }
    give_back(take(&three, &key).await).await;
}

/// Lets in as many callers as there are permits, and no more, from several processes at once.
pub async fn permits_in_use(managers: [LockManager; 3]) {
    const PERMITS: u32 = 3;
    let key = key("permits");
    if !matches!(managers[0].semaphore(&key, PERMITS).try_acquire().await, Ok(Some(_))) {
        return;
    }
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..9 {
        let (locks, key) = (managers[task % managers.len()].clone(), key.clone());
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        let weight = 1 + u32::from(task == 4);
        tasks.spawn(async move {
            for _ in 0..12 {
                let permit = locks.semaphore(&key, PERMITS).with_weight(weight).with_wait(PATIENCE).await;
                let permit = permit.unwrap_or_else(|error| panic!("a permit must be granted: {error}"));
                let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                assert!(now <= PERMITS || permit.ensure_held().is_err(), "{now} of {PERMITS} permits are taken");
                most.fetch_max(now, Ordering::SeqCst);
                pause(MS).await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                give_back(permit).await;
            }
        });
    }
    tasks.join_all().await;
    assert!(most.load(Ordering::SeqCst) > 1, "permits must be held at the same time");
    let alone = managers[2].lock(&key).with_wait(PATIENCE).await;
    give_back(alone.unwrap_or_else(|error| panic!("all permits must come back: {error}"))).await;
}

/// A writer that becomes a reader lets readers in, and no writer.
pub async fn downgraded(managers: [LockManager; 3]) {
    let key = key("downgraded");
    all_hear(&managers, &key).await;
    let [one, two, three] = managers;
    let guard = take(&one, &key).await;
    if let Err(error) = guard.downgrade().await {
        return assert_eq!(error.kind(), LockErrorKind::Misconfigured, "a clear refusal: {error}");
    }
    let mut writing = Box::pin(two.write(&key).with_wait(PATIENCE).acquire());
    assert!(tokio::select! { _ = &mut writing => false, () = pause(A_WHILE) => true }, "a writer beside a reader");
    let late = three.read(&key).with_wait(50 * MS).await;
    assert!(late.is_err(), "a reader passed a writer that waits");
    assert_eq!(guard.ensure_held(), Ok(()));
    let token = guard.token();
    let ((), writer) = tokio::join!(give_back(guard), writing);
    let writer = writer.unwrap_or_else(|error| panic!("a writer must be served: {error}"));
    assert!(writer.token() > token);
    assert_eq!(writer.downgrade().await, Ok(()));
    let reader = three.read(&key).with_wait(SECOND).await;
    let reader = reader.unwrap_or_else(|error| panic!("readers share with who has become one: {error}"));
    assert_eq!(reader.token(), writer.token());
    give_back(writer).await;
    give_back(reader).await;
}
