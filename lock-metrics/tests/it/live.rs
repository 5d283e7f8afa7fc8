//! The rows for people, and the pair of log events for a stuck lock.

use std::fmt;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use lock_core::LockEventKind;
use lock_metrics::{LiveState, builder};
use lock_testing::limit;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{Acquire, Scrape, eventually, holder};

/// Every log event of this process, as `field=value` text.
static LOG: LazyLock<Mutex<Vec<String>>> = LazyLock::new(|| {
    tracing::subscriber::set_global_default(Collector).unwrap();
    Mutex::default()
});

struct Collector;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        assert!(!line.0.contains("panic-please"), "subscriber bug, expected in this test");
        LOG.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Waits for `count` log events about a key.
fn logged(key: &str, count: usize) -> Vec<String> {
    eventually(key, || {
        let lines: Vec<String> = LOG.lock().unwrap().iter().filter(|line| line.contains(key)).cloned().collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
#[limit]
fn rows_tell_who_holds_and_who_waits() {
    let metrics = builder().build().unwrap();
    let observer = metrics.observer();
    let holds = Acquire::new(&observer, 1, "lock:user:<id>", "lock:user:1");
    holds.take();
    let waits = Acquire::new(&observer, 2, "lock:user:<id>", "lock:user:1");
    waits.send(LockEventKind::WaitStarted);
    waits.send(LockEventKind::Contended { holder: Some(&holder("shop::report")) });
    let mut rows: Vec<_> = metrics.live_locks().collect();
    rows.sort_by_key(|row| matches!(row.state, LiveState::Waiting { .. }));
    let [hold, wait] = rows.as_slice() else { panic!("{rows:?}") };
    for row in &rows {
        assert_eq!(
            (row.key.as_str(), row.lock.as_str(), row.site.as_str()),
            ("lock:user:1", "lock:user:<id>", "shop::charge")
        );
        assert!(row.age < Duration::from_secs(60), "{row:?}");
    }
    let LiveState::Held { token, owner, lease_left, stuck, reentrant, .. } = &hold.state else { panic!("{hold:?}") };
    assert_eq!((token.get(), owner.len(), *stuck, *reentrant), (7, 4, false, false));
    assert!(*lease_left <= Duration::from_secs(10) && *lease_left > Duration::ZERO);
    let LiveState::Waiting { waits_for: Some(seen), .. } = &wait.state else { panic!("{wait:?}") };
    assert_eq!(seen.site(), "shop::report");
}

#[test]
#[limit]
fn a_stuck_lock_is_reported_once_and_so_is_its_end() {
    LazyLock::force(&LOG);
    let metrics = builder().with_sample_interval(Duration::from_millis(10)).build().unwrap();
    let observer = metrics.observer();
    let mut acquire = Acquire::new(&observer, 1, "lock:job:<id>", "lock:job:stuck-one");
    acquire.stuck_after = Duration::from_millis(20);
    acquire.take();
    let fine = Acquire::new(&observer, 2, "lock:job:<id>", "lock:job:fine");
    fine.take();
    let lines = logged("lock:job:stuck-one", 1);
    assert!(lines[0].starts_with("WARN "), "{lines:?}");
    for part in ["lock=\"lock:job:<id>\"", "token=7", "site=\"shop::charge\"", "owner=\"", "lock is stuck"] {
        assert!(lines[0].contains(part), "{part} in {lines:?}");
    }
    assert!(metrics.live_locks().any(|row| matches!(row.state, LiveState::Held { stuck: true, .. })));
    acquire.release(Duration::from_secs(3));
    fine.release(Duration::from_secs(3));
    let lines = logged("lock:job:stuck-one", 2);
    assert!(lines[1].starts_with("INFO ") && lines[1].contains("no longer stuck"), "{lines:?}");
    assert!(lines[1].contains("held_seconds=3.0") && lines[1].contains("outcome=\"released\""), "{lines:?}");
    assert_eq!((lines.len(), logged("lock:job:fine", 0).len()), (2, 0));
}

/// Every shard has a lock that is stuck, which has the sampler look at its young ones too.
#[test]
#[limit]
fn only_what_is_older_than_its_own_threshold_is_called_stuck() {
    LazyLock::force(&LOG);
    let metrics = builder().with_sample_interval(Duration::from_millis(10)).build().unwrap();
    let observer = metrics.observer();
    for number in 0..200 {
        for (attempt, key, stuck_after) in [
            (2 * number, format!("lock:job:young-{number}"), Duration::from_secs(7200)),
            (2 * number + 1, format!("lock:job:old-{number}"), Duration::ZERO),
        ] {
            let mut acquire = Acquire::new(&observer, attempt, "lock:job:<id>", &key);
            acquire.stuck_after = stuck_after;
            acquire.take();
        }
    }
    for number in 0..200 {
        logged(&format!("lock:job:old-{number}\""), 1);
    }
    assert_eq!(logged("lock:job:young-", 0), [""; 0]);
    for row in metrics.live_locks() {
        let LiveState::Held { stuck, .. } = row.state else { continue };
        assert_eq!(stuck, row.key.as_str().contains("old"), "{}", row.key);
    }
}

#[test]
#[limit]
fn a_panicking_subscriber_does_not_end_the_sampler() {
    LazyLock::force(&LOG);
    let metrics = builder().with_sample_interval(Duration::from_millis(10)).build().unwrap();
    let observer = metrics.observer();
    for (attempt, key) in (1..).zip(["lock:job:panic-please", "lock:job:stuck-two"]) {
        let mut acquire = Acquire::new(&observer, attempt, "lock:job:<id>", key);
        acquire.stuck_after = Duration::ZERO;
        acquire.take();
    }
    assert!(logged("lock:job:stuck-two", 1)[0].contains("lock is stuck"));
}

#[test]
#[limit]
fn the_sampler_runs() {
    let metrics = builder().with_sample_interval(Duration::from_millis(10)).build().unwrap();
    let last_run = || {
        let scrape = Scrape::read(&metrics.render());
        scrape.get("sampler_last_run_timestamp_seconds", &[])
    };
    let first = last_run();
    assert!(first > 1e9);
    eventually("a sample", || (last_run() > first).then_some(()));
}
