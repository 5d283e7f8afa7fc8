//! Several threads at once, scraped throughout: every count arrives.

use std::thread;
use std::time::Duration;

use lock_core::{LockEventKind, LockObserver, Notice};
use lock_metrics::builder;
use lock_testing::limit;

use crate::support::{Acquire, Scrape};

const THREADS: u64 = 4;
const CYCLES: u64 = 3_000;

#[test]
#[limit]
fn nothing_is_lost_between_threads() {
    let metrics = builder().with_sample_interval(Duration::from_millis(10)).build().unwrap();
    let observer = metrics.observer();
    let last = thread::scope(|scope| {
        for number in 0..THREADS {
            let observer = &observer;
            scope.spawn(move || {
                for cycle in 0..CYCLES {
                    let lock = ["a", "b", "c"][usize::try_from(cycle % 3).unwrap()];
                    let acquire = Acquire::new(observer, cycle * THREADS + number, lock, "key");
                    acquire.take();
                    let elapsed = Duration::from_micros(cycle);
                    observer.on_notice(&Notice::Command { op: "acquire", node: "n", elapsed, error: None });
                    let (dropped, confirmed) = (cycle % 2 == 0, true);
                    acquire.send(LockEventKind::Released { held: elapsed, dropped, confirmed });
                }
            });
        }
        let mut last = 0.0;
        for _ in 0..20 {
            let now = Scrape::read(&metrics.render())
                .find("acquisitions_total", &[("lock", "a"), ("outcome", "acquired")])
                .unwrap_or(0.0);
            assert!(now >= last, "a counter went back from {last} to {now}");
            last = now;
        }
        last
    });
    let scrape = Scrape::read(&metrics.render());
    let each = f64::from(u32::try_from(THREADS * CYCLES / 3).unwrap());
    assert!(last <= each);
    for lock in ["a", "b", "c"] {
        assert_eq!(scrape.get("acquisitions_total", &[("lock", lock), ("outcome", "acquired")]), each);
        assert_eq!(scrape.get("hold_seconds_count", &[("lock", lock)]), each);
        assert_eq!(scrape.get("releases_total", &[("lock", lock), ("outcome", "dropped")]), each / 2.0);
        assert_eq!(scrape.get("held", &[("lock", lock)]), 0.0);
    }
    assert_eq!(scrape.get("backend_command_seconds_count", &[("op", "acquire"), ("backend", "n")]), 3.0 * each);
}
