//! `install` before the application installs its recorder: what happened in between is not lost.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use lock_testing::limit;
use std::time::Duration;

use lock_metrics::builder;
use metrics_exporter_prometheus::PrometheusBuilder;

use support::{Acquire, Scrape, eventually};

#[test]
#[limit]
fn a_recorder_that_comes_later_is_told_everything() {
    let ours = builder().with_existing_recorder().with_sample_interval(Duration::from_millis(10)).install().unwrap();
    let observer = ours.observer();
    let before = Acquire::new(&observer, 1, "lock", "key");
    before.take();
    before.release(Duration::from_secs(1));
    // Let the sampler run once without a recorder.
    let run = || Scrape::read(&ours.render()).get("sampler_last_run_timestamp_seconds", &[]);
    let sample = || {
        let before = run();
        eventually("a sample", || (run() > before).then_some(()));
    };
    sample();

    let theirs = PrometheusBuilder::new().set_buckets(&[0.5, 2.5]).unwrap().install_recorder().unwrap();
    let after = Acquire::new(&observer, 2, "lock", "key");
    after.take();
    after.release(Duration::from_secs(3));
    eventually("the feed", || {
        let seen = Scrape::read(&theirs.render());
        (seen.find("hold_seconds_count", &[("lock", "lock")]) == Some(2.0)).then_some(())
    });
    // That may have been in the middle of a feed.
    sample();
    sample();
    let seen = Scrape::read(&theirs.render());
    assert_eq!(seen.get("acquisitions_total", &[("lock", "lock"), ("outcome", "acquired")]), 2.0);
    assert_eq!(seen.get("hold_seconds_sum", &[("lock", "lock")]), 4.0);
    assert_eq!(seen.get("hold_seconds_bucket", &[("lock", "lock"), ("le", "2.5")]), 1.0);
    assert_eq!(seen.helps["distributed_lock_held"], "Locks that this process holds now, without reentrant grants.");
}
