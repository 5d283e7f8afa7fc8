//! `install` with our own recorder, in a process where nothing else is installed.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use lock_core::{FencingGate, FencingToken, LockEvent, LockManager, LockObserver, Notice};
use lock_metrics::{InstallError, builder, install, installed};
use lock_testing::{RedisServer, limit};

use support::{Acquire, Scrape};

/// Reports when the watchdog has connected and asked for the eviction policy.
struct Connected(mpsc::Sender<()>);

impl LockObserver for Connected {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if matches!(notice, Notice::EvictionPolicy { .. }) {
            let _ = self.0.send(());
        }
    }
}

/// Makes the core send an event to its process-wide observers, without a manager.
fn reject_a_stale_write() {
    let gate = FencingGate::new();
    gate.admit(FencingToken::new(2)).unwrap();
    gate.admit(FencingToken::new(1)).unwrap_err();
}

#[test]
#[limit]
fn once_for_good_and_nothing_left_of_what_failed() {
    // A manager that was connected long before.
    let server = RedisServer::builder().with_maxmemory("100mb", "volatile-lru").start();
    let others = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = others.block_on(LockManager::connect(&server.url())).unwrap();
    let (tell, connected) = mpsc::channel();
    locks.observe(Connected(tell));
    connected.recv_timeout(Duration::from_secs(30)).unwrap();

    // Recorded before there is a recorder: lost, as usual with `metrics`. Our metrics do not use
    // its macros.
    let dead = metrics::counter!("app_requests_total");

    // A failed install leaves no recorder, no observer and no handle.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = builder().with_listener(address).install().unwrap_err();
    assert!(matches!(refused, InstallError::Listener { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
    assert!(installed().is_none());

    // On a runtime that ends immediately afterwards.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let handle = runtime.block_on(async { builder().with_listener(([127, 0, 0, 1], 0)).install().unwrap() });
    drop(runtime);
    let address = handle.listener().unwrap();
    drop(handle);

    // Installed permanently: the handle can be fetched again, and dropping the last one stops
    // nothing.
    TcpStream::connect(address).unwrap();
    let handle = installed().unwrap();
    assert_eq!(handle.listener(), Some(address));

    // Earlier events are still known.
    let node = format!("127.0.0.1:{}", server.port());
    let seen = Scrape::read(&handle.render());
    assert_eq!(seen.get("backend_connected", &[("backend", &node)]), 1.0);
    assert_eq!(seen.get("backend_eviction_policy_info", &[("backend", &node), ("policy", "volatile-lru")]), 1.0);
    others.block_on(locks.shutdown(Duration::from_secs(5)));

    // Observed once, although `install` was tried three times.
    // Before it is known whether the port is taken.
    for again in [
        install(),
        builder().with_listener(taken.local_addr().unwrap()).install(),
        builder().with_existing_recorder().install(),
    ] {
        assert!(matches!(again, Err(InstallError::AlreadyInstalled)), "{again:?}");
    }
    reject_a_stale_write();
    assert_eq!(Scrape::read(&handle.render()).get("fencing_rejections_total", &[]), 1.0);

    // The application's own metrics are served too, its histograms in classic buckets.
    dead.increment(100);
    metrics::counter!("app_requests_total").increment(5);
    metrics::histogram!("app_request_seconds").record(0.3);
    Acquire::new(&handle.observer(), 1, "lock", "key").take();
    let scrape = Scrape::read(&handle.render());
    assert_eq!(scrape.series[&("app_requests_total".to_owned(), support::Labels::new())], 5.0);
    assert_eq!(scrape.types["app_request_seconds"], "histogram");
    assert_eq!(scrape.get("held", &[("lock", "lock")]), 1.0);

    // A second set of metrics in the same process counts separately.
    let apart = builder().with_sample_interval(Duration::from_millis(1)).build().unwrap();
    assert_eq!(Scrape::read(&apart.render()).find("held", &[("lock", "lock")]), None);
    assert!(!apart.render().contains("app_requests_total"));
}
