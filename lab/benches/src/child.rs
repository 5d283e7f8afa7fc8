//! A process that hears and says lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};

use lock_testing::own_stderr;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// The process. Killed if it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    input: Option<ChildStdin>,
    pub(crate) output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(own_stderr()).spawn()?;
        let input = process.stdin.take();
        let output = BufReader::with_capacity(1 << 20, process.stdout.take().ok_or("a process has no output")?);
        Ok(Self { process, input, output })
    }

    /// Starts a part of this program with its arguments.
    pub(crate) fn part(arguments: &[&str]) -> Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).args(arguments))
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
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
