//! Tasks that want the same keys for as long as they are let, in a process that may be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::LockErrorKind;
use lock_testing::Stopwatch;

use crate::worker::{Args, connect, orders, say};

pub(crate) async fn compete(args: &Args) {
    let (locks, recorder) = connect(args).await;
    let recorder = recorder.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..args.number("tasks") {
        let (locks, recorder, over) = (locks.clone(), Arc::clone(&recorder), Arc::clone(&over));
        let (keys, budget) = (args.number("keys"), Duration::from_millis(args.number("wait_ms")));
        let mut random = fastrand::Rng::with_seed(args.number("seed").wrapping_mul(31).wrapping_add(task));
        tasks.spawn(async move {
            let mut served = 0_u64;
            while !over.load(Ordering::SeqCst) {
                let (key, watch) = (format!("compete:{}", random.u64(0..keys)), Stopwatch::start());
                match locks.lock(key).with_wait(budget).await {
                    Ok(guard) => {
                        served += 1;
                        tokio::time::sleep(Duration::from_micros(random.u64(0..3_000))).await;
                        recorder.release(guard.key(), guard.token());
                        let _ = guard.release().await;
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Unavailable), "{error}");
                        // While this process is stopped, its stopwatch sees that.
                        watch.assert_within(budget, &format!("giving up: {error}"));
                    }
                }
            }
            served
        });
    }
    say("ready");
    while orders().recv().await.is_some_and(|order| order != "stop") {}
    over.store(true, Ordering::SeqCst);
    let mut served = 0;
    while let Some(task) = tasks.join_next().await {
        served += task.unwrap();
    }
    assert!(locks.shutdown(Duration::from_secs(5)).await.is_clean());
    say(&format!("served {served}"));
}
