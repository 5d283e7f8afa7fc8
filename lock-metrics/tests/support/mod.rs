//! Shared by several test binaries: events to feed, and a reader of the text that Prometheus would
//! read.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc;
use std::time::Duration;

use lock_core::{
    FencingToken, GrantPath, Holder, HolderInfo, LockEvent, LockEventKind, LockKey, LockLabel, LockObserver, Mode,
    OwnerId, Purpose,
};

pub(crate) type Labels = BTreeMap<String, String>;

/// Sends the events of one acquire.
pub(crate) struct Acquire<'a, O> {
    pub(crate) observer: &'a O,
    pub(crate) attempt: u64,
    pub(crate) label: LockLabel,
    pub(crate) key: LockKey,
    pub(crate) site: &'a str,
    pub(crate) ttl: Duration,
    pub(crate) stuck_after: Duration,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) purpose: Purpose,
    pub(crate) store: &'a str,
    pub(crate) token: FencingToken,
}

impl<'a, O: LockObserver> Acquire<'a, O> {
    pub(crate) fn new(observer: &'a O, attempt: u64, label: &str, key: &str) -> Self {
        Self {
            observer,
            attempt,
            label: LockLabel::new(label.to_owned()),
            key: LockKey::new(key).unwrap(),
            site: "shop::charge",
            ttl: Duration::from_secs(10),
            stuck_after: Duration::from_secs(60),
            wait_limit: None,
            mode: Mode::Exclusive,
            purpose: Purpose::Lock,
            store: "memory",
            token: FencingToken::new(7),
        }
    }

    pub(crate) fn in_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn in_store(mut self, store: &'a str) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn for_purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    pub(crate) fn send(&self, kind: LockEventKind<'_>) {
        let mut event = LockEvent::new(self.attempt, &self.label, &self.key, self.site, kind);
        event.ttl = self.ttl;
        event.stuck_after = self.stuck_after;
        event.wait_limit = self.wait_limit;
        (event.mode, event.purpose, event.store) = (self.mode, self.purpose, self.store);
        self.observer.on_event(&event);
    }

    pub(crate) fn acquired(&self, path: GrantPath, waited: Duration, waited_for: Option<&Holder>) {
        self.send(LockEventKind::Acquired {
            waited,
            token: self.token,
            owner: OwnerId::random(),
            path,
            lease_left: self.ttl,
            waited_for,
        });
    }

    /// Gets the lock without waiting.
    pub(crate) fn take(&self) {
        self.send(LockEventKind::WaitStarted);
        self.acquired(GrantPath::Uncontended, Duration::from_millis(2), None);
    }

    /// Is prolonged by the watchdog, of a lease of its whole ttl.
    pub(crate) fn renew(&self, lease_was_left: Duration, lease_left: Duration) {
        let lateness = Duration::from_millis(20);
        self.send(LockEventKind::Renewed { lease: self.ttl, lease_was_left, lease_left, lateness });
    }

    pub(crate) fn release(&self, held: Duration) {
        self.send(LockEventKind::Released { held, dropped: false, confirmed: true });
    }
}

pub(crate) fn holder(site: &str) -> Holder {
    Holder::new(HolderInfo::new("host-1", 42, site), OwnerId::random(), FencingToken::new(3), None)
}

/// Waits until something is there.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let (_alive, never) = mpsc::channel::<()>();
    for _ in 0..24_000 {
        if let Some(found) = look() {
            return found;
        }
        let _ = never.recv_timeout(Duration::from_millis(5));
    }
    panic!("{what} did not happen in two minutes");
}

/// A scrape, checked while it is parsed.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) series: HashMap<(String, Labels), f64>,
    /// The type of every metric that has a header, by name.
    pub(crate) types: HashMap<String, String>,
    pub(crate) helps: HashMap<String, String>,
}

impl Scrape {
    /// Reads the text format, and panics at everything that Prometheus or `promtool check metrics`
    /// would refuse.
    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self { series: HashMap::new(), types: HashMap::new(), helps: HashMap::new() };
        let mut finished = HashSet::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(head) = line.strip_prefix("# ") {
                let (what, rest) = head.split_once(' ').unwrap();
                let (name, rest) = rest.split_once(' ').unwrap();
                if current != name {
                    assert!(finished.insert(name.to_owned()), "{name} comes in two places");
                    name.clone_into(&mut current);
                }
                let heads = match what {
                    "TYPE" => &mut scrape.types,
                    "HELP" => &mut scrape.helps,
                    other => panic!("comment {other}"),
                };
                assert_eq!(heads.insert(name.to_owned(), rest.to_owned()), None, "{line}");
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = read_series(series);
            let kind = scrape.types.get(&current).unwrap_or_else(|| panic!("no type before {line}"));
            if kind == "histogram" {
                let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{line} below {current}"));
                assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}");
            } else {
                assert_eq!(name, current, "{line}");
            }
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(scrape.series.insert((name, labels), value), None, "twice: {line}");
        }
        scrape.check_histograms();
        scrape
    }

    fn check_histograms(&self) {
        let mut buckets: HashMap<(String, Labels), Vec<(f64, f64)>> = HashMap::new();
        for ((name, labels), value) in &self.series {
            if let Some(base) = name.strip_suffix("_bucket") {
                let mut labels = labels.clone();
                let bound = match labels.remove("le").unwrap().as_str() {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().unwrap(),
                };
                buckets.entry((base.to_owned(), labels)).or_default().push((bound, *value));
            }
        }
        for ((name, labels), mut bounds) in buckets {
            bounds.sort_by(|one, two| one.0.total_cmp(&two.0));
            assert!(bounds.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?} shrinks: {bounds:?}");
            let (last, total) = *bounds.last().unwrap();
            assert!(last.is_infinite(), "{name} {labels:?} has no +Inf");
            assert_eq!(self.series[&(format!("{name}_count"), labels.clone())], total, "{name} {labels:?}");
            assert!(self.series.contains_key(&(format!("{name}_sum"), labels)), "{name} has no sum");
        }
    }

    /// Returns the value of a series, its name without the common prefix.
    #[track_caller]
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }

    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let name = format!("distributed_lock_{name}");
        let has = |given: &Labels| labels.iter().all(|(label, value)| given.get(*label).is_some_and(|is| is == value));
        let mut found = self.series.iter().filter(|((series, given), _)| *series == name && has(given));
        let (one, another) = (found.next(), found.next());
        assert!(another.is_none(), "{name} {labels:?} is several: {one:?}, {another:?}");
        one.map(|(_, value)| *value)
    }

    /// Returns the series of one lock name that are not zero, as `name{other labels} value`, sorted,
    /// without buckets, times and settings.
    pub(crate) fn moved(&self, lock: &str) -> Vec<String> {
        let still = ["ttl_seconds", "stuck_after_seconds", "site_info", "held_seconds_total"];
        let mut moved: Vec<String> = self
            .series
            .iter()
            .filter(|((_, labels), value)| labels.get("lock").is_some_and(|name| name == lock) && **value != 0.0)
            .map(|((name, labels), value)| (name.strip_prefix("distributed_lock_").unwrap(), labels, value))
            .filter(|(name, _, _)| !name.ends_with("_bucket") && !name.contains("timestamp") && !still.contains(name))
            .map(|(name, labels, value)| {
                let rest: Vec<String> = labels
                    .iter()
                    .filter(|(name, value)| *name != "lock" && *name != "store" && *value != "write")
                    .map(|(_, v)| v.clone())
                    .collect();
                format!("{name}{{{}}} {value}", rest.join(","))
            })
            .collect();
        moved.sort();
        moved
    }

    /// Returns the names of the metrics, histograms without their suffixes.
    pub(crate) fn names(&self) -> HashSet<&str> {
        self.types.keys().map(String::as_str).collect()
    }
}

fn read_series(text: &str) -> (String, Labels) {
    let Some((name, rest)) = text.split_once('{') else {
        return (checked_name(text), Labels::new());
    };
    let mut labels = Labels::new();
    let mut rest = rest;
    while rest != "}" {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        let mut value = String::new();
        let mut chars = after.chars();
        loop {
            match chars.next().unwrap_or_else(|| panic!("{text}")) {
                '"' => break,
                '\\' => value.push(match chars.next().unwrap() {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    other => panic!("escape {other} in {text}"),
                }),
                other => value.push(other),
            }
        }
        assert_eq!(labels.insert(checked_name(label), value), None, "{text}");
        rest = chars.as_str();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    (checked_name(name), labels)
}

fn checked_name(name: &str) -> String {
    assert!(
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit()),
        "{name:?}",
    );
    name.to_owned()
}
