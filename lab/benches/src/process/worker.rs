//! A process that does a job: this same program, with the job as its input.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::process::job::Job;
use crate::process::load::Account;
use crate::process::record::{self, Record};

/// A process that hears and says lines. Killed if it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(job: &Job) -> Result<Self> {
        Self::start_under(&[], job)
    }

    /// Starts the process, under another program if one is named.
    pub(crate) fn start_under(under: &[String], job: &Job) -> Result<Self> {
        let (this, work) = (std::env::current_exe()?.into(), OsString::from("work"));
        let mut words = under.iter().map(OsString::from).chain([this, work]);
        let mut worker = Self::spawn(Command::new(words.next().unwrap_or_default()).args(words))?;
        worker.tell(job)?;
        Ok(worker)
    }

    /// Starts a part of this program with its arguments.
    pub(crate) fn part(arguments: &[&str]) -> Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).args(arguments))
    }

    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let output = BufReader::with_capacity(1 << 20, process.stdout.take().ok_or("a process has no output")?);
        Ok(Self { process, input, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        Ok(self.input.as_mut().ok_or("a process has no input")?.write_all(&line)?)
    }

    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        if self.line()? == "ready\n" { Ok(()) } else { Err("a process of the benchmark failed, see above".into()) }
    }

    /// Reads one answer.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| "a process of the benchmark failed, see above".into())
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Closes the input, and waits until the process has ended for that reason.
    pub(crate) fn end(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }

    /// Reads the account and the history until the process ends.
    pub(crate) fn account(mut self) -> Result<(Account, Vec<Record>)> {
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
