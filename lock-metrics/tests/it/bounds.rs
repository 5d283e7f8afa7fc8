//! The number of series is bounded, and a key never becomes a label.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::{GrantPath, LockEventKind, LockObserver, Notice};
use lock_metrics::builder;
use lock_testing::limit;

use crate::support::{Acquire, Scrape, holder};

#[test]
#[limit]
fn lock_names_beyond_the_limit_are_other() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let taken = Scrape::read(&metrics.render()).series.keys().filter(|(name, _)| name.ends_with("_held")).count();
    let names = 250;
    for attempt in 0..names {
        let acquire = Acquire::new(&observer, attempt, &format!("name-{attempt}"), "key");
        acquire.take();
        if attempt != 249 {
            acquire.release(Duration::from_secs(1));
        }
    }
    let scrape = Scrape::read(&metrics.render());
    let locks: HashSet<&String> = scrape.series.keys().filter_map(|(_, labels)| labels.get("lock")).collect();
    assert_eq!(locks.len(), 201);
    let beyond = 50.0 + f64::from(u32::try_from(taken).unwrap());
    assert_eq!(scrape.get("label_overflow_total", &[("label", "lock")]), beyond);
    assert_eq!(scrape.get("acquisitions_total", &[("lock", "other"), ("outcome", "acquired")]), beyond);
    assert_eq!(scrape.get("held", &[("lock", "other")]), 1.0);
    assert_eq!(scrape.get("held", &[("lock", "name-0")]), 0.0);
    assert!(metrics.live_locks().any(|live| live.lock == "other"));
}

#[test]
#[limit]
fn sites_and_nodes_beyond_the_limit_are_other() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    for number in 0..100 {
        let site = format!("site-{number}");
        let mut acquire = Acquire::new(&observer, number, "lock", "key");
        acquire.site = &site;
        acquire.send(LockEventKind::WaitStarted);
        acquire.acquired(GrantPath::Granted, Duration::from_secs(1), Some(&holder(&site)));
        let elapsed = Duration::from_millis(1);
        observer.on_notice(&Notice::Command { op: "acquire", node: &site, elapsed, error: None });
    }
    let scrape = Scrape::read(&metrics.render());
    let values = |label: &str| -> HashSet<&String> {
        scrape
            .series
            .keys()
            .filter(|(_, l)| l.get("lock").is_none_or(|lock| lock == "lock"))
            .filter_map(|(_, l)| l.get(label))
            .collect()
    };
    // The oldest hold of the sites beyond the limit adds one more.
    assert_eq!(values("site").len(), 33);
    assert_eq!(values("holder_site").len(), 33);
    assert_eq!(values("backend").len(), 65);
    let overflow = |label| scrape.get("label_overflow_total", &[("label", label)]);
    assert_eq!(["lock", "site", "holder_site", "store"].map(overflow), [0.0, 68.0, 68.0, 0.0]);
    let other = [("lock", "lock"), ("holder_site", "other")];
    assert_eq!(scrape.get("blocked_seconds_count", &other), 68.0);
    assert_eq!(scrape.get("backend_command_seconds_count", &[("op", "acquire"), ("backend", "other")]), 36.0);
    assert_eq!(metrics.live_locks().filter(|live| live.site == "other").count(), 68);
}

#[test]
#[limit]
fn no_key_and_no_host_is_a_label_value() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let secret = "lock:user:secret-4711";
    let acquire = Acquire::new(&observer, 1, "lock:user:<id>", secret);
    acquire.send(LockEventKind::WaitStarted);
    acquire.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    acquire.acquired(GrantPath::Granted, Duration::from_secs(1), Some(&holder("shop::report")));
    for end in 0..2 {
        let text = metrics.render();
        assert!(!text.contains("4711") && !text.contains("host-1"), "{end}");
        acquire.release(Duration::from_secs(1));
    }
}

#[test]
#[limit]
fn names_that_need_escapes_stay_apart() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let names = ["a\\b", "a\\\\b", "a\"b", "a\\\"b", "a\nb", "a\\nb", "a{b=\"c\"} 1", "é\\"];
    for (attempt, name) in (1..).zip(names) {
        Acquire::new(&observer, attempt, name, "key").take();
    }
    let scrape = Scrape::read(&metrics.render());
    for name in names {
        assert_eq!(scrape.get("held", &[("lock", name)]), 1.0, "{name:?}");
        assert_eq!(scrape.get("grants_total", &[("lock", name), ("path", "uncontended")]), 1.0, "{name:?}");
        assert_eq!(scrape.get("wait_seconds_count", &[("lock", name), ("outcome", "acquired")]), 1.0, "{name:?}");
    }
}

/// The README promises a number, so that people can plan for it.
#[test]
#[limit]
fn the_readme_counts_the_series_of_a_lock() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let seen = holder("shop::charge");
    let acquire = Acquire::new(&observer, 1, "lock", "key");
    acquire.send(LockEventKind::WaitStarted);
    acquire.send(LockEventKind::Contended { holder: Some(&seen) });
    acquire.acquired(GrantPath::Granted, Duration::from_secs(1), Some(&seen));
    let scrape = Scrape::read(&metrics.render());
    let of_lock = scrape.series.keys().filter(|(_, labels)| labels.get("lock").is_some_and(|lock| lock == "lock"));
    let promise = format!("{} series per lock", of_lock.count());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboards/README.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(&promise), "{promise}");
}
