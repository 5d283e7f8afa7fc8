//! `lockctl`: who holds which lock in the whole fleet, who waits, and the way to force one free.
//!
//! It reads Redis and asks no process. What it prints of others is made fit for a terminal first.

mod args;
mod audit;
mod commands;
mod output;
mod record;
#[path = "../../text.rs"]
mod text;
mod watch;

use std::io;
use std::process::ExitCode;

use lock_core::inspect::FleetReader;
use lock_core::{LockError, LockErrorKind};

use crate::args::{Action, Args};
use crate::output::Output;
use crate::text::visible;

/// How a command ended; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ok = 0,
    /// Not found, or not held by the owner that was named.
    NotFound = 1,
    Usage = 2,
    Unavailable = 3,
}

/// Why a command could not go on.
enum Failure {
    Lock(LockError),
    /// Whoever reads our output has gone, or the disk is full.
    Output(io::Error),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    let args = Args::parse_or_exit();
    ExitCode::from(run(args) as u8)
}

fn run(args: Args) -> End {
    audit::print_to_stderr();
    let fleet = match FleetReader::new(&args.url) {
        Ok(fleet) => fleet,
        Err(error) => {
            complain(&format!("{error} (set it with --url or LOCK_URL)"));
            return End::Usage;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start: {error}; raise the limit of open files"));
            return End::Unavailable;
        }
    };
    let mut out = Output::new(args.json);
    match runtime.block_on(act(&fleet, args.action, &mut out)) {
        Ok(end) => end,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => End::Ok,
        Err(Failure::Output(error)) => {
            complain(&format!("cannot write the output: {error}"));
            End::Unavailable
        }
        Err(Failure::Lock(error)) => {
            complain(&error.to_string());
            if error.kind() == LockErrorKind::InvalidKey { End::Usage } else { End::Unavailable }
        }
    }
}

async fn act(fleet: &FleetReader, action: Action, out: &mut Output) -> Result<End, Failure> {
    match action {
        Action::List(wanted) => commands::list(fleet, &wanted, out).await,
        Action::Show { key } => commands::show(fleet, &key, out).await,
        Action::Waiters { key } => commands::waiters(fleet, &key, out).await,
        Action::Watch { key, wanted } => watch::watch(fleet, key.as_ref(), &wanted, out).await,
        Action::Release { key, expect_owner, reason } => {
            commands::release(fleet, &key, expect_owner, &reason, out).await
        }
    }
}

/// Tells a person what went wrong.
fn complain(what: &str) {
    eprintln!("lockctl: {}", visible(what));
}
