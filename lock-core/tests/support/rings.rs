//! Tasks that wait for each other, and what is told of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Deadlock, LockError, LockErrorKind, LockEvent, LockGuard, LockManager, LockObserver, Notice, Wait};
use tokio::sync::Barrier;
use tokio::time::sleep;

/// The reports of members of cycles.
#[derive(Clone, Default)]
pub(crate) struct Told(pub(crate) Arc<Mutex<Vec<Deadlock>>>);

impl LockObserver for Told {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::Deadlocked { deadlock } = notice {
            self.0.lock().unwrap().push(Deadlock::clone(deadlock));
        }
    }
}

/// Holds one lock and wants another after a while.
async fn crossing(locks: LockManager, first: String, second: String) -> Result<(), LockError> {
    let patient = |key: String| locks.lock(key).with_wait(Wait::Forever);
    let inner = patient(second);
    patient(first)
        .run(async |_| {
            sleep(Duration::from_millis(100)).await;
            inner.run(async |_| Ok(())).await
        })
        .await
}

/// A ring of tasks, each of which wants what the next one holds. Returns how it ended for each.
pub(crate) async fn ring(managers: &[LockManager]) -> Vec<Result<(), LockError>> {
    let count = managers.len();
    let mut tasks = Vec::new();
    for (place, locks) in managers.iter().enumerate() {
        let (first, second) = (format!("ring:{place}"), format!("ring:{}", (place + 1) % count));
        tasks.push(tokio::spawn(crossing(locks.clone(), first, second)));
    }
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await.unwrap());
    }
    ends
}

/// Two tasks with guards in a scope, each of which holds what the other one wants.
pub(crate) async fn crossing_in_scopes(managers: [LockManager; 2]) -> [Result<(), LockError>; 2] {
    let both_hold = Barrier::new(2);
    let task = async |place: usize| {
        let patient = |key: usize| managers[place].lock(format!("ring:{key}")).with_wait(Wait::Forever);
        let first: LockGuard = patient(place).await?;
        both_hold.wait().await;
        let second = first.scope(patient(1 - place).acquire()).await?;
        second.release().await?;
        first.release().await.map(drop)
    };
    tokio::join!(task(0), task(1)).into()
}

pub(crate) fn assert_one_gave_way(ends: &[Result<(), LockError>], told: &Told) {
    let victims: Vec<&LockError> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
    assert_eq!(victims.len(), 1, "{ends:?}");
    assert_eq!(victims[0].kind(), LockErrorKind::WouldDeadlock);
    let said = victims[0].to_string();
    for part in ["who waits for", "which this task holds", "gives way", "lock_all"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    for place in 0..ends.len() {
        assert!(said.contains(&format!("\"ring:{place}\"")), "{said}");
    }
    let told = told.0.lock().unwrap();
    assert_eq!(told.iter().filter(|deadlock| deadlock.victim).count(), 1, "{told:?}");
    // A member that looks late finds it broken.
    let told_twice = told.iter().enumerate().any(|(at, one)| told[..at].iter().any(|other| other.cycle == one.cycle));
    assert!(!told_twice && (1..=ends.len()).contains(&told.len()), "{told:?}");
}
