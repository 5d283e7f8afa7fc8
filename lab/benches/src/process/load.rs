//! The loop of every contestant: acquire, hold, release, repeat.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::contestant::{Access, Contestant, Distkit, Kind, Local, Ours, Raw, Rslock, Store, Wants};
use crate::process::record::{self, Record};
use crate::process::wire::{Go, hear, say};
use crate::process::work::Work;
use crate::{Result, clock};

/// How long a task that holds a lock may take to release it after the end of the window.
const GRACE: Duration = Duration::from_millis(100);

/// With hold 0, a task yields while it is inside once in this many times. Otherwise it would be inside too briefly to
/// ever overlap with another task.
const LINGER: u64 = 64;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
    pub(crate) tasks: u32,
    /// The number of the first task. Tasks are numbered across all processes.
    pub(crate) first_task: u32,
    /// How many keys of its own each task cycles through; 0 if all tasks of all processes share one key.
    pub(crate) keys_per_task: u32,
    pub(crate) hold_us: u64,
    pub(crate) wants: Wants,
    /// Whether to use two worker threads instead of the calling thread.
    pub(crate) multi_thread: bool,
    /// Whether each task has a manager of its own.
    pub(crate) apart: bool,
    /// How often each task acquires before it ends; without a number it runs to the end of the window.
    pub(crate) times: Option<u64>,
}

impl Load {
    pub(crate) fn new(port: u16, kind: Kind, work: Work, first_task: u32) -> Self {
        let Work { tasks, keys_per_task, hold_us, wants, multi_thread, apart, times, .. } = work;
        Self { kind, port, tasks, first_task, keys_per_task, hold_us, wants, multi_thread, apart, times }
    }
}

/// The report of one process at its end. Its records follow; the report has their number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) records: usize,
    /// How long each wait that had not ended has lasted so far, ns.
    pub(crate) open: Vec<u64>,
    pub(crate) errors: u64,
    /// The text of one of the errors.
    pub(crate) error: Option<String>,
    /// Processor time within the window, ns.
    pub(crate) cpu: u64,
}

/// Runs the work of one process, from connecting to its report.
pub(crate) fn run(load: &Load) -> Result<()> {
    let runtime = if load.multi_thread {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    };
    let port = load.port;
    match load.kind {
        Kind::Raw { nodelay } => race(&runtime, &[runtime.block_on(Raw::connect(port, nodelay))?], load),
        Kind::Rslock { retry_ms } => race(&runtime, &[Rslock::new(port, retry_ms)], load),
        Kind::Distkit { reads, owners } => race(&runtime, &runtime.block_on(Distkit::open(port, reads, owners))?, load),
        Kind::Local => race(&runtime, &[Local::default()], load),
        Kind::Ours { background } => race(&runtime, &ours(&runtime, Store::Server(port), background, load)?, load),
        Kind::Peer { .. } => Err("an adapter has a loop of its own".into()),
        Kind::Over(store) => race(&runtime, &ours(&runtime, store, false, load)?, load),
    }
}

/// Connects one manager, or one for each task.
fn ours(runtime: &Runtime, store: Store, background: bool, load: &Load) -> Result<Vec<Ours>> {
    let count = if load.apart { load.tasks } else { 1 };
    (0..count).map(|_| runtime.block_on(Ours::connect(store, background))).collect()
}

/// Runs the tasks. They share one contestant, or have one each.
fn race<C: Contestant>(runtime: &Runtime, contestants: &[C], load: &Load) -> Result<()> {
    // The first acquire loads scripts and opens connections, so the measurement does not include them.
    for (number, contestant) in (load.first_task..).zip(contestants) {
        runtime.block_on(async {
            let (held, _) = contestant.acquire(&format!("bench:{number}:ready"), Access::Alone).await?;
            contestant.release(held).await
        })?;
    }
    say("ready")?;
    let go: Go = hear()?;
    let (account, logs) = runtime.block_on(measure(contestants, load, go))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    serde_json::to_writer(&mut out, &account)?;
    out.write_all(b"\n")?;
    for log in &logs {
        record::write(&mut out, &log.records)?;
    }
    out.flush()?;
    // The clean-up of open waits is not measured, and the benchmark empties the server anyway.
    std::process::exit(0)
}

/// The records of one task. Only the task locks them until the end of the run.
#[derive(Debug, Default)]
struct Log {
    records: Vec<Record>,
    errors: u64,
    error: Option<String>,
}

#[derive(Debug, Default)]
struct Notes {
    log: Mutex<Log>,
    /// When the current wait of the task began; 0 if the task does not wait.
    waits_since: AtomicU64,
}

impl Notes {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn measure<C: Contestant>(contestants: &[C], load: &Load, go: Go) -> Result<(Account, Vec<Log>)> {
    let mut tasks = Vec::new();
    for (index, contestant) in (0..load.tasks).zip(contestants.iter().cycle()) {
        let notes = Arc::new(Notes::default());
        let work = work(contestant.clone(), load.clone(), index, Arc::clone(&notes), go.to);
        tasks.push((notes, tokio::spawn(work)));
    }
    sleep(clock::until(go.from)).await;
    let cpu = clock::cpu();
    while clock::now() < go.to && tasks.iter().any(|(_, task)| !task.is_finished()) {
        // Tasks end before the window only if their number of acquisitions is fixed.
        sleep(if load.times.is_some() { Duration::from_millis(5) } else { clock::until(go.to) }).await;
    }
    let mut account = Account { cpu: clock::cpu() - cpu, ..Account::default() };
    let waits = tasks.iter().map(|(notes, _)| notes.waits_since.load(Ordering::Relaxed));
    account.open = waits.filter(|since| *since != 0).map(|since| go.to.saturating_sub(since)).collect();
    let give_up_at = clock::now() + clock::as_nanos(GRACE) + load.hold_us * 1000;
    while clock::now() < give_up_at && tasks.iter().any(|(notes, task)| is_busy(load, notes, task.is_finished())) {
        sleep(Duration::from_millis(2)).await;
    }
    let mut logs = Vec::new();
    for (notes, task) in tasks {
        task.abort();
        let log = std::mem::take(&mut *notes.log());
        account.records += log.records.len();
        account.errors += log.errors;
        account.error = account.error.or_else(|| log.error.clone());
        logs.push(log);
    }
    Ok((account, logs))
}

/// Returns whether a task will end soon: it is inside, or its key has no other user.
fn is_busy(load: &Load, notes: &Notes, finished: bool) -> bool {
    !finished && (load.keys_per_task > 0 || notes.waits_since.load(Ordering::Relaxed) == 0)
}

async fn work<C: Contestant>(contestant: C, load: Load, index: u32, notes: Arc<Notes>, stop: u64) {
    let mut name = String::new();
    let task = load.first_task + index;
    for turn in 0..load.times.unwrap_or(u64::MAX) {
        let key = match u64::from(load.keys_per_task) {
            0 => 0,
            keys => u32::try_from(u64::from(task) * keys + turn % keys).unwrap_or(u32::MAX),
        };
        name.clear();
        // Writing to a string cannot fail.
        let _ = write!(name, "bench:{key}");
        let start = clock::now();
        if start >= stop {
            return;
        }
        notes.waits_since.store(start, Ordering::Relaxed);
        let access = load.wants.next();
        let acquired = contestant.acquire(&name, access).await;
        let enter = clock::now();
        notes.waits_since.store(0, Ordering::Relaxed);
        let outcome = match acquired {
            Ok((held, token)) => {
                if load.hold_us > 0 {
                    sleep(Duration::from_micros(load.hold_us)).await;
                } else if turn % LINGER == 0 {
                    tokio::task::yield_now().await;
                }
                let exit = clock::now();
                let (key, inside) = (key + C::part(&held), access.inside());
                notes.log().records.push(Record { start, enter, exit, token, key, task, inside });
                contestant.release(held).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            {
                let mut log = notes.log();
                log.errors += 1;
                log.error = Some(error.to_string());
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}
