//! A run whose server logs every step. Its processes have a caller for each of many keys, and one process is stopped
//! for longer than a lease.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_testing::RedisServer;
use serde::{Deserialize, Serialize};

use crate::harness::Worker;
use crate::record::{Record, now};

/// The length of a lease, and the number of keys.
const TTL: Duration = Duration::from_millis(1_200);
const KEYS: u64 = 50;
const PROCESSES: u64 = 3;
/// The time before a process is stopped, the length of the stop, and the time until the log is cut. All of it ends
/// before a waiter would sleep.
const BEFORE: Duration = Duration::from_millis(700);
const STOPPED: Duration = Duration::from_millis(1_400);
const AFTER: Duration = Duration::from_millis(700);

/// Facts about a run beside its logs.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct About {
    pub(super) ttl_ms: i64,
    /// How far the wall clock, which servers read, is ahead of the callers' clock, in ns.
    pub(super) ahead_ns: i64,
    pub(super) seed: u64,
    pub(super) server: String,
}

/// Makes a run, and returns the folder of its logs.
pub(super) fn record(out: &Path) -> Result<PathBuf, String> {
    let seed = fastrand::u64(..);
    let folder = out.join(format!("trace-{seed}"));
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let (history, whole) = (folder.join("history.jsonl"), folder.join("whole.jsonl"));
    let log = folder.join("store.aof");
    let server = RedisServer::builder()
        .with("appendonly", "yes")
        .with("appendfsync", "no")
        .with("auto-aof-rewrite-percentage", "0")
        // The log then has UNLINK for an expired lease, and DEL for a key that a step deletes.
        .with("lazyfree-lazy-expire", "yes")
        .start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    let ahead_ns = ahead();
    eprintln!("{PROCESSES} processes, {KEYS} keys, into {}", folder.display());
    runtime.block_on(async {
        let mut workers = Vec::new();
        for process in 0..PROCESSES {
            let args = [
                ("url", server.url()),
                ("history", whole.display().to_string()),
                ("seed", seed.wrapping_add(process).to_string()),
                ("ttl_ms", TTL.as_millis().to_string()),
                ("keys", KEYS.to_string()),
            ];
            let mut worker = Worker::start("traced", &args);
            worker.next().await;
            workers.push(worker);
        }
        tokio::time::sleep(BEFORE).await;
        workers[0].stop();
        tokio::time::sleep(STOPPED).await;
        workers[0].resume();
        tokio::time::sleep(AFTER).await;
        // The history is read before the log: the log then has the step of every answer. Ends are read after it, since
        // a caller releases only after its end.
        let before = fs::read_to_string(&whole).map_err(failed)?;
        fs::copy(appended(server.directory())?, &log).map_err(failed)?;
        let after = fs::read_to_string(&whole).map_err(failed)?;
        fs::write(&history, cut(&before, &after)).map_err(failed)?;
        for worker in &mut workers {
            worker.order("stop").await;
        }
        for worker in workers {
            worker.ended().await;
        }
        fs::remove_file(&whole).map_err(failed)
    })?;
    let info = server.command(&["INFO", "server"]);
    let version =
        info.text().lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").trim().to_owned();
    let about = About { ttl_ms: i64::try_from(TTL.as_millis()).unwrap_or(0), ahead_ns, seed, server: version };
    let text = serde_json::to_string_pretty(&about).map_err(|error| error.to_string())?;
    fs::write(folder.join("trace.json"), text).map_err(failed)?;
    Ok(folder)
}

/// The records before the log was cut, and the ends of holds after it. An incomplete line is left out.
fn cut(before: &str, after: &str) -> String {
    let whole = before.rfind('\n').map_or(0, |end| end + 1);
    let later = after[whole..].split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let left = later.filter(|line| matches!(serde_json::from_str(line), Ok(Record::End { .. })));
    before[..whole].chars().chain(left.flat_map(str::chars)).collect()
}

/// The append-only file. Since 7.0 it is a folder of parts, and the first part is a snapshot.
fn appended(directory: &Path) -> Result<PathBuf, String> {
    let places = [directory.join("appendonlydir/appendonly.aof.1.incr.aof"), directory.join("appendonly.aof")];
    places.into_iter().find(|place| place.is_file()).ok_or_else(|| format!("no log in {}", directory.display()))
}

/// Reads both clocks: the wall clock between two readings of the other.
fn ahead() -> i64 {
    let look = || {
        let before = now();
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
        let after = now();
        (after - before, i64::try_from(wall.as_nanos()).unwrap() - i64::try_from(u64::midpoint(before, after)).unwrap())
    };
    (0..20).map(|_| look()).min().map_or(0, |(_, ahead)| ahead)
}
