//! The list of observers, and the state that an observer gets when it is added late.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::event::{LockEvent, LockObserver, Notice};

/// An append-only list of observers, so that the order of registration does not matter.
#[derive(Default)]
pub(crate) struct Observers {
    first: Tail,
    /// What an observer that is added later must know, by node.
    lasting: Mutex<Vec<Lasting>>,
}

#[derive(Default)]
struct Tail(OnceLock<(Arc<dyn LockObserver>, Box<Tail>)>);

/// What was last reported about a node, and holds until the next report.
struct Lasting {
    node: Box<str>,
    up: Option<bool>,
    policy: Option<Box<str>>,
    /// Its replicas, and how many must have a write.
    replicas: Option<(u32, u32)>,
}

impl Observers {
    pub(crate) const fn new() -> Self {
        Self { first: Tail(OnceLock::new()), lasting: Mutex::new(Vec::new()) }
    }

    pub(crate) fn add(&self, observer: Arc<dyn LockObserver>) {
        // Until the end, so that it does not get the old state after the new one.
        let lasting = self.lasting();
        for Lasting { node, up, policy, replicas } in lasting.iter() {
            let told = [
                up.map(|up| Notice::Connection { node, up }),
                policy.as_deref().map(|policy| Notice::EvictionPolicy { node, policy }),
                replicas.map(|(replicas, min_replicas)| Notice::Replication { node, replicas, min_replicas }),
            ];
            for notice in told.iter().flatten() {
                shielded(|| observer.on_notice(notice));
            }
        }
        let mut tail = &self.first;
        let mut entry = (observer, Box::default());
        while let Err(back) = tail.0.set(entry) {
            entry = back;
            match tail.0.get() {
                Some((_, next)) => tail = next,
                None => return,
            }
        }
    }

    fn for_each(&self, call: impl Fn(&dyn LockObserver)) {
        let mut tail = &self.first;
        while let Some((observer, next)) = tail.0.get() {
            shielded(|| call(observer.as_ref()));
            tail = next;
        }
    }

    /// Tells these observers and the process-wide ones.
    pub(crate) fn event(&self, event: &LockEvent<'_>) {
        self.for_each(|observer| observer.on_event(event));
        EVERYWHERE.for_each(|observer| observer.on_event(event));
    }

    /// Tells these observers and the process-wide ones.
    pub(crate) fn notice(&self, notice: &Notice<'_>) {
        self.tell(notice);
        EVERYWHERE.tell(notice);
    }

    fn tell(&self, notice: &Notice<'_>) {
        let _lasting = self.remember(notice);
        self.for_each(|observer| observer.on_notice(notice));
    }

    /// Keeps lasting states, and makes observers that are added meanwhile wait.
    fn remember(&self, notice: &Notice<'_>) -> Option<MutexGuard<'_, Vec<Lasting>>> {
        let (Notice::Connection { node, .. } | Notice::EvictionPolicy { node, .. } | Notice::Replication { node, .. }) =
            notice
        else {
            return None;
        };
        let mut lasting = self.lasting();
        let known = lasting.iter().position(|known| *known.node == **node);
        let at = known.unwrap_or_else(|| {
            lasting.push(Lasting { node: (*node).into(), up: None, policy: None, replicas: None });
            lasting.len() - 1
        });
        match notice {
            Notice::Connection { up, .. } => lasting[at].up = Some(*up),
            Notice::EvictionPolicy { policy, .. } => lasting[at].policy = Some((*policy).into()),
            Notice::Replication { replicas, min_replicas, .. } => {
                lasting[at].replicas = Some((*replicas, *min_replicas));
            }
            _ => {}
        }
        Some(lasting)
    }

    fn lasting(&self) -> MutexGuard<'_, Vec<Lasting>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}

/// Calls an observer and ignores its panic.
fn shielded(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

static EVERYWHERE: Observers = Observers::new();

/// Registers an observer of every manager of this process, present and future.
///
/// There is no way to remove it. [`LockManager::observe`](crate::LockManager::observe) watches a
/// single manager.
pub fn observe_all(observer: impl LockObserver) {
    EVERYWHERE.add(Arc::new(observer));
}

/// Tells the process-wide observers.
pub(crate) fn notify_all(notice: &Notice<'_>) {
    EVERYWHERE.tell(notice);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use super::Observers;
    use crate::event::{LockEvent, LockEventKind, LockObserver, Notice};
    use crate::key::{LockKey, LockLabel};

    #[test]
    fn a_panicking_observer_hurts_nobody() {
        let seen = Arc::new(AtomicU32::new(0));
        let observers = Observers::new();
        observers.add(Arc::new(|_: &LockEvent<'_>| panic!("observer bug, expected in this test")));
        let count = Arc::clone(&seen);
        observers.add(Arc::new(move |_: &LockEvent<'_>| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let (label, key) = (LockLabel::from("x"), LockKey::new("x").unwrap());
        observers.event(&LockEvent::new(1, &label, &key, "here", LockEventKind::WaitStarted));
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }

    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl LockObserver for Notes {
        fn on_event(&self, _: &LockEvent<'_>) {}

        fn on_notice(&self, notice: &Notice<'_>) {
            let note = match notice {
                Notice::Connection { node, up } => format!("{node} {up}"),
                Notice::EvictionPolicy { node, policy } => format!("{node} {policy}"),
                _ => "another".to_owned(),
            };
            self.0.lock().unwrap().push(note);
        }
    }

    #[test]
    fn a_latecomer_is_told_what_lasts_and_nothing_else() {
        let observers = Observers::new();
        let label = LockLabel::from("x");
        observers.tell(&Notice::UnlockedRun { label: &label });
        for up in [false, true] {
            observers.tell(&Notice::Connection { node: "a", up });
        }
        observers.tell(&Notice::EvictionPolicy { node: "a", policy: "allkeys-lru" });
        observers.tell(&Notice::Connection { node: "b", up: false });
        let late = Notes::default();
        observers.add(Arc::new(late.clone()));
        assert_eq!(*late.0.lock().unwrap(), ["a true", "a allkeys-lru", "b false"]);
        observers.tell(&Notice::Connection { node: "b", up: true });
        assert_eq!(late.0.lock().unwrap().last().unwrap(), "b true");
    }
}
