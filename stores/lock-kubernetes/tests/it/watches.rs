//! The watch: it is cut, it is silent, and the server has forgotten the changes since its last event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_core::{LockEvent, LockObserver, Notice, ReleaseOutcome};
use lock_testing::{Direction, EventLog, FaultProxy, Stopwatch, limit};
use tokio::task::JoinSet;

use crate::servers::ApiServer;
use crate::support::{SECOND, eventually, locks, locks_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_watch_that_is_cut_begins_again_and_the_waiter_hears_of_the_release() {
    let Some(server) = ApiServer::shared() else { return };
    let (place, proxy) = (server.namespace(), FaultProxy::start(server.port()));
    let (one, two) = (locks(&place.url()), locks(&place.url_through(&proxy)));
    let events = EventLog::default();
    two.observe(events.clone());
    for _ in 0..3 {
        let guard = one.lock("cut").await.unwrap();
        let before = events.count("Contended");
        let mut waiting = JoinSet::new();
        waiting.spawn({
            let two = two.clone();
            async move { two.lock("cut").await.unwrap() }
        });
        eventually("one waits", || events.count("Contended") > before).await;
        proxy.kill_connections();
        tokio::time::sleep(SECOND / 2).await;
        let watch = Stopwatch::start();
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        let next = waiting.join_next().await.unwrap().unwrap();
        watch.assert_within(5 * SECOND, "a waiter hears of a release through a new watch");
        next.release().await.unwrap();
    }
}

/// Nothing tells of a watch that has died without a sign. The waiter asks by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_watch_that_is_silent_delays_a_waiter_by_ten_seconds_at_most() {
    let Some(server) = ApiServer::shared() else { return };
    let (place, proxy) = (server.namespace(), FaultProxy::start(server.port()));
    let (one, two) = (locks(&place.url()), locks(&place.url_through(&proxy)));
    let events = EventLog::default();
    two.observe(events.clone());
    let guard = one.lock("silent").await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { two.lock("silent").await.unwrap() });
    eventually("one waits", || events.count("Contended") > 0).await;
    tokio::time::sleep(SECOND / 2).await;
    proxy.strand_connections();
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let next = waiting.join_next().await.unwrap().unwrap();
    println!("figure: a waiter with a silent watch has the lock after {:?}", watch.elapsed());
    watch.assert_within(20 * SECOND, "a waiter with a silent watch asks by itself");
    next.release().await.unwrap();
}

/// Counts how often a watch has begun to be heard.
#[derive(Clone, Default)]
struct Heard(Arc<AtomicU32>);

impl LockObserver for Heard {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if matches!(notice, Notice::Connection { up: true, .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The server that starts again has forgotten the changes before, and answers 410 to a watch behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_watch_whose_place_is_forgotten_starts_over() {
    let Some(mut server) = ApiServer::start() else { return };
    let (one, two) = (locks(&server.url()), locks(&server.url()));
    let guard = one.lock("forgotten").await.unwrap();
    let events = EventLog::default();
    two.observe(events.clone());
    let (mut waiting, events_of) = (JoinSet::new(), two.clone());
    waiting.spawn(async move { two.lock("forgotten").await.unwrap() });
    eventually("one waits", || events.count("Contended") > 0).await;
    let heard = Heard::default();
    events_of.observe(heard.clone());
    eventually("changes are heard", || heard.0.load(Ordering::Relaxed) == 1).await;
    server.kill();
    server.restart();
    eventually("changes are heard again", || heard.0.load(Ordering::Relaxed) > 1).await;
    // By itself, the waiter would ask after ten seconds.
    let watch = Stopwatch::start();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let next = waiting.join_next().await.unwrap().unwrap();
    watch.assert_within(5 * SECOND, "the watch has started over");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn a_connection_that_delays_every_answer_costs_no_holder_its_lock() {
    let Some(server) = ApiServer::shared() else { return };
    let (place, proxy) = (server.namespace(), FaultProxy::start(server.port()));
    let locks = locks_for(&place.url_through(&proxy), 6 * SECOND);
    proxy.delay(Direction::ToClient, SECOND / 5);
    let guard = locks.lock("slow").await.unwrap();
    tokio::time::sleep(9 * SECOND).await;
    assert_eq!(guard.ensure_held(), Ok(()), "renewals are answered in time");
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}
