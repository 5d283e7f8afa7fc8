//! `install` in an application that has a Prometheus recorder already.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use lock_core::{FencingGate, FencingToken};
use lock_metrics::{InstallError, builder, catalog, installed};
use lock_testing::limit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use support::{Acquire, Scrape, eventually, holder};

#[test]
#[limit]
fn the_applications_recorder_gets_everything() {
    let mut exporter = PrometheusBuilder::new();
    for metric in catalog().filter(|metric| !metric.buckets().is_empty()) {
        let name = Matcher::Full(metric.name().to_owned());
        exporter = exporter.set_buckets_for_metric(name, metric.buckets()).unwrap();
    }
    let theirs = exporter.install_recorder().unwrap();
    metrics::counter!("app_requests_total").increment(5);

    // Ours would be a second recorder. It is refused, and leaves nothing behind.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = builder().with_listener(free).install().unwrap_err();
    assert!(matches!(refused, InstallError::RecorderPresent), "{refused:?}");
    assert!(refused.to_string().contains("with_existing_recorder"), "{refused}");
    assert!(installed().is_none());
    // Its thread closes the socket a little later.
    eventually("closing the listener", || TcpStream::connect(free).is_err().then_some(()));

    // Events that the refused install would have seen twice are seen once.
    let ours = builder().with_existing_recorder().with_sample_interval(Duration::from_millis(10)).install().unwrap();
    let gate = FencingGate::new();
    gate.admit(FencingToken::new(2)).unwrap();
    gate.admit(FencingToken::new(1)).unwrap_err();

    let observer = ours.observer();
    for attempt in 0..100_u32 {
        let acquire = Acquire::new(&observer, u64::from(attempt), "lock:user:<id>", "lock:user:1");
        acquire.send(lock_core::LockEventKind::WaitStarted);
        let waited = Duration::from_millis(u64::from(attempt));
        acquire.acquired(lock_core::GrantPath::Granted, waited, Some(&holder("shop::report")));
        if attempt != 99 {
            acquire.release(Duration::from_millis(10 * u64::from(attempt)));
        }
    }
    eventually("the feed", || {
        let seen = Scrape::read(&theirs.render());
        let held = seen.find("hold_seconds_count", &[("lock", "lock:user:<id>")]);
        let rejected = seen.find("fencing_rejections_total", &[]);
        ((held, rejected) == (Some(99.0), Some(1.0))).then_some(())
    });
    // After that only new samples: the last hold, whose bucket has samples already.
    Acquire::new(&observer, 99, "lock:user:<id>", "lock:user:1").release(Duration::from_millis(51));
    let run = || Scrape::read(&theirs.render()).get("sampler_last_run_timestamp_seconds", &[]);
    for _ in 0..3 {
        let last = run();
        eventually("a sample", || (run() > last).then_some(()));
    }
    let exact = Scrape::read(&ours.render());
    let seen = Scrape::read(&theirs.render());
    assert_eq!(seen.series[&("app_requests_total".to_owned(), support::Labels::new())], 5.0);
    assert!(!ours.render().contains("app_requests_total"));
    // Buckets and counts are the same, sums within rounding; a recorder's counters are whole numbers.
    let rounded = ["sampler", "now_timestamp", "held_seconds_total"];
    let others = exact.series.iter().filter(|((name, _), _)| !rounded.iter().any(|part| name.contains(part)));
    for ((name, labels), value) in others {
        let told = seen.series.get(&(name.clone(), labels.clone())).unwrap_or_else(|| panic!("no {name} {labels:?}"));
        assert!((told - value).abs() < 1e-9 * value.abs().max(1.0), "{name} {labels:?}: {told} for {value}");
    }
    assert_eq!(exact.types, seen.types.into_iter().filter(|(name, _)| name != "app_requests_total").collect());
}
