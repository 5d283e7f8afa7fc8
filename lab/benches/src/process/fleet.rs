//! Starts the processes of one run, gives the start signal, and combines their results.

use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::child::Child;
use crate::contestant::Kind;
use crate::process::job::Job;
use crate::process::load::{Account, Load};
use crate::process::record::{Findings, Record, Window, examine};
use crate::process::wire::Go;
use crate::process::work::{Pace, Work};
use crate::process::worker;
use crate::servers::server::{self, Server};
use crate::servers::spy::Spy;
use crate::stats::ratio;
use crate::{Result, clock};

/// The results of one run of one contestant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) found: Findings,
    /// Processor time of all processes, per acquisition.
    pub(crate) client_us: Option<f64>,
    pub(crate) server_us: Option<f64>,
    /// The server's time in scripts per acquisition, as the server counts it.
    pub(crate) scripts_us: Option<f64>,
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
}

impl Sample {
    /// Processor time of both sides, per acquisition.
    pub(crate) fn cost_us(&self) -> f64 {
        self.client_us.unwrap_or(f64::NAN) + self.server_us.unwrap_or(0.0)
    }
}

/// Runs a contestant on the servers of one store.
pub(crate) fn run(servers: &mut [Server], port: u16, kind: Kind, work: Work, pace: Pace) -> Result<Sample> {
    let (children, go) = start(port, kind, work, pace)?;
    let readers = begin(children, go)?;
    std::thread::sleep(clock::until(go.from));
    let (scripts, before) = (server::scripts(servers)?, server::cpu(servers)?);
    let nap = Duration::from_millis(if work.times.is_some() { 5 } else { 10_000 });
    while clock::now() < go.to && !readers.iter().all(JoinHandle::is_finished) {
        std::thread::sleep(clock::until(go.to).min(nap));
    }
    let (after, scripts) = (server::cpu(servers)?, server::scripts(servers)? - scripts);
    let (account, records) = end(readers)?;
    let first = servers.first_mut().ok_or("a store has no server")?;
    let round_trip = clock::as_nanos(first.round_trip()?);
    let tasks_per_process = if work.apart { 1 } else { work.tasks };
    let window = Window { from: go.from, to: go.to, tasks: work.waiters(), tasks_per_process, round_trip };
    let found = examine(records, &account.open, window);
    let count = found.acquisitions as f64;
    Ok(Sample {
        client_us: ratio(account.cpu as f64 / 1e3, count),
        server_us: ratio(after - before, count).filter(|_| kind != Kind::Local),
        scripts_us: ratio(scripts, count).filter(|_| kind != Kind::Local),
        errors: account.errors,
        error: account.error,
        found,
    })
}

/// Runs a contestant in one process, which ends after its last acquisition; `under` may name a program that runs the
/// process. Returns the process id and the number of acquisitions.
pub(crate) fn run_out(under: &[String], port: u16, kind: Kind, work: Work) -> Result<(u32, u64)> {
    let mut worker = worker::start_under(under, &Job::Load(Load::new(port, kind, work, 0)))?;
    worker.wait_ready()?;
    worker.tell(&Go::unhurried())?;
    let pid = worker.id();
    let (account, records) = worker::account(worker)?;
    match account.error {
        Some(error) => Err(error.into()),
        None => Ok((pid, u64::try_from(records.len())?)),
    }
}

/// Counts the commands that clients send for each acquisition. It needs a run of its own: MONITOR slows the server.
pub(crate) fn count_commands(server: &mut Server, port: u16, kind: Kind, work: Work, pace: Pace) -> Result<f64> {
    server.flush()?;
    let (children, go) = start(port, kind, work, pace)?;
    let spy = Spy::open(server.port())?;
    let readers = begin(children, go)?;
    let commands = spy.count(go.from, go.to);
    let records = end(readers)?.1;
    let acquisitions = records.iter().filter(|record| (go.from..go.to).contains(&record.enter)).count();
    Ok(ratio(commands as f64, acquisitions as f64).unwrap_or(f64::NAN))
}

/// A thread that reads the results of a process.
type Reader = JoinHandle<Result<(Account, Vec<Record>)>>;

fn begin(mut children: Vec<Child>, go: Go) -> Result<Vec<Reader>> {
    children.iter_mut().try_for_each(|child| child.tell(&go))?;
    Ok(children.into_iter().map(|child| std::thread::spawn(move || worker::account(child))).collect())
}

fn end(readers: Vec<Reader>) -> Result<(Account, Vec<Record>)> {
    let (mut account, mut records) = (Account::default(), Vec::new());
    for reader in readers {
        let (one, more) = reader.join().map_err(|_| "a thread of the benchmark panicked")??;
        account.cpu += one.cpu;
        account.errors += one.errors;
        account.error = account.error.or(one.error);
        account.open.extend(one.open);
        records.extend(more);
    }
    Ok((account, records))
}

/// Starts all processes of a run. They wait for the start signal.
fn start(port: u16, kind: Kind, work: Work, pace: Pace) -> Result<(Vec<Child>, Go)> {
    let job = |process| Job::Load(Load::new(port, kind, work, process * work.tasks));
    let mut children = (0..work.processes).map(|process| worker::start(&job(process))).collect::<Result<Vec<_>>>()?;
    for child in &mut children {
        child.wait_ready()?;
    }
    let pace = pace.for_kind(kind);
    let from = clock::now() + clock::as_nanos(pace.warm_up);
    Ok((children, Go { from, to: from + clock::as_nanos(pace.window) }))
}
