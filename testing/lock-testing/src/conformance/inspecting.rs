//! Rules for the part of a store that operators of a fleet use.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conformance::contract::{ask_at, attempt};
use crate::conformance::tools::{MS, SECOND, driven, key, now, pause, soon, take};
use crate::{EventLog, inbox};
use lock_core::LockManager;
use lock_store::contract::backend::{
    Attempt, Claim, EntryState, Freed, Inspector, JobRecord, JobRecords as _, JobRun, LockBackend, LockEntry, Release,
    Revocation, RevokeFrom, Ticket, Waiter,
};
use lock_store::types::error::LossReason;
use lock_store::types::key::LockKey;
use lock_store::types::mode::Mode;
use lock_store::types::owner::{HolderInfo, OwnerId};

/// A store with an inspector lists the holders of each lock and the waiters of each queue. A walk finds every lock.
pub async fn inspection(store: impl LockBackend) {
    let Some(inspector) = store.inspector() else { return };
    let free = key("inspected:free");
    assert!(entry(inspector, &free).await.is_none(), "a free lock has no holder");
    assert!(waiters(inspector, &free).await.is_empty(), "nobody waits for a free lock");
    assert!(job(inspector, &free).await.is_none(), "no job has run under it");

    let (base, since) = (key("inspected"), now());
    let mut taken = BTreeMap::new();
    for number in 0..7 {
        let key = LockKey::new(format!("{base}:{number}")).unwrap_or_else(|error| panic!("{error}"));
        let claim = Claim::new(key.clone(), 60 * SECOND);
        granted(&store, &claim, "inspected::here").await;
        taken.insert(key, claim);
    }
    for (key, claim) in &taken {
        let seen = entry(inspector, key).await.unwrap_or_else(|| panic!("{key} is held"));
        assert_eq!((&seen.key, seen.state, seen.holder.owner), (key, EntryState::Held, Some(claim.owner)), "{seen:?}");
        assert_eq!((seen.holder.site(), seen.mode), ("inspected::here", Some(Mode::Exclusive)), "{seen:?}");
        assert!(seen.holder.ttl_left.is_some_and(|left| left <= 60 * SECOND), "{seen:?}");
        let age = now().since(since) + SECOND;
        assert!(seen.held_for.is_none_or(|held| held <= age), "it is held for {age:?} at most: {seen:?}");
        assert_eq!(seen.waiters.unwrap_or(0), 0, "nobody waits: {seen:?}");
    }
    for limit in [1, 3, 100] {
        let found = walk(inspector, &format!("{base}:"), limit).await;
        assert!(found.keys().eq(taken.keys()), "a walk finds each lock below its prefix, by {limit}: {found:?}");
        assert!(found.iter().all(|(key, seen)| seen.holder.owner == Some(taken[key].owner)), "{found:?}");
    }

    let (first, claim) = taken.pop_first().unwrap_or_else(|| unreachable!());
    if store.capabilities().queue {
        queue(&store, inspector, &first).await;
    }
    let mut release = Release::new(claim);
    release.run = store.jobs().map(|_| JobRun::new(60 * SECOND, true));
    let freed = store.release(&release).await;
    assert_eq!(freed, Ok(Freed::Released));
    if let Some(jobs) = store.jobs() {
        let (known, told) = (jobs.last_run(&first).await, job(inspector, &first).await);
        assert_eq!(known.map(|record| record.map(|record| record.every)), Ok(told.map(|record| record.every)));
    }
    for claim in taken.into_values() {
        let _ = store.release(&Release::new(claim)).await;
    }
    if store.shared().is_some() {
        sharing(&store, inspector).await;
    }
}

/// An operator takes a lock away from the named holder and from no other. That holder learns of it.
pub async fn revocation([one, two, _]: [LockManager; 3]) {
    let backend = || one.parts().backend;
    let key = key("revoked");
    if backend().entry(key.clone()).await.is_err() {
        return; // Without an inspector.
    }
    let guard = take(&one, &key).await;
    let owner = match backend().entry(key.clone()).await {
        Ok(Some(entry)) => entry.holder.owner,
        other => panic!("{other:?}"),
    };
    let Some(owner) = owner else { panic!("our own holder has an identity") };
    let revoke = |from| backend().revoke(key.clone(), Revocation::new(from, "conformance", "a rule"));
    assert_eq!(revoke(RevokeFrom::Owner(OwnerId::random())).await, Ok(Freed::NotHeld), "it is somebody else's");
    assert_eq!(revoke(RevokeFrom::Foreign(b"nonce".to_vec())).await, Ok(Freed::NotHeld), "it is ours");
    assert_eq!(guard.ensure_held(), Ok(()), "it was taken from nobody");
    assert_eq!(revoke(RevokeFrom::Owner(owner)).await, Ok(Freed::Released));
    let reason = soon("the holder learns that its lock was taken away", guard.lost()).await;
    assert!(matches!(reason, LossReason::Revoked | LossReason::Stolen), "{reason:?}");
    let next = take(&two, &key).await;
    assert!(next.token() > guard.token(), "the next grant has a greater token");
    assert_eq!(revoke(RevokeFrom::Owner(owner)).await, Ok(Freed::NotHeld), "it is the next one's");
    assert_eq!(next.ensure_held(), Ok(()));
}

/// Waiters are listed in order of arrival.
async fn queue(store: &impl LockBackend, inspector: &impl Inspector, key: &LockKey) {
    let (inbox, _reports) = inbox(EventLog::default());
    let rule = async {
        let claims = [(); 2].map(|()| Claim::new(key.clone(), 60 * SECOND));
        for claim in &claims {
            let mut request = ask_at("inspected::waits", claim);
            request.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, 60 * SECOND));
            soon("a waiter is queued", async {
                while !matches!(store.try_acquire(&request).await, Ok(Attempt::Queued { .. })) {
                    pause(5 * MS).await;
                }
            })
            .await;
        }
        let waiting = waiters(inspector, key).await;
        let told: Vec<_> = waiting.iter().map(|waiter| (waiter.position, waiter.owner)).collect();
        assert_eq!(told, [(1, claims[0].owner), (2, claims[1].owner)]);
        let site = |info: &Option<HolderInfo>| info.as_ref().is_some_and(|info| &*info.site == "inspected::waits");
        assert!(waiting.iter().all(|waiter| site(&waiter.info)), "{waiting:?}");
        assert_eq!(entry(inspector, key).await.and_then(|entry| entry.waiters), Some(2));
        for claim in &claims {
            let _ = store.withdraw(claim).await;
        }
    };
    driven(store, &inbox, rule).await;
}

/// The holders of a shared lock are counted and listed.
async fn sharing(store: &impl LockBackend, inspector: &impl Inspector) {
    let key = key("inspected:shared");
    let claims = [(); 2].map(|()| Claim::new(key.clone(), 60 * SECOND).with_mode(Mode::READ));
    for claim in &claims {
        granted(store, claim, "inspected::reads").await;
    }
    let seen = entry(inspector, &key).await;
    let told = seen.as_ref().map(|entry| (entry.state, entry.units, entry.mode));
    assert_eq!(told, Some((EntryState::Shared, Some(2), Some(Mode::READ))), "{seen:?}");
    let age = seen.as_ref().map(|entry| (entry.held_for, entry.granted_at, entry.holder.since));
    assert_eq!(age, Some((None, None, None)), "a shared lock has no age, only its members have: {seen:?}");
    let sharers = inspector.sharers(&key).await.unwrap_or_else(|error| panic!("{error}"));
    let mut owners: Vec<_> = sharers.iter().filter_map(|sharer| sharer.owner).map(OwnerId::to_hex).collect();
    let mut ours: Vec<_> = claims.iter().map(|claim| claim.owner.to_hex()).collect();
    owners.sort_unstable();
    ours.sort_unstable();
    assert_eq!(owners, ours, "each of them has it: {sharers:?}");
    let from = RevokeFrom::Owner(claims[0].owner);
    let freed = inspector.revoke(&key, &Revocation::new(from, "conformance", "a rule")).await;
    assert_eq!(freed, Ok(Freed::Released), "it is taken from one of them");
    assert_eq!(entry(inspector, &key).await.and_then(|entry| entry.units), Some(1));
    let _ = store.release(&Release::new(claims[1].clone())).await;
}

async fn granted(store: &impl LockBackend, claim: &Claim, site: &str) {
    let attempt = attempt(store, &ask_at(site, claim)).await;
    assert!(matches!(attempt, Ok(Attempt::Granted { .. } | Attempt::Shared { .. })), "{attempt:?}");
}

async fn entry(inspector: &impl Inspector, key: &LockKey) -> Option<LockEntry> {
    inspector.entry(key).await.unwrap_or_else(|error| panic!("entry: {error}"))
}

async fn waiters(inspector: &impl Inspector, key: &LockKey) -> Vec<Waiter> {
    inspector.waiters(key).await.unwrap_or_else(|error| panic!("waiters: {error}"))
}

async fn job(inspector: &impl Inspector, key: &LockKey) -> Option<JobRecord> {
    inspector.job(key).await.unwrap_or_else(|error| panic!("job: {error}"))
}

async fn walk(inspector: &impl Inspector, prefix: &str, limit: u32) -> BTreeMap<LockKey, LockEntry> {
    let (mut found, mut after) = (BTreeMap::new(), None);
    loop {
        let page = inspector.scan(prefix, limit, after.as_ref()).await.unwrap_or_else(|error| panic!("scan: {error}"));
        found.extend(page.entries.into_iter().map(|entry| (entry.key.clone(), entry)));
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}
