//! Starts the processes of one run, gives the signal, and combines their results.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::contestant::{Kind, Wants};
use crate::instructions::unhurried;
use crate::job::Job;
use crate::load::{Account, Load};
use crate::record::{self, Findings, Record, Window, examine};
use crate::server::Server;
use crate::spy::{Seen, Spy};
use crate::stats::ratio;
use crate::wire::Go;
use crate::{Result, clock};

/// The work of all processes of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) processes: u32,
    /// Per process.
    pub(crate) tasks: u32,
    pub(crate) keys_per_task: u32,
    pub(crate) hold_us: u64,
    pub(crate) wants: Wants,
    pub(crate) multi_thread: bool,
    pub(crate) times: Option<u64>,
}

impl Work {
    /// One process whose tasks each cycle through their own keys.
    pub(crate) fn distinct(tasks: u32) -> Self {
        let keys_per_task = (1024 / tasks).max(16);
        let wants = Wants::Alone;
        Self { processes: 1, tasks, keys_per_task, hold_us: 0, wants, multi_thread: false, times: None }
    }

    /// Processes whose tasks all want the same key.
    pub(crate) fn hot(processes: u32, tasks: u32) -> Self {
        Self { processes, keys_per_task: 0, ..Self::distinct(tasks) }
    }

    pub(crate) fn holding(self, hold_us: u64) -> Self {
        Self { hold_us, ..self }
    }

    pub(crate) fn wanting(self, wants: Wants) -> Self {
        Self { wants, ..self }
    }

    pub(crate) fn multi_thread(self) -> Self {
        Self { multi_thread: true, ..self }
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.processes * self.tasks
    }
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// The results of one run of one contestant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub(crate) found: Findings,
    /// Commands that clients sent, per acquisition.
    pub(crate) commands_per_acquisition: Option<f64>,
    /// Processor time of all processes, per acquisition.
    pub(crate) client_us: Option<f64>,
    pub(crate) server_us: Option<f64>,
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
}

impl Sample {
    /// Processor time of both sides, per acquisition.
    pub(crate) fn cost_us(&self) -> f64 {
        self.client_us.unwrap_or(f64::NAN) + self.server_us.unwrap_or(0.0)
    }
}

/// Runs a contestant. With `spy`, finds out during the warm-up which commands are sent.
pub(crate) fn run(
    server: &mut Server,
    port: u16,
    kind: Kind,
    work: Work,
    pace: Pace,
    seen: &mut Option<Seen>,
) -> Result<Sample> {
    let (mut children, go) = start(port, kind, work, pace)?;
    let spy = if seen.is_none() { Some(Spy::open(server.port())?) } else { None };
    for child in &mut children {
        child.tell(&go)?;
    }
    if let Some(spy) = spy {
        *seen = Some(spy.listen(go.from - clock::as_nanos(pace.warm_up) / 2));
    }
    std::thread::sleep(clock::until(go.from));
    let before = server.sample()?;
    let readers: Vec<_> = children.into_iter().map(|child| std::thread::spawn(move || child.account())).collect();
    while clock::now() < go.to && !readers.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(clock::until(go.to).min(Duration::from_millis(if work.times.is_some() {
            5
        } else {
            10_000
        })));
    }
    let after = server.sample()?;

    let (mut account, mut records) = (Account::default(), Vec::new());
    for reader in readers {
        let (one, more) = reader.join().map_err(|_| "a thread of the benchmark panicked")??;
        account.cpu += one.cpu;
        account.errors += one.errors;
        account.error = account.error.or(one.error);
        account.open.extend(one.open);
        records.extend(more);
    }
    let round_trip = clock::as_nanos(server.round_trip()?);
    let window = Window { from: go.from, to: go.to, tasks: work.waiters(), tasks_per_process: work.tasks, round_trip };
    let found = examine(records, &account.open, window);
    let count = found.acquisitions as f64;
    let empty = Seen::default();
    let names = seen.as_ref().unwrap_or(&empty);
    let commands = after.commands_since(&before, &names.top_level);
    let uses_server = kind != Kind::Local;
    Ok(Sample {
        commands_per_acquisition: ratio(commands as f64, count).filter(|_| uses_server && names.ambiguous.is_empty()),
        client_us: ratio(account.cpu as f64 / 1e3, count),
        server_us: ratio(after.cpu - before.cpu, count).filter(|_| uses_server),
        errors: account.errors,
        error: account.error,
        found,
    })
}

/// Runs a contestant in one process, which ends by the number of its acquisitions, perhaps under another program.
/// Returns the process id and how often it acquired.
pub(crate) fn run_out(under: &[String], port: u16, kind: Kind, work: Work) -> Result<(u32, u64)> {
    let mut worker = Worker::start_under(under, &Job::Load(Load::new(port, kind, work, 0)))?;
    worker.wait_ready()?;
    worker.tell(&unhurried())?;
    let pid = worker.process.id();
    let (account, records) = worker.account()?;
    match account.error {
        Some(error) => Err(error.into()),
        None => Ok((pid, u64::try_from(records.len())?)),
    }
}

/// Counts the commands that clients send for each acquisition where INFO cannot tell them from those of scripts:
/// MONITOR does, in a round of its own, since it slows the server.
pub(crate) fn count_commands(server: &Server, port: u16, kind: Kind, work: Work, pace: Pace) -> Result<Option<f64>> {
    let (mut children, go) = start(port, kind, work, pace)?;
    let spy = Spy::open(server.port())?;
    for child in &mut children {
        child.tell(&go)?;
    }
    let readers: Vec<_> = children.into_iter().map(|child| std::thread::spawn(move || child.account())).collect();
    let commands = spy.count(go.from, go.to);
    let mut acquisitions = 0;
    for reader in readers {
        let (_, records) = reader.join().map_err(|_| "a thread of the benchmark panicked")??;
        acquisitions += records.iter().filter(|record| (go.from..go.to).contains(&record.enter)).count();
    }
    Ok(ratio(commands as f64, acquisitions as f64))
}

/// Starts all processes of a run, which wait for the signal.
fn start(port: u16, kind: Kind, work: Work, pace: Pace) -> Result<(Vec<Worker>, Go)> {
    let job = |process| Job::Load(Load::new(port, kind, work, process * work.tasks));
    let mut children = (0..work.processes).map(|process| Worker::start(&job(process))).collect::<Result<Vec<_>>>()?;
    for child in &mut children {
        child.wait_ready()?;
    }
    let from = clock::now() + clock::as_nanos(pace.warm_up);
    Ok((children, Go { from, to: from + clock::as_nanos(pace.window) }))
}

/// A worker process. Killed if it is dropped before its end.
pub(crate) struct Worker {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(job: &Job) -> Result<Self> {
        Self::start_under(&[], job)
    }

    fn start_under(under: &[String], job: &Job) -> Result<Self> {
        let this = std::env::current_exe()?;
        let mut command = match under {
            [] => Command::new(this),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(this);
                command
            }
        };
        let mut process = command.arg("work").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("a process has no input")?;
        let output = BufReader::with_capacity(1 << 20, process.stdout.take().ok_or("a process has no output")?);
        let mut worker = Self { process, input, output };
        worker.tell(job)?;
        Ok(worker)
    }

    pub(crate) fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        Ok(self.input.write_all(&line)?)
    }

    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        if self.line()? == "ready\n" { Ok(()) } else { Err("a process of the benchmark failed, see above".into()) }
    }

    /// Reads one answer.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| "a process of the benchmark failed, see above".into())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Reads the account and the history, until the process ends.
    fn account(mut self) -> Result<(Account, Vec<Record>)> {
        let account: Account = self.answer()?;
        let records = record::read(&mut self.output, account.records)?;
        let _ = self.output.read_to_end(&mut Vec::new());
        self.process.wait()?;
        Ok((account, records))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
