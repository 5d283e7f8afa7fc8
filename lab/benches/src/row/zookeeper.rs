//! Locks in ZooKeeper, beside the bare requests that they consist of and beside Curator, on the same three servers in the same round.

use std::time::Duration;

use lock_core::{LockGuard, LockManager, Wait};
use lock_zookeeper::ZooKeeper;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::bench::Bench;
use crate::contestant::TTL_MS;
use crate::outcome::{Bound, Measure, Outcome, Wanted};
use crate::peer::Adapter;
use crate::process::job::{Job, Statements};
use crate::process::wire::say;
use crate::process::worker;
use crate::row::pairs::{Pairs, rate};
use crate::stats::percentile;
use crate::{Failure, Result, clock, peers};

#[path = "../../../../stores/lock-zookeeper/tests/it/servers.rs"]
#[allow(dead_code, reason = "most of it is for the tests of the store")]
mod servers;

use servers::{NEWEST, Pace, Servers, can_start};

/// How many tasks there are in a crowd, and how many keys each of them cycles through.
const TASKS: usize = 64;
const KEYS: u64 = 16;

const SCHEME: &str = "zookeeper://";

/// How long the servers have nothing to do before a watch or a hand-off is timed.
const SETTLED: Duration = Duration::from_millis(10);

/// The figures of one round: pairs per second of one task and of many, and medians in µs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    bare: [f64; 2],
    ours: [f64; 2],
    /// `None` if Curator is not installed.
    curator: [Option<f64>; 2],
    watch: f64,
    hand_off: f64,
    /// How many tokens in the hand-offs were not greater than the one before.
    inversions: u64,
}

const FIGURES: [Measure<Measured>; 8] = [
    ("bare create and delete", "µs", |round| 1e6 / round.bare[0]),
    ("us: a pair", "µs", |round| 1e6 / round.ours[0]),
    ("Curator: a pair", "µs", |round| 1e6 / round.curator[0].unwrap_or(f64::NAN)),
    ("bare watch until heard", "µs", |round| round.watch),
    ("us: hand-off between processes", "µs", |round| round.hand_off),
    ("64 tasks: bare", "/s", |round| round.bare[1]),
    ("64 tasks: us", "/s", |round| round.ours[1]),
    ("64 threads: Curator", "/s", |round| round.curator[1].unwrap_or(f64::NAN)),
];

const TARGETS: [Wanted<Measured>; 5] = [
    ("a pair / bare", |r| r.bare[0], |r| r.ours[0], Bound::AtMost, 1.5),
    ("64 tasks, us / bare", |r| r.ours[1], |r| r.bare[1], Bound::AtLeast, 0.5),
    ("a pair, us / Curator", |r| r.curator[0].unwrap_or(f64::NAN), |r| r.ours[0], Bound::AtMost, 1.0),
    ("64 tasks, us / Curator", |r| r.ours[1], |r| r.curator[1].unwrap_or(f64::NAN), Bound::AtLeast, 1.0),
    ("hand-off / bare watch", |r| r.hand_off, |r| r.watch, Bound::AtMost, 1.5),
];

pub(super) fn run(bench: &mut Bench) -> Result<Outcome> {
    let mut rounds = Vec::new();
    if can_start(NEWEST) {
        let servers = Servers::three(Pace::PATIENT).ok_or("ZooKeeper does not start")?;
        let window_ms = bench.scale.pick(2_000, 500, 150);
        for round in 0..bench.rounds {
            let steps = bench.scale.pick(300, 60, 4);
            let job = Statements { url: servers.url(""), steps, window_ms, first: round };
            rounds.push(worker::start(&Job::ZooKeeper(job))?.answer::<Measured>()?);
        }
    } else {
        println!("not installed, so not measured: ZooKeeper: run sh scripts/need-zookeeper.sh");
    }
    Ok(Outcome::of_rounds(&rounds, &FIGURES, &TARGETS, |round| round.inversions))
}

/// Measures every figure once, in a process of its own.
pub(crate) fn measure(job: &Statements) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    lock_metrics::install()?;
    let measured = runtime.block_on(async {
        let mut measured = Measured::default();
        let here = &over_one_server(job, 0);
        let (bare, ours) = (Line::Bare(client(&here.url).await?), Line::Ours(manager(here, "/pairs").await?));
        for (at, tasks) in [1, TASKS].into_iter().enumerate() {
            // Each round begins with another line.
            for line in 0..3 {
                match (line + job.first) % 3 {
                    0 => measured.bare[at] = rate(vec![bare.clone(); tasks], job.window_ms).await?,
                    1 => measured.ours[at] = rate(vec![ours.clone(); tasks], job.window_ms).await?,
                    _ => {
                        // The sessions of the other lines go on meanwhile.
                        let (url, window_ms) = (here.url.clone(), job.window_ms);
                        let ran = tokio::task::spawn_blocking(move || curator(&url, tasks, window_ms));
                        measured.curator[at] = ran.await??;
                    }
                }
            }
        }
        hand_offs(job, &mut measured).await?;
        Ok::<_, Failure>(measured)
    })?;
    say(&serde_json::to_string(&measured)?)?;
    // Sessions that are still open end with the servers.
    std::process::exit(0)
}

/// The job over one server, another one in each round: a leader answers sooner than a follower.
fn over_one_server(job: &Statements, at: usize) -> Statements {
    let hosts: Vec<&str> = job.url.trim_start_matches(SCHEME).split(',').collect();
    Statements { url: format!("{SCHEME}{}", hosts[(job.first as usize + at) % hosts.len()]), ..job.clone() }
}

async fn client(url: &str) -> Result<Client> {
    let connector = Client::connector().with_session_timeout(Duration::from_millis(2 * TTL_MS));
    Ok(connector.connect(url.trim_start_matches(SCHEME)).await?)
}

/// A manager with a session of its own, as a process has, and with the lease of every contestant.
async fn manager(job: &Statements, root: &str) -> Result<LockManager> {
    let ttl = Duration::from_millis(TTL_MS);
    let url = format!("{}{root}?session={}s", job.url, 2 * ttl.as_secs());
    let locks = LockManager::builder(ZooKeeper::new(&url)?).with_ttl(ttl).with_wait(Wait::Forever).build()?;
    locks.ping().await?;
    Ok(locks)
}

/// One way to take and release locks.
#[derive(Clone)]
enum Line {
    Ours(LockManager),
    /// The two writes that every lock of ZooKeeper needs.
    Bare(Client),
}

impl Pairs for Line {
    async fn pair(&self, task: u64, turn: u64) -> Result<()> {
        let key = task * KEYS + turn % KEYS;
        match self {
            Self::Ours(locks) => {
                locks.lock(format!("bench:{key}")).await?.release().await?;
            }
            Self::Bare(client) => {
                let (path, options) =
                    (format!("/bare-{key}-"), CreateMode::EphemeralSequential.with_acls(Acls::anyone_all()));
                let (_, sequence) = client.create(&path, b"bench", &options).await?;
                client.delete(&format!("{path}{sequence}"), None).await?;
            }
        }
        Ok(())
    }
}

/// Returns the rate of Curator, in a process of its own. The virtual machine compiles at run time, so it warms up for longer. `None` if
/// Curator is not installed.
fn curator(url: &str, tasks: usize, window_ms: u64) -> Result<Option<f64>> {
    let peer = peers::all().into_iter().find(|peer| peer.name == peers::CURATOR).ok_or("there is no such peer")?;
    let Ok(command) = peer.command else { return Ok(None) };
    let mut adapter = Adapter::start_at(&command, url)?;
    let window = clock::as_nanos(Duration::from_millis(window_ms));
    let from = clock::now() + 4 * window;
    let file = std::env::temp_dir().join(format!("lock-bench-{}.curator", std::process::id()));
    let order = json!({"load": {
        "tasks": tasks, "first": 0, "keys_per_task": KEYS, "hold_us": 0, "from": from, "to": from + window, "file": file,
    }});
    let said = adapter.ask(&order, "loaded");
    let records = std::fs::read(&file)?;
    std::fs::remove_file(&file)?;
    said?;
    // Each record begins with four times and a token; the third of them is when the release was called.
    let released = |record: &[u8]| u64::from_le_bytes(record[16..24].try_into().unwrap_or_default());
    let counted = records.chunks_exact(44).filter(|record| (from..from + window).contains(&released(record))).count();
    Ok(Some(counted as f64 / Duration::from_nanos(window).as_secs_f64()))
}

/// From the call of a release to the guard of a waiter in another process. A watch that hears of a deleted node is the comparison.
async fn hand_offs(job: &Statements, measured: &mut Measured) -> Result<()> {
    // Both go over the same two servers and in both directions.
    let jobs = [0, 1].map(|at| over_one_server(job, at));
    let clients = [client(&jobs[0].url).await?, client(&jobs[1].url).await?];
    let managers = [manager(&jobs[0], "/handed").await?, manager(&jobs[1], "/handed").await?];
    let (mut watches, mut times) = (Vec::new(), Vec::new());
    let mut guard = managers[0].lock("handed").await?;
    let folder = clients[0].list_children("/handed/l").await?.pop().ok_or("the lock has no node")?;
    for step in 0..job.steps as usize {
        let (here, there) = (step % 2, (step + 1) % 2);
        clients[here].create("/watched", &[], &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        clients[there].sync("/watched").await?;
        let (_, watcher) = clients[there].check_and_watch_stat("/watched").await?;
        // The threads of the servers sleep in both cases.
        sleep(SETTLED).await;
        let started = clock::now();
        let (deleted, _) = tokio::join!(clients[here].delete("/watched", None), watcher.changed());
        watches.push(clock::now() - started);
        deleted?;
        let waiter = queued(&clients[here], &format!("/handed/l/{folder}"), &managers[there]).await?;
        let (before, started) = (guard.token(), clock::now());
        let release = async { Ok::<_, Failure>(guard.release().await?) };
        (_, guard) = tokio::try_join!(release, async { waiter.await? })?;
        times.push(clock::now() - started);
        measured.inversions += u64::from(guard.token() <= before);
    }
    guard.release().await?;
    for (times, into) in [(&mut watches, &mut measured.watch), (&mut times, &mut measured.hand_off)] {
        times.sort_unstable();
        *into = percentile(times, 500) as f64 / 1e3;
    }
    Ok(())
}

/// Lets a manager wait for the lock, and returns when its claim is in the queue and watches for its turn.
async fn queued(client: &Client, folder: &str, locks: &LockManager) -> Result<JoinHandle<Result<LockGuard>>> {
    let request = locks.lock("handed");
    let waiter = tokio::spawn(async move { Ok(request.await?) });
    while client.list_children(folder).await?.len() < 2 {
        tokio::task::yield_now().await;
    }
    sleep(SETTLED).await;
    Ok(waiter)
}
