//! A process that does a job: this same program, with the job as its input.

use std::ffi::OsString;
use std::io::Read;
use std::process::Command;

use crate::Result;
use crate::child::Child;
use crate::process::job::Job;
use crate::process::load::Account;
use crate::process::record::{self, Record};

pub(crate) fn start(job: &Job) -> Result<Child> {
    start_under(&[], job)
}

/// Starts the process, under another program if one is named.
pub(crate) fn start_under(under: &[String], job: &Job) -> Result<Child> {
    let (this, work) = (std::env::current_exe()?.into(), OsString::from("work"));
    let mut words = under.iter().map(OsString::from).chain([this, work]);
    let mut worker = Child::spawn(Command::new(words.next().unwrap_or_default()).args(words))?;
    worker.tell(job)?;
    Ok(worker)
}

/// Reads the account and the history of a process, until it ends.
pub(crate) fn account(mut worker: Child) -> Result<(Account, Vec<Record>)> {
    let account: Account = worker.answer()?;
    let records = record::read(&mut worker.output, account.records)?;
    let _ = worker.output.read_to_end(&mut Vec::new());
    worker.end();
    Ok((account, records))
}
