//! Fencing tokens of a healthy server: what a process may and may not conclude from their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_core::{LockEvent, LockManager, LockObserver, Notice};
use lock_postgres as _;
use lock_testing::{PostgresServer, limit};

use crate::support::{LONG, on_runtime};

/// Counts the notices that the store has lost data.
#[derive(Clone, Default)]
struct Regressions(Arc<AtomicUsize>);

impl LockObserver for Regressions {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if matches!(notice, Notice::FencingRegressed { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A token begins with the server's time in milliseconds. Two keys that are granted within one have no order.
#[test]
#[limit(300)]
fn grants_of_different_keys_within_a_millisecond_report_no_lost_data() {
    on_runtime(async {
        let server = PostgresServer::shared();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let regressions = Regressions::default();
        locks.observe(regressions.clone());
        for round in 0..2_000 {
            let guard = locks.lock(format!("tokens:{round}")).with_ttl(LONG).acquire().await.unwrap();
            drop(guard);
        }
        assert_eq!(regressions.0.load(Ordering::Relaxed), 0, "of 2,000 grants");
    });
}
