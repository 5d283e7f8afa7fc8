//! A record of events, checked against their grammar.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lock_store::contract::event::{GrantPath, LockEvent, LockEventKind, LockObserver};
use lock_store::types::system::sync::{Mutex, MutexGuard};

/// An observer that remembers the names of all events. Clones share one record.
///
/// ```
/// use lock_core::LockManager;
/// use lock_testing::EventLog;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let (locks, events) = (LockManager::in_memory(), EventLog::default());
/// locks.observe(events.clone());
/// locks.lock("report").await?.release().await?;
/// assert_eq!(events.names(), ["WaitStarted", "Acquired", "Released"]);
/// # Ok::<(), lock_core::LockError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct EventLog(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    attempt: u64,
    name: &'static str,
    terminal: bool,
    /// How the lock was granted, if this is a grant.
    path: Option<GrantPath>,
}

impl EventLog {
    /// Returns the names of all events so far, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.entries().iter().map(|entry| entry.name).collect()
    }

    /// Returns how many events with this name there were so far.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.entries().iter().filter(|entry| entry.name == name).count()
    }

    /// Returns how many acquires have begun and not ended yet.
    #[must_use]
    pub fn open(&self) -> usize {
        let entries = self.entries();
        let ended: HashSet<u64> = entries.iter().filter(|entry| entry.terminal).map(|entry| entry.attempt).collect();
        let begun: HashSet<u64> = entries.iter().map(|entry| entry.attempt).collect();
        begun.difference(&ended).count()
    }

    /// Returns how each lock was granted so far, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<GrantPath> {
        self.entries().iter().filter_map(|entry| entry.path).collect()
    }

    /// Checks that every acquire so far followed the grammar of [`LockEvent`], and has ended.
    ///
    /// # Panics
    ///
    /// Panics if one did not.
    pub fn assert_complete(&self) {
        let entries = self.entries();
        let mut acquires: HashMap<u64, Vec<(&str, bool)>> = HashMap::new();
        for entry in entries.iter() {
            acquires.entry(entry.attempt).or_default().push((entry.name, entry.terminal));
        }
        for (attempt, events) in acquires {
            let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
            assert!(follows_grammar(&names), "acquire {attempt} broke the grammar of events: {names:?}");
            assert_eq!(events.iter().filter(|(_, terminal)| *terminal).count(), 1, "acquire {attempt}: {names:?}");
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock()
    }
}

impl LockObserver for EventLog {
    fn on_event(&self, event: &LockEvent<'_>) {
        let path = match event.kind {
            LockEventKind::Acquired { path, .. } => Some(path),
            _ => None,
        };
        let (name, terminal) = (name(&event.kind), event.kind.is_terminal());
        self.entries().push(Entry { attempt: event.attempt, name, terminal, path });
    }
}

fn name(kind: &LockEventKind<'_>) -> &'static str {
    match kind {
        LockEventKind::WaitStarted => "WaitStarted",
        LockEventKind::Contended { .. } => "Contended",
        LockEventKind::Busy { .. } => "Busy",
        LockEventKind::TimedOut { .. } => "TimedOut",
        LockEventKind::Cancelled { .. } => "Cancelled",
        LockEventKind::Failed { .. } => "Failed",
        LockEventKind::Acquired { .. } => "Acquired",
        LockEventKind::Renewed { .. } => "Renewed",
        LockEventKind::RenewFailed { .. } => "RenewFailed",
        LockEventKind::Released { .. } => "Released",
        LockEventKind::Lost { .. } => "Lost",
        LockEventKind::Abandoned { .. } => "Abandoned",
        other => panic!("the grammar of events has no word for {other:?}"),
    }
}

fn follows_grammar(names: &[&str]) -> bool {
    let mut rest = names.iter().copied().peekable();
    if rest.next() != Some("WaitStarted") {
        return false;
    }
    while rest.next_if_eq(&"Contended").is_some() {}
    match rest.next() {
        Some("Busy" | "TimedOut" | "Cancelled" | "Failed") => {}
        Some("Acquired") => {
            while rest.next_if(|name| matches!(*name, "Renewed" | "RenewFailed")).is_some() {}
            if !matches!(rest.next(), Some("Released" | "Lost" | "Abandoned")) {
                return false;
            }
        }
        _ => return false,
    }
    rest.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::follows_grammar;

    #[test]
    fn the_grammar_accepts_and_rejects() {
        assert!(follows_grammar(&["WaitStarted", "Contended", "Contended", "Acquired", "Renewed", "Released"]));
        assert!(follows_grammar(&["WaitStarted", "Cancelled"]));
        for bad in [
            &["Acquired", "Released"][..],
            &["WaitStarted", "Acquired"],
            &["WaitStarted", "Acquired", "Lost", "Released"],
            &["WaitStarted", "Acquired", "Contended", "Released"],
            &["WaitStarted", "TimedOut", "Cancelled"],
            &["WaitStarted"],
        ] {
            assert!(!follows_grammar(bad), "{bad:?}");
        }
    }
}
