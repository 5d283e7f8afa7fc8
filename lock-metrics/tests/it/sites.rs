//! Annotated functions have their series before they are first called.

use std::time::Duration;

use lock_core::Site;
use lock_core::attribute::{SITES, linkme};
use lock_metrics::{MetricKind, builder, catalog};
use lock_testing::limit;

use crate::support::Scrape;

#[linkme::distributed_slice(SITES)]
#[linkme(crate = linkme)]
static SPELLED: Site = Site::new(
    "site:spelled:<id>",
    || "it::sites::spelled",
    Some(Duration::from_secs(7)),
    Some(Duration::from_secs(70)),
);
#[linkme::distributed_slice(SITES)]
#[linkme(crate = linkme)]
static DEFAULTS: Site = Site::new("site:defaults", || "it::sites::defaults", None, None);
#[linkme::distributed_slice(SITES)]
#[linkme(crate = linkme)]
static SHORT: Site = Site::new("site:short", || "it::sites::short", Some(Duration::from_secs(5)), None);

/// Slices of the names that ours have in Rust, as an older version of lock-core or a stranger may have them.
mod elsewhere {
    use lock_core::attribute::linkme;

    #[linkme::distributed_slice]
    #[linkme(crate = linkme)]
    pub static SITES: [u8];
    #[linkme::distributed_slice]
    #[linkme(crate = linkme)]
    pub static SCHEMES: [u8];
}

#[test]
#[limit]
fn slices_of_one_name_do_not_meet() {
    assert!(elsewhere::SITES.is_empty() && elsewhere::SCHEMES.is_empty());
    assert!(lock_core::sites().count() >= 3);
    assert!(lock_core::store::contract::backend::SCHEMES.is_empty());
}

#[test]
#[limit]
fn every_series_of_an_annotated_function_starts_at_zero() {
    let metrics = builder().build().unwrap();
    let scrape = Scrape::read(&metrics.render());
    for lock in ["site:spelled:<id>", "site:defaults", "site:short"] {
        assert_eq!(scrape.moved(lock), [""; 0], "{lock}");
        for metric in catalog().filter(|metric| metric.labels().first() == Some(&"lock")) {
            // Only an elected inspector exports what Redis holds.
            if metric.name().contains("_inspector_") {
                continue;
            }
            // The use of a lock is known after its first use.
            // The age is unknown unless it was reported.
            let unknown = metric.name() == "distributed_lock_waiting_on_oldest_hold_start_timestamp_seconds";
            if unknown {
                continue;
            }
            let of_uses = [
                "permits_limit",
                "permits_held",
                "stripes",
                "leader",
                "candidates",
                "candidates_led",
                "last_success_timestamp_seconds",
                "job_period_seconds",
            ];
            if of_uses.iter().any(|name| metric.name() == format!("distributed_lock_{name}")) {
                continue;
            }
            let name = match metric.kind() {
                MetricKind::Histogram(_) => format!("{}_count", metric.name()),
                _ => metric.name().to_owned(),
            };
            let series = scrape.series.keys().filter(|(series, labels)| *series == name && labels["lock"] == lock);
            assert!(series.count() > 0, "{lock} has no {name}");
        }
    }
    assert_eq!(scrape.get("renewal_lateness_seconds_count", &[]), 0.0);
    assert_eq!(scrape.get("fencing_rejections_total", &[]), 0.0);
    assert_eq!(scrape.get("label_overflow_total", &[("label", "lock")]), 0.0);
}

#[test]
#[limit]
fn settings_are_those_of_the_attribute_or_the_defaults() {
    let scrape = Scrape::read(&builder().build().unwrap().render());
    for (lock, ttl, stuck_after) in
        [("site:spelled:<id>", 7.0, 70.0), ("site:defaults", 30.0, 90.0), ("site:short", 5.0, 30.0)]
    {
        assert_eq!(scrape.get("ttl_seconds", &[("lock", lock)]), ttl, "{lock}");
        assert_eq!(scrape.get("stuck_after_seconds", &[("lock", lock)]), stuck_after, "{lock}");
    }
    assert_eq!(scrape.get("site_info", &[("lock", "site:short"), ("function", "it::sites::short")]), 1.0);
}

#[test]
#[limit]
fn the_queries_in_the_docs_of_an_annotated_function_ask_for_metrics_that_exist() {
    let docs = include_str!("../../../lock-macros/src/expand/snapshots/asynchronous.txt");
    let asked: Vec<&str> = docs
        .match_indices("distributed_lock_")
        .map(|(at, _)| docs[at..].split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap())
        .collect();
    assert!(asked.len() >= 4, "{asked:?}");
    for name in asked {
        let exists = catalog().any(|metric| match metric.kind() {
            MetricKind::Histogram(_) => name == format!("{}_bucket", metric.name()),
            _ => name == metric.name(),
        });
        assert!(exists, "there is no {name}");
    }
}
