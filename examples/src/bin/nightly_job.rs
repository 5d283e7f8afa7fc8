//! A job that every host starts at the same minute, but only one of them runs.
//!
//! ```sh
//! # crontab of every host
//! 0 3 * * *  LOCK_URL=redis://redis.internal nightly_job /var/reports
//! ```
//!
//! The first host takes the lock and writes the report. The others see that it runs, or has run, and end with code 0.
//! The key stays taken until a tenth of the day before the next night. A host whose clock is behind therefore skips the job
//! too, and the next night finds the key free. If the host dies or the job fails, any host may start the job again. Each
//! report is written under the fencing token of its lock, so an older one never replaces a newer one.
//!
//! Without `LOCK_URL` the program ends with an error, because every host would run the job. To try it alone, set
//! `LOCK_URL=memory://`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_core::{FencingToken, LockError, LockManager, distributed_lock};

#[derive(Debug, thiserror::Error)]
enum JobError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot write the report: {0}")]
    Io(#[from] std::io::Error),
}

/// Writes the report, or returns `None` if another host writes it or has written it.
#[distributed_lock(
    key = "cron:nightly-report",
    ttl = "30s",
    once_every = "24h",
    retry_failed,
    max_hold = "10m",
    guard = lock
)]
async fn write_report(folder: &Path) -> Result<Option<PathBuf>, JobError> {
    let lines = collect().await;
    // A loss drops this function at its next await. The function has none after this point, so check once more.
    lock.ensure_held()?;
    Ok(Some(save(folder, lock.token(), &lines)?))
}

/// Stands for the slow work at night.
async fn collect() -> String {
    let mut lines = String::new();
    for region in ["north", "east", "south", "west"] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        lines.push_str(region);
        lines.push('\n');
    }
    lines
}

/// Files are ordered by token. Readers take the last one, so a late writer changes nothing.
fn save(folder: &Path, token: FencingToken, lines: &str) -> std::io::Result<PathBuf> {
    let path = folder.join(format!("report-{:020}.txt", token.get()));
    let unfinished = path.with_extension("part");
    std::fs::write(&unfinished, lines)?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).map_or_else(env::temp_dir, PathBuf::from);
    let locks = LockManager::from_env().await?;
    locks.install()?;
    let written = tokio::select! {
        written = write_report(&folder) => written,
        // On SIGTERM or Ctrl-C, a report in progress has five seconds to finish. An unfinished report counts as not run.
        report = locks.shutdown_on_signal(Duration::from_secs(5)) => {
            return Err(format!("stopped before the report was written; every lock given back: {}", report?.is_clean()).into());
        }
    };
    locks.shutdown(Duration::from_secs(5)).await;
    match written? {
        Some(path) => println!("wrote {}", path.display()),
        None => println!("another host writes it, or just did"),
    }
    Ok(())
}
