//! Many callers want the same lock. They hold it one at a time and in turn, each with the lease it asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::conformance::contract::ask;
use crate::conformance::queue::all_hear;
use crate::conformance::tools::{MS, PATIENCE, SECOND, give_back, key, pause, take};
use lock_core::{LockGuard, LockManager};
use lock_store::contract::backend::{Attempt, Claim};
use lock_store::types::options::Renew;
use lock_store::types::system::sync::Mutex;

/// Records who is inside the critical section, and the tokens of all holders that entered.
#[derive(Default)]
struct Section {
    inside: Mutex<Option<Arc<LockGuard>>>,
    newest: AtomicU64,
}

impl Section {
    /// Lets a holder in. Another holder that is still inside, or was inside with a greater token, is a mistake only
    /// while both leases run. A stall of the machine ends leases.
    fn enter(&self, guard: LockGuard) -> Arc<LockGuard> {
        let guard = Arc::new(guard);
        let before = self.inside.lock().replace(Arc::clone(&guard));
        if let Some(other) = before {
            assert!(other.ensure_held().is_err() || guard.ensure_held().is_err(), "two holders at once");
        }
        let token = guard.token().get();
        let before = self.newest.fetch_max(token, Ordering::SeqCst);
        assert!(before < token || guard.ensure_held().is_err(), "token {token} after {before}");
        guard
    }

    async fn leave(&self, guard: Arc<LockGuard>) {
        {
            let mut inside = self.inside.lock();
            if inside.as_ref().is_some_and(|other| Arc::ptr_eq(other, &guard)) {
                *inside = None;
            }
        }
        // Another holder that entered in the meantime may be checking the guard, and then drops it.
        if let Some(guard) = Arc::into_inner(guard) {
            give_back(guard).await;
        }
    }
}

/// Runs many tasks on one key. Never two are inside, and tokens follow the order of the grants.
pub async fn exclusion(managers: [LockManager; 3]) {
    let (key, section) = (key("exclusion"), Arc::new(Section::default()));
    let mut tasks = JoinSet::new();
    for manager in managers.iter().cycle().take(managers.len() * 4) {
        let (manager, key, section) = (manager.clone(), key.clone(), Arc::clone(&section));
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = manager.lock(&key).with_wait(PATIENCE).await;
                let guard = section.enter(guard.unwrap_or_else(|error| panic!("exclusion: {error}")));
                tokio::task::yield_now().await;
                section.leave(guard).await;
            }
        });
    }
    tasks.join_all().await;
}

/// Lets processes contend for one key. None may be left waiting while the others take turns. If processes poll, because
/// the store has no queue, each must only get its turns in time.
pub async fn fairness(managers: [LockManager; 3]) {
    let queues = managers[0].parts().queues;
    let (key, rounds) = (key("fairness"), 30);
    all_hear(&managers, &key).await;
    // Counts requests and grants alike, so that it orders them without a clock.
    let order = Arc::new(AtomicUsize::new(0));
    let turns: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for manager in managers {
        let (key, order, turns) = (key.clone(), Arc::clone(&order), Arc::clone(&turns));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let asked = order.fetch_add(1, Ordering::SeqCst);
                let guard = manager.lock(&key).with_wait(PATIENCE).await;
                let guard = guard.unwrap_or_else(|error| panic!("fairness: {error}"));
                let granted = order.fetch_add(1, Ordering::SeqCst);
                turns.lock().push((asked, granted));
                pause(2 * MS).await;
                give_back(guard).await;
            }
        });
    }
    tasks.join_all().await;
    let turns = turns.lock();
    let bypassed = |(asked, granted): &(usize, usize)| turns.iter().filter(|(a, g)| a > asked && g < granted).count();
    let longest = turns.iter().map(bypassed).max().unwrap_or(0);
    // Two turns of the others would be fair. The rest allows for a thread that is delayed before it has asked.
    assert!(!queues || longest <= rounds, "{longest} who came later were served first: {turns:?}");
}

/// Passes the lock on within one process. Every holder has its own token, in order.
pub async fn handoff([manager, ..]: [LockManager; 3]) {
    let (key, section) = (key("handoff"), Arc::new(Section::default()));
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (manager, key, section) = (manager.clone(), key.clone(), Arc::clone(&section));
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = manager.lock(&key).with_wait(PATIENCE).await;
                let guard = section.enter(guard.unwrap_or_else(|error| panic!("handoff: {error}")));
                section.leave(guard).await;
            }
        });
    }
    tasks.join_all().await;
    // This includes guards that another holder had to drop, which are released in the background.
    give_back(take(&manager, &key).await).await;
}

/// Lets callers with different leases follow each other. Each must get the lease it asked for. If locks end with a session,
/// the store gives less.
pub async fn mixed_terms([one, two, _]: [LockManager; 3]) {
    let probe = Claim::new(key("longest lease"), 60 * SECOND);
    let probed = one.parts().backend.try_acquire(ask(&probe)).await;
    let most = if let Ok(Attempt::Granted { lease: Some(lease), .. }) = probed { lease } else { probe.ttl };
    let key = key("mixed terms");
    let first = take(&one, &key).await;
    let long = one.lock(&key).with_ttl(60 * SECOND).with_wait(PATIENCE).acquire();
    let fixed = one.lock(&key).with_ttl(30 * SECOND).with_renew(Renew::Off).with_wait(PATIENCE).acquire();
    let remote = two.lock(&key).with_ttl(20 * SECOND).with_wait(PATIENCE).acquire();
    let hold = |name: &'static str, acquire: std::pin::Pin<Box<dyn Future<Output = _> + Send>>, ttl: Duration| async move {
        let guard: LockGuard = match acquire.await {
            Ok(guard) => guard,
            Err::<_, lock_store::types::error::LockError>(error) => panic!("mixed terms: {name}: {error}"),
        };
        let ttl = ttl.min(most);
        // A grant through the queue starts short. It is extended at once, or after a third of its time.
        let mut left = guard.remaining();
        while left <= ttl / 2 && guard.ensure_held().is_ok() {
            pause(50 * MS).await;
            left = guard.remaining();
        }
        assert!(left > ttl / 2 && left <= ttl, "mixed terms: {name}: {left:?} of {ttl:?}");
        give_back(guard).await;
    };
    tokio::join!(
        async {
            pause(100 * MS).await;
            let _ = first.release().await;
        },
        hold("long", Box::pin(long), 60 * SECOND),
        hold("fixed", Box::pin(fixed), 30 * SECOND),
        hold("remote", Box::pin(remote), 20 * SECOND),
    );
}
