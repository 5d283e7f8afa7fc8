//! Many tasks that take and free locks for a while.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{Failure, Result, clock};

/// One way to take and free locks.
pub(crate) trait Pairs: Send + Sync + 'static {
    /// Takes a lock and frees it. Each task has keys of its own.
    fn pair(&self, task: u64, turn: u64) -> impl Future<Output = Result<()>> + Send;
}

/// Returns how many pairs per second the tasks do, with a line for each task. A fifth of the time comes before as warm-up.
pub(crate) async fn rate(lines: impl IntoIterator<Item = impl Pairs>, window_ms: u64) -> Result<f64> {
    let window = clock::as_nanos(Duration::from_millis(window_ms));
    let from = clock::now() + window / 5;
    let mut tasks = JoinSet::new();
    for (task, line) in (0..).zip(lines) {
        tasks.spawn(async move {
            let mut counted = 0_u64;
            for turn in 0.. {
                line.pair(task, turn).await?;
                let now = clock::now();
                if now >= from + window {
                    break;
                }
                counted += u64::from(now >= from);
            }
            Ok::<_, Failure>(counted)
        });
    }
    let mut counted = 0;
    while let Some(done) = tasks.join_next().await {
        counted += done??;
    }
    Ok(counted as f64 / Duration::from_nanos(window).as_secs_f64())
}
