//! The rules on which waiters rely in a store that queues them.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::contract::{ask, granted};
use crate::conformance::tools::{MS, SECOND, driven, give_back, hears, key, now, outlast, pause, soon, take};
use crate::{EventLog, inbox};
use lock_core::LockManager;
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Freed, LockBackend, Release, Ticket};
use lock_store::types::key::LockKey;

/// How long an unconfirmed place counts.
const GRANT_TTL: Duration = Duration::from_millis(500);

/// Waits until each manager can hear of its turn at a key. Before that it polls, and other callers may pass it.
pub(super) async fn all_hear(managers: &[LockManager; 3], key: &LockKey) {
    let parts = managers.each_ref().map(LockManager::parts);
    if !parts[0].queues {
        return;
    }
    let guard = take(&managers[0], key).await;
    for part in parts {
        let claim = Claim::new(key.clone(), SECOND);
        soon("the store takes grants", async {
            loop {
                let mut request = ask(&claim);
                request.ticket = Some(Ticket::new(Arc::clone(part.inbox.id()), 1, GRANT_TTL));
                let attempt = Arc::clone(&part.backend).try_acquire(request).await;
                if part.inbox.is_open() && matches!(attempt, Ok(Attempt::Queued { .. })) {
                    break;
                }
                pause(5 * MS).await;
            }
        })
        .await;
        let withdrawn = Arc::clone(&part.backend).withdraw(claim).await;
        assert!(withdrawn.is_ok(), "a place must be left: {withdrawn:?}");
    }
    give_back(guard).await;
}

/// Drops waiters that no longer confirm their places, even if many stand in a row. The lock passes to the first waiter
/// behind them that still does. A store without a queue passes.
pub async fn stopped_waiters(store: impl LockBackend) {
    if !store.capabilities().queue {
        return;
    }
    let store = Arc::new(store);
    let (inbox, mut reports) = inbox(EventLog::default());
    let rule = async {
        hears(&inbox).await;
        let queued = |claim: &Claim, grant_ttl: Duration| -> AcquireRequest {
            let mut request = ask(claim);
            request.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, grant_ttl));
            request
        };
        let key = key("stopped waiters");
        let claim = || Claim::new(key.clone(), 60 * SECOND);
        let (holder, living) = (claim(), claim());
        granted(&*store, &ask(&holder)).await;
        for _ in 0..3 {
            let request = queued(&claim(), GRANT_TTL);
            // In a store of several servers, the one that has the key may become reachable later than another.
            let answered = soon("a waiter is queued", async {
                loop {
                    match store.try_acquire(&request).await {
                        Ok(Attempt::Held { .. }) => pause(5 * MS).await,
                        attempt => break attempt,
                    }
                }
            });
            let attempt = answered.await;
            assert!(matches!(attempt, Ok(Attempt::Queued { .. })), "who waits must be queued: {attempt:?}");
        }
        outlast(&*store, GRANT_TTL).await;
        let attempt = store.try_acquire(&queued(&living, 60 * SECOND)).await;
        assert!(matches!(attempt, Ok(Attempt::Queued { .. })), "who waits must be queued: {attempt:?}");
        assert_eq!(store.release(&Release::new(holder)).await, Ok(Freed::Released));
        let next = store.holder(&key).await.ok().flatten().and_then(|holder| holder.owner);
        assert_eq!(next, Some(living.owner), "a waiter that nobody confirmed was granted the lock");
        let grant = soon("the waiter is told of its grant", reports.next_grant()).await;
        assert_eq!(grant.map(|grant| grant.claim.owner), Some(living.owner));
    };
    driven(&*store, &inbox, rule).await;
}

/// Keeps the places of claims that sleep, as long as it lets them, and still grants to them. A new claim stays awake. A
/// store without sleeping passes.
pub async fn sleeping_waiters(store: impl LockBackend) {
    if !store.capabilities().queue {
        return;
    }
    let store = Arc::new(store);
    let (inbox, mut reports) = inbox(EventLog::default());
    let rule = async {
        hears(&inbox).await;
        let key = key("sleeping waiters");
        let claim = || Claim::new(key.clone(), 60 * SECOND);
        let (holder, sleeper, second) = (claim(), claim(), claim());
        let queued = |claim: &Claim| {
            let mut request = ask(claim);
            let mut ticket = Ticket::new(Arc::clone(inbox.id()), 1, GRANT_TTL);
            ticket.sleep = Some(10 * SECOND);
            request.ticket = Some(ticket);
            request
        };
        granted(&*store, &ask(&holder)).await;
        // A store may let a claim sleep that has waited for three seconds.
        let began = now();
        let slept = soon("the claim sleeps, or may not", async {
            loop {
                match store.try_acquire(&queued(&sleeper)).await {
                    Ok(Attempt::Asleep { pause: slept, .. }) => break Some(slept),
                    Ok(Attempt::Held { .. } | Attempt::Queued { .. }) if now().since(began) < 4 * SECOND => {
                        pause(200 * MS).await;
                    }
                    Ok(Attempt::Queued { .. }) => break None,
                    attempt => panic!("who waits must be queued: {attempt:?}"),
                }
            }
        })
        .await;
        let Some(slept) = slept else {
            let _ = (store.withdraw(&sleeper).await, store.release(&Release::new(holder)).await);
            return;
        };
        assert!(slept <= 10 * SECOND, "the first in the queue asks before its time: {slept:?}");
        let attempt = store.try_acquire(&queued(&second)).await;
        assert!(matches!(attempt, Ok(Attempt::Queued { .. })), "whoever has just come stays awake: {attempt:?}");
        pause(GRANT_TTL * 4).await;
        assert_eq!(store.release(&Release::new(holder)).await, Ok(Freed::Released));
        let next = store.holder(&key).await.ok().flatten().and_then(|holder| holder.owner);
        assert_eq!(next, Some(sleeper.owner), "a claim that sleeps keeps its place");
        let grant = soon("the sleeper is told of its grant", reports.next_grant()).await;
        assert_eq!(grant.map(|grant| grant.claim.owner), Some(sleeper.owner));
        // Its own request confirms the grant, or finds that the grant has ended.
        let attempt = store.try_acquire(&queued(&sleeper)).await;
        assert!(matches!(attempt, Ok(Attempt::Granted { .. } | Attempt::Queued { .. })), "{attempt:?}");
        let _ = (store.release(&Release::new(sleeper)).await, store.withdraw(&second).await);
    };
    driven(&*store, &inbox, rule).await;
}
