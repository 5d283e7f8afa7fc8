//! The list of observers, and the state that an observer gets when it is added late.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::contract::event::{LockEvent, LockObserver, Notice, WaitProgress};
use crate::types::system::sync::Mutex;

/// How often the state is sent to a new observer at most, if it keeps changing.
const TELLINGS: usize = 8;

/// An append-only list of observers, so that the order of registration does not matter.
#[derive(Default)]
pub struct Observers {
    first: Tail,
    /// The state that a later observer must learn, by node.
    lasting: Mutex<Vec<Lasting>>,
    /// How often that state has changed.
    changes: AtomicU64,
}

#[derive(Default)]
struct Tail(OnceLock<(Arc<dyn LockObserver>, Box<Tail>)>);

/// The last report about a node, which holds until the next report.
#[derive(Clone, Default)]
struct Lasting {
    node: Box<str>,
    up: Option<bool>,
    policy: Option<Box<str>>,
    /// Its replicas, and how many must have a write.
    replicas: Option<(u32, u32)>,
    /// Whether a failover may lose locks, and nobody has chosen that.
    exposed: Option<bool>,
    /// Its id, its version, and how it is found.
    server: Option<(Box<str>, Box<str>, &'static str)>,
    /// How many of its slots are open.
    slots_open: Option<u32>,
    /// The node behind the store of this name, in which locks may be taken.
    store_at: Option<Box<str>>,
}

impl Observers {
    #[must_use]
    pub const fn new() -> Self {
        Self { first: Tail(OnceLock::new()), lasting: Mutex::new(Vec::new()), changes: AtomicU64::new(0) }
    }

    pub fn add(&self, observer: Arc<dyn LockObserver>) {
        let mut tail = &self.first;
        let told = Arc::clone(&observer);
        let mut entry = (observer, Box::default());
        while let Err(back) = tail.0.set(entry) {
            entry = back;
            match tail.0.get() {
                Some((_, next)) => tail = next,
                None => return,
            }
        }
        // A change may reach the observer before it gets the older state. The state is therefore sent again after a
        // change. No lock is held during the calls: the observer may call this list again, or be slow.
        for _ in 0..TELLINGS {
            let (lasting, changes) = {
                let lasting = self.lasting.lock();
                (lasting.clone(), self.changes.load(Ordering::Relaxed))
            };
            for Lasting { node, up, policy, replicas, exposed, server, slots_open, store_at } in &lasting {
                let state = [
                    store_at.as_deref().map(|at| Notice::Store { store: node, node: at }),
                    up.map(|up| Notice::Connection { node, up }),
                    policy.as_deref().map(|policy| Notice::EvictionPolicy { node, policy }),
                    replicas.map(|(replicas, min_replicas)| Notice::Replication { node, replicas, min_replicas }),
                    exposed.map(|exposed| Notice::FailoverExposure { node, exposed }),
                    server.as_ref().map(|(id, version, kind)| Notice::Server { node, id, version, kind }),
                    slots_open.map(|slots| Notice::SlotsOpen { node, slots }),
                ];
                for notice in state.iter().flatten() {
                    shielded(|| told.on_notice(notice));
                }
            }
            if self.changes.load(Ordering::Relaxed) == changes {
                return;
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

    /// Calls these observers and the process-wide observers.
    fn each(&self, call: impl Fn(&dyn LockObserver)) {
        self.for_each(&call);
        EVERYWHERE.for_each(call);
    }

    /// Tells these observers and the process-wide observers.
    pub fn event(&self, event: &LockEvent<'_>) {
        self.each(|observer| observer.on_event(event));
    }

    /// Returns whether one of them wants to learn about waits.
    #[must_use]
    pub fn hear_waits(&self) -> bool {
        let heard = Cell::new(false);
        self.each(|observer| heard.set(heard.get() || observer.hears_waits()));
        heard.get()
    }

    /// Tells these observers and the process-wide observers about a wait that lasts.
    pub fn waiting(&self, progress: &WaitProgress) {
        self.each(|observer| observer.on_waiting(progress));
    }

    /// Tells these observers and the process-wide observers.
    pub fn notice(&self, notice: &Notice<'_>) {
        self.tell(notice);
        EVERYWHERE.tell(notice);
    }

    fn tell(&self, notice: &Notice<'_>) {
        self.remember(notice);
        self.for_each(|observer| observer.on_notice(notice));
    }

    /// Keeps the lasting states.
    fn remember(&self, notice: &Notice<'_>) {
        let (Notice::Connection { node, .. }
        | Notice::EvictionPolicy { node, .. }
        | Notice::Replication { node, .. }
        | Notice::FailoverExposure { node, .. }
        | Notice::Server { node, .. }
        | Notice::SlotsOpen { node, .. }
        | Notice::NodeLeft { node }
        | Notice::Store { store: node, .. }) = notice
        else {
            return;
        };
        let mut lasting = self.lasting.lock();
        self.changes.fetch_add(1, Ordering::Relaxed);
        let known = lasting.iter().position(|known| *known.node == **node);
        let at = known.unwrap_or_else(|| {
            lasting.push(Lasting { node: (*node).into(), ..Lasting::default() });
            lasting.len() - 1
        });
        match notice {
            Notice::Connection { up, .. } => lasting[at].up = Some(*up),
            Notice::EvictionPolicy { policy, .. } => lasting[at].policy = Some((*policy).into()),
            Notice::Replication { replicas, min_replicas, .. } => {
                lasting[at].replicas = Some((*replicas, *min_replicas));
            }
            Notice::FailoverExposure { exposed, .. } => lasting[at].exposed = Some(*exposed),
            Notice::Server { id, version, kind, .. } => {
                lasting[at].server = Some(((*id).into(), (*version).into(), kind));
            }
            Notice::SlotsOpen { slots, .. } => lasting[at].slots_open = Some(*slots),
            // A store may have the name of a node. The store stays.
            Notice::NodeLeft { node } => {
                lasting[at] =
                    Lasting { node: (*node).into(), store_at: lasting[at].store_at.take(), ..Lasting::default() };
            }
            Notice::Store { node, .. } => lasting[at].store_at = Some((*node).into()),
            _ => {}
        }
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
/// It cannot be removed. `LockManager::observe` watches a single manager.
pub fn observe_all(observer: impl LockObserver) {
    EVERYWHERE.add(Arc::new(observer));
}

/// Tells the process-wide observers.
pub fn notify_all(notice: &Notice<'_>) {
    EVERYWHERE.tell(notice);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use lock_testing::limit;

    use super::Observers;
    use crate::contract::event::{LockEvent, LockEventKind, LockObserver, Notice};
    use crate::types::key::{LockKey, LockLabel};

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
                Notice::Store { store, node } => format!("{store} is a store at {node}"),
                Notice::Server { node, id, .. } => format!("{node} is {id}"),
                Notice::SlotsOpen { node, slots } => format!("{node} has {slots} open"),
                _ => "another".to_owned(),
            };
            self.0.lock().unwrap().push(note);
        }
    }

    #[test]
    fn a_latecomer_is_told_what_lasts_and_nothing_else() {
        let observers = Observers::new();
        let label = LockLabel::from("x");
        observers.tell(&Notice::UnlockedRun { label: &label, store: "a" });
        for up in [false, true] {
            observers.tell(&Notice::Connection { node: "a", up });
        }
        observers.tell(&Notice::EvictionPolicy { node: "a", policy: "allkeys-lru" });
        observers.tell(&Notice::Connection { node: "b", up: false });
        observers.tell(&Notice::Store { store: "b", node: "a" });
        observers.tell(&Notice::Server { node: "a", id: "one", version: "redis 8.0.2", kind: "server" });
        observers.tell(&Notice::SlotsOpen { node: "a", slots: 1 });
        observers.tell(&Notice::Connection { node: "left", up: true });
        observers.tell(&Notice::NodeLeft { node: "left" });
        let late = Notes::default();
        observers.add(Arc::new(late.clone()));
        let told = ["a true", "a allkeys-lru", "a is one", "a has 1 open", "b is a store at a", "b false"];
        assert_eq!(*late.0.lock().unwrap(), told);
        observers.tell(&Notice::Connection { node: "b", up: true });
        assert_eq!(late.0.lock().unwrap().last().unwrap(), "b true");
    }

    /// Calls the list again in the middle of a notice.
    struct Reentrant(Arc<Observers>, Notes);

    impl LockObserver for Reentrant {
        fn on_event(&self, _: &LockEvent<'_>) {}

        fn on_notice(&self, notice: &Notice<'_>) {
            if let Notice::Connection { node: "a", .. } = notice {
                self.0.tell(&Notice::Connection { node: "b", up: true });
                self.0.add(Arc::new(self.1.clone()));
            }
        }
    }

    #[test]
    #[limit]
    fn nothing_is_locked_while_an_observer_is_called() {
        let (observers, late) = (Arc::new(Observers::new()), Notes::default());
        observers.add(Arc::new(Reentrant(Arc::clone(&observers), late.clone())));
        observers.tell(&Notice::Connection { node: "a", up: true });
        assert_eq!(*late.0.lock().unwrap(), ["a true", "b true", "a true"]);
        // A new observer hears of a change that happens while it receives the state.
        let observers = Arc::new(Observers::new());
        observers.tell(&Notice::Connection { node: "a", up: true });
        observers.add(Arc::new(Reentrant(Arc::clone(&observers), Notes::default())));
        let last = Notes::default();
        observers.add(Arc::new(last.clone()));
        assert_eq!(*last.0.lock().unwrap(), ["a true", "b true"]);
    }
}
