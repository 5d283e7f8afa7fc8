//! An API server that is killed, frozen, or restarted with an older etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, LossReason, ReleaseOutcome};
use lock_testing::{Stopwatch, limit};
use tokio::task::JoinSet;

use crate::servers::ApiServer;
use crate::support::{LONG, MS, SECOND, Scratch, eventually, locks};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_holder_stops_at_its_deadline_while_no_api_server_answers_and_goes_on_with_a_new_one() {
    let Some(mut server) = ApiServer::start() else { return };
    let scratch = Scratch::new();
    let locks = scratch.locks(&server.url(), TTL);
    for frozen in [false, true] {
        let guard = locks.lock("outage").await.unwrap();
        let first = guard.token();
        if frozen {
            server.freeze();
        } else {
            server.kill();
        }
        let watch = Stopwatch::start();
        let reason = guard.lost().await;
        assert!(matches!(reason, LossReason::Unreachable | LossReason::Expired), "{reason:?}");
        watch.assert_within(TTL, "a holder stops at its own deadline");
        drop(guard);
        let refused = locks.lock("other").with_wait(SECOND).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Unavailable, "frozen: {frozen}: {refused}");
        if frozen {
            server.thaw();
        } else {
            server.restart();
        }
        let again = locks.lock("outage").await.unwrap();
        assert!(again.token() > first, "frozen: {frozen}");
        scratch.recorder().release(again.key(), again.token());
        assert_eq!(again.release().await, Ok(ReleaseOutcome::Released));
    }
    scratch.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_short_outage_costs_no_holder_its_lock_and_no_waiter_its_turn() {
    let Some(mut server) = ApiServer::start() else { return };
    let (one, two) = (locks(&server.url()), locks(&server.url()));
    let guard = one.lock("short").await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { two.lock("short").await.unwrap() });
    for frozen in [false, true] {
        if frozen {
            server.freeze();
        } else {
            server.kill();
        }
        tokio::time::sleep(SECOND).await;
        if frozen {
            server.thaw();
        } else {
            server.restart();
        }
        assert_eq!(guard.ensure_held(), Ok(()), "frozen: {frozen}");
    }
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    let watch = Stopwatch::start();
    let next = waiting.join_next().await.unwrap().unwrap();
    // The new server knows no change from before. The watch has begun again, or the waiter has asked by itself.
    watch.assert_within(15 * SECOND, "a waiter hears of a release after an outage");
    next.release().await.unwrap();
}

/// Callers of three managers count under one lock, while the server is killed, frozen and cut again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(300)]
async fn two_callers_are_never_inside_while_the_api_server_fails_again_and_again() {
    let Some(mut server) = ApiServer::start() else { return };
    let (scratch, ends, count) = (Scratch::new(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let (locks, recorder) = (scratch.locks(&server.url(), TTL), scratch.recorder());
        let (ends, count) = (Arc::clone(&ends), Arc::clone(&count));
        callers.spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                let Ok(guard) = locks.lock("counted").with_wait(10 * SECOND).await else { continue };
                tokio::time::sleep(5 * MS).await;
                recorder.release(guard.key(), guard.token());
                let _ = guard.release().await;
                count.fetch_add(1, Ordering::Relaxed);
            }
            locks.shutdown(5 * SECOND).await;
        });
    }
    for round in 0..4 {
        let before = count.load(Ordering::Relaxed);
        eventually("callers go on", || count.load(Ordering::Relaxed) > before + 5).await;
        if round % 2 == 0 {
            server.kill();
        } else {
            server.freeze();
        }
        tokio::time::sleep(TTL / 2 * (1 + round / 2)).await;
        if round % 2 == 0 { server.restart() } else { server.thaw() }
    }
    let before = count.load(Ordering::Relaxed);
    eventually("callers go on", || count.load(Ordering::Relaxed) > before + 5).await;
    ends.store(true, Ordering::Relaxed);
    callers.join_all().await;
    let verdict = scratch.verdict();
    println!("figure: {} grants in four outages, one holder at a time", verdict.grants);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)]
async fn a_restored_older_etcd_is_noticed_and_tokens_still_rise() {
    let Some(mut server) = ApiServer::start() else { return };
    let locks = locks(&server.url());
    let guard = locks.lock("restored").await.unwrap();
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    server.back_up();
    let guard = locks.lock("restored").await.unwrap();
    let newest = guard.token();
    server.restart_with_older_etcd();
    // The Lease has no holder there, so the holder has lost it.
    let reason = tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of its loss");
    println!("figure: after the restore of an older etcd the holder is told {reason:?}");
    let next = locks.lock("restored").await.unwrap();
    assert!(next.token() > newest, "its caller knows the newest token: {} after {newest}", next.token());
    next.release().await.unwrap();
}
