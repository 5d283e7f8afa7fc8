//! Many managers in one process, each with connections of its own as a process has. Measures the cost of their waits.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{LockManager, Wait};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::bench::Bench;
use crate::child::Child;
use crate::process::job::{Crowd, Hold, Job, Wanted};
use crate::process::wire::{Go, hear, say};
use crate::process::worker;
use crate::servers::server;
use crate::servers::spy::Spy;
use crate::{Result, clock};

/// The lease of the locks that all managers wait for, ms.
const TTL_MS: u64 = 30_000;
/// The role of all candidates.
const ROLE: &str = "bench:lead";
/// How long it may take until every waiter is in its queue.
const PATIENCE: Duration = Duration::from_secs(60);

/// The duration of each part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stages {
    /// All managers are connected, and none waits.
    pub(super) rest: Duration,
    /// All managers wait, and nothing is measured yet: a waiter polls less often the longer it waits.
    pub(super) settle: Duration,
    pub(super) waiting: Duration,
    /// Waiting as before, while commands are counted. MONITOR slows the server, so this part is separate.
    pub(super) counted: Duration,
}

/// Used processor time, % of one core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) server: f64,
    /// The server's wall-clock time in scripts. On a busy machine it exceeds the processor time.
    pub(super) scripts: f64,
    pub(super) clients: f64,
}

/// The cost of a crowd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) rest: Load,
    pub(super) waiting: Load,
    /// Commands that clients send per second.
    pub(super) commands: f64,
    /// Connections of each manager.
    pub(super) connections: f64,
    /// Resident memory for each wait, including the task of its caller.
    pub(super) bytes: f64,
    /// Waits that ended although no lock was released.
    pub(super) ended: u64,
}

/// Lets a crowd wait. If it waits for locks, another process holds them.
pub(super) fn measure(bench: &mut Bench, crowd: Crowd, stages: Stages) -> Result<Costs> {
    bench.server().flush()?;
    let (mut _holder, port) = (None, bench.port());
    let (queues, waits) = match crowd.wanted {
        Wanted::Locks(locks) => {
            let mut holder = worker::start(&Job::Hold(Hold { port, locks, ttl_ms: TTL_MS }))?;
            holder.wait_ready()?;
            _holder = Some(holder);
            ((0..locks).map(|lock| queue_of(&format!("bench:held:{lock}"))).collect(), crowd.managers * locks)
        }
        Wanted::Leadership => (vec![queue_of(ROLE)], crowd.managers - 1),
    };
    let before = bench.server().clients()?;
    bench.progress(&format!("{} managers connect", crowd.managers));
    let mut worker = worker::start(&Job::Crowd(crowd))?;
    worker.wait_ready()?;
    let connections = bench.server().clients()?.saturating_sub(before) as f64 / f64::from(crowd.managers);
    let (rest, idle) = window(bench, &mut worker, stages.rest)?;

    bench.progress(&format!("{waits} waits begin"));
    let begun = Instant::now();
    loop {
        let standing = bench.server().waiting(&queues)?;
        if standing == u64::from(waits) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("only {standing} of {waits} waits stand in a queue").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.progress(&format!("all wait; measured after {} s", stages.settle.as_secs()));
    std::thread::sleep(stages.settle);
    let (waiting, spent) = window(bench, &mut worker, stages.waiting)?;
    let from = clock::now();
    let commands = Spy::open(port)?.count(from, from + clock::as_nanos(stages.counted));
    Ok(Costs {
        rest,
        waiting,
        commands: commands as f64 / stages.counted.as_secs_f64(),
        connections,
        bytes: spent.bytes.saturating_sub(idle.bytes) as f64 / f64::from(waits),
        ended: spent.ended,
    })
}

/// Measures for a while how much server and clients use.
fn window(bench: &mut Bench, worker: &mut Child, length: Duration) -> Result<(Load, Spent)> {
    let from = clock::now() + clock::as_nanos(Duration::from_millis(20));
    let go = Go { from, to: from + clock::as_nanos(length) };
    worker.tell(&go)?;
    std::thread::sleep(clock::until(go.from));
    let (scripts, before) = (server::scripts(&mut bench.site.servers)?, bench.server().cpu()?);
    std::thread::sleep(clock::until(go.to));
    let (used, scripts) = (bench.server().cpu()? - before, server::scripts(&mut bench.site.servers)? - scripts);
    let spent: Spent = worker.answer()?;
    let percent = |micros: f64| micros / 1e6 / length.as_secs_f64() * 100.0;
    let clients = percent(spent.cpu as f64 / 1e3);
    Ok((Load { server: percent(used), scripts: percent(scripts), clients }, spent))
}

fn queue_of(key: &str) -> String {
    format!("{{{key}}}@queue")
}

/// Use of a process in one window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Spent {
    /// Processor time, ns.
    cpu: u64,
    /// Resident memory at the end.
    bytes: u64,
    /// How many waits had ended by then.
    ended: u64,
}

/// The waiting process: at first it only connects, then it waits until it is killed.
pub(crate) fn wait(crowd: &Crowd) -> Result<()> {
    let runtime = runtime()?;
    let managers = runtime.block_on(connect(crowd.port, crowd.managers))?;
    say("ready")?;
    let ended = Arc::new(AtomicU64::new(0));
    spend(&ended)?;
    for locks in &managers {
        match crowd.wanted {
            Wanted::Locks(count) => {
                for lock in 0..count {
                    let request = locks.lock(format!("bench:held:{lock}"));
                    let wait = async move { request.acquire().await.is_ok() };
                    runtime.spawn(to_the_end(wait, Arc::clone(&ended)));
                }
            }
            Wanted::Leadership => {
                let election = locks.elect(ROLE);
                let stand = async move { election.run(async move |_term| pending::<()>().await).await.is_ok() };
                runtime.spawn(to_the_end(stand, Arc::clone(&ended)));
            }
        }
    }
    spend(&ended)?;
    // The waits go on while commands are counted, until the benchmark ends this process.
    std::io::stdin().read_line(&mut String::new())?;
    std::process::exit(0)
}

async fn to_the_end(wait: impl Future<Output = bool>, ended: Arc<AtomicU64>) {
    let _ = wait.await;
    ended.fetch_add(1, Ordering::Relaxed);
}

/// Reports the use of this process in the window that the input names.
fn spend(ended: &AtomicU64) -> Result<()> {
    let go: Go = hear()?;
    std::thread::sleep(clock::until(go.from));
    let cpu = clock::cpu();
    std::thread::sleep(clock::until(go.to));
    let cpu = clock::cpu() - cpu;
    say(&serde_json::to_string(&Spent { cpu, bytes: clock::resident()?, ended: ended.load(Ordering::Relaxed) })?)
}

/// Returns a runtime for the tasks of a whole crowd.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Connects managers with default settings, except that they wait without a limit. Each takes one lock first, so all of
/// its connections are open.
pub(super) async fn connect(port: u16, count: u32) -> Result<Vec<LockManager>> {
    if lock_metrics::installed().is_none() {
        lock_metrics::install()?;
    }
    let mut managers = Vec::new();
    for number in 0..count {
        let locks = LockManager::builder_for(&format!("redis://127.0.0.1:{port}"))?.with_wait(Wait::Forever).build()?;
        locks.ping().await?;
        locks.lock(format!("bench:{number}:ready")).await?.release().await?;
        managers.push(locks);
    }
    Ok(managers)
}
