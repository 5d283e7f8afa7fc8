//! Rules of every store and every manager for several keys at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;

use crate::conformance::contract::{ask, granted, refused};
use crate::conformance::tools::{SECOND, key};
use lock_core::{LockManager, ReleaseOutcome};
use lock_store::contract::backend::{AcquireRequest, AttemptAll, Claim, Freed, LockBackend, Release};
use lock_store::types::key::LockKey;

/// Takes several locks in one step: all or none. A store that never does so passes.
pub async fn all_or_nothing(store: impl LockBackend) {
    let store = &store;
    let claims = ["one", "two", "three"].map(|name| Claim::new(key(&format!("together, {name}")), 60 * SECOND));
    let rivals = claims.clone().map(|claim| Claim::new(claim.key, claim.ttl));
    let ask_all = |claims: &[Claim]| claims.iter().map(ask).collect::<Vec<_>>();
    let free = async |claim: &Claim| matches!(store.holder(&claim.key).await, Ok(None));

    let before = granted(store, &ask(&rivals[2])).await;
    match store.try_acquire_all(&ask_all(&claims)).await {
        Ok(AttemptAll::Apart) => return,
        Ok(AttemptAll::Held { index, holder }) => {
            assert_eq!((index, holder.owner), (2, Some(rivals[2].owner)), "a refusal names the key and its holder");
        }
        other => panic!("of three keys the last was taken, yet: {other:?}"),
    }
    assert!(free(&claims[0]).await && free(&claims[1]).await, "one that is taken keeps all others from being taken");
    assert_eq!(store.release(&Release::new(rivals[2].clone())).await, Ok(Freed::Released));

    let requests = ask_all(&claims);
    let all = async |requests: &[AcquireRequest]| match store.try_acquire_all(requests).await {
        Ok(AttemptAll::Granted { tokens }) => tokens,
        other => panic!("three free keys were not granted: {other:?}"),
    };
    let tokens = all(&requests).await;
    assert!(tokens[2] > before, "tokens must grow");
    let repeated = all(&requests).await;
    assert!(
        repeated.iter().zip(&tokens).all(|(again, first)| again > first),
        "a repeat is granted again, with new tokens"
    );
    for (claim, rival) in claims.iter().zip(&rivals) {
        assert!(refused(store, rival).await, "each of them excludes others");
        assert_eq!(
            store.release(&Release::new(claim.clone())).await,
            Ok(Freed::Released),
            "each is released by itself"
        );
        assert!(free(claim).await);
    }
}

/// Takes overlapping sets of keys, some by trying, some by waiting. The holder of a set is the only holder of each of
/// its keys, and no caller waits forever.
pub async fn overlapping_sets(managers: [LockManager; 3]) {
    let keys: Vec<LockKey> = ["a", "b", "c", "d"].iter().map(|name| key(&format!("several, {name}"))).collect();
    let inside: Arc<Vec<AtomicU32>> = Arc::new(keys.iter().map(|_| AtomicU32::new(0)).collect());
    let mut tasks = JoinSet::new();
    for (task, manager) in managers.iter().cycle().take(managers.len() * 3).enumerate() {
        let (manager, keys, inside) = (manager.clone(), keys.clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            for round in 0..8 {
                let chosen = [(task + round) % 4, (task + 2 * round + 1) % 4, (3 * task + round) % 4];
                let request = manager.lock_all(chosen.iter().rev().map(|index| &keys[*index])).with_wait(60 * SECOND);
                let guard = if (task + round) % 3 == 0 { request.try_acquire().await } else { request.await.map(Some) };
                let Some(guard) = guard.unwrap_or_else(|error| panic!("several: {error}")) else { continue };
                let held: Vec<usize> = (0..4).filter(|index| chosen.contains(index)).collect();
                for index in &held {
                    assert_eq!(inside[*index].fetch_add(1, Ordering::SeqCst), 0, "two holders of {:?}", keys[*index]);
                }
                tokio::task::yield_now().await;
                for index in &held {
                    inside[*index].fetch_sub(1, Ordering::SeqCst);
                }
                assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released), "several: release");
            }
        });
    }
    tasks.join_all().await;
}
