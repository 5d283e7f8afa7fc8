//! Collects the spans and events that a thread reports to `tracing`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim_matches('"'))
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// A span or an event, and the names of the spans around it, the innermost last.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    name: &'static str,
    pub(crate) inside: Vec<&'static str>,
    pub(crate) fields: Fields,
    handles: u32,
    pub(crate) closed: bool,
}

/// Collects what this thread reports, from a level on.
#[derive(Clone)]
pub(crate) struct Collector(Arc<Collected>);

struct Collected {
    level: Level,
    next: AtomicU64,
    told: Mutex<HashMap<u64, Told>>,
    entered: Mutex<Vec<u64>>,
}

impl Collector {
    pub(crate) fn install(level: Level) -> (Self, DefaultGuard) {
        // With a single subscriber, tracing asks only the thread that comes to a call site first, and
        // remembers its answer for all. With two it asks each subscriber.
        static OTHER: OnceLock<Dispatch> = OnceLock::new();
        OTHER.get_or_init(|| Dispatch::new(NoSubscriber::default()));
        let (next, told, entered) = (AtomicU64::new(1), Mutex::default(), Mutex::default());
        let collector = Self(Arc::new(Collected { level, next, told, entered }));
        (collector.clone(), tracing::subscriber::set_default(collector))
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, HashMap<u64, Told>> {
        self.0.told.lock().unwrap()
    }

    /// Returns all that was told, as text.
    pub(crate) fn everything(&self) -> String {
        format!("{:?}", self.told())
    }

    fn add(&self, metadata: &'static Metadata<'static>, fields: Fields) -> u64 {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told();
        let inside = self.0.entered.lock().unwrap().iter().map(|id| told[id].name).collect();
        told.insert(id, Told { name: metadata.name(), inside, fields, handles: 1, closed: false });
        id
    }

    /// Returns whether every span that was entered was left.
    pub(crate) fn is_outside(&self) -> bool {
        self.0.entered.lock().unwrap().is_empty()
    }

    /// Returns the spans of a name, in the order in which they began.
    pub(crate) fn spans(&self, name: &str) -> Vec<Told> {
        let told = self.told();
        let mut found: Vec<_> = told.iter().filter(|(_, told)| told.name == name).collect();
        found.sort_by_key(|(id, _)| **id);
        found.into_iter().map(|(_, told)| told.clone()).collect()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0.level && (metadata.target() == "lock_core" || metadata.target() == "app")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        Id::from_u64(self.add(span.metadata(), fields))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.told().get_mut(&span.into_u64()).unwrap().fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.add(event.metadata(), fields);
    }

    fn enter(&self, span: &Id) {
        self.0.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        assert_eq!(self.0.entered.lock().unwrap().pop(), Some(span.into_u64()), "spans nest");
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.told().get_mut(&span.into_u64()).unwrap().handles += 1;
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut told = self.told();
        let told = told.get_mut(&span.into_u64()).unwrap();
        told.handles -= 1;
        told.closed = told.handles == 0;
        told.closed
    }
}
