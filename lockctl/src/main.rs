//! `lockctl`: who holds which lock in the whole fleet, who waits, and a way to force one free.
//!
//! It reads the store and contacts no process. Text from outside is made safe for a terminal before it is printed.
//! Three commands are exceptions: `why` asks the live views it is given, `run` takes a lock itself, and runs a command
//! under it, and `dashboards` writes files and asks nobody. `acquire`, `renew`, `release` and `forget` change what the store says.

mod args;
mod audit;
mod commands;
mod end;
mod listing;
mod members;
mod output;
mod record;
#[cfg(unix)]
mod run;
mod screen;
mod values;
mod waiting;

use std::io::{self, Write as _};
use std::process::ExitCode;

use lock_core::inspect::FleetReader;
use lock_core::{LockError, LockErrorKind, LockKey};
// No unit test names a store. Without `not(test)`, their program links every store, at each change of a file.
#[cfg(all(not(test), feature = "kubernetes"))]
use lock_kubernetes as _; // enters the scheme
#[cfg(all(not(test), feature = "postgres"))]
use lock_postgres as _; // enters the scheme
#[cfg(all(not(test), feature = "redisson"))]
use lock_redisson as _; // enters the layout
#[cfg(all(not(test), feature = "zookeeper"))]
use lock_zookeeper as _; // enters the scheme

use crate::args::{Action, Args, Expected, generate};
use crate::commands::{
    contention, dashboards, doctor, forget, jobs, leader, lease, locks, quorum, release, topology, watch, why,
};
use crate::end::{End, Failure, SET_IT, complain, run_to_end};
use crate::output::Output;

fn main() -> ExitCode {
    let code = run_or_ask();
    end::flush();
    code
}

fn run_or_ask() -> ExitCode {
    // Another part of a `lockctl run`.
    #[cfg(unix)]
    if let Some(code) = run::play_part() {
        return code;
    }
    let args = Args::parse_or_exit();
    match &args.action {
        Action::Completions { shell } => written(io::stdout().write_all(&generate::completions(*shell))),
        Action::Man { out: Some(directory) } => written(generate::man_to(directory)),
        Action::Man { out: None } => written(generate::man().and_then(|page| io::stdout().write_all(&page))),
        Action::Dashboards(wanted) => match dashboards::dashboards(wanted, &mut Output::new(args.json)) {
            Ok(end) => ExitCode::from(end as u8),
            Err(error) => written(Err(error)),
        },
        #[cfg(unix)]
        Action::Run(wanted) => {
            audit::print_to_stderr();
            match args.url() {
                Ok(url) => run::run(&url, wanted),
                Err(error) => {
                    complain(&format!("{error}{SET_IT}"));
                    ExitCode::from(End::Usage as u8)
                }
            }
        }
        _ => ExitCode::from(ask(args) as u8),
    }
}

fn written(written: io::Result<()>) -> ExitCode {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write: {error}"));
            ExitCode::from(End::Unavailable as u8)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Runs a command that needs the store.
fn ask(args: Args) -> End {
    audit::print_to_stderr();
    let mut out = Output::new(args.json);
    let done = match args.url() {
        Ok(url) => match run_to_end(act(&url, args.action, &mut out)) {
            Some(done) => done,
            None => return End::Unavailable,
        },
        Err(error) => Err(Failure::Url(error)),
    };
    let (end, text) = match done {
        Ok(end) => return end,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return End::Ok,
        Err(Failure::Output(error)) => (End::Unavailable, format!("cannot write the output: {error}")),
        Err(Failure::Url(error)) => (End::Usage, format!("{error}{SET_IT}")),
        Err(Failure::Lock(error)) => {
            let end = match error.kind() {
                LockErrorKind::InvalidKey => End::Usage,
                LockErrorKind::Misconfigured => End::Refused,
                LockErrorKind::Busy | LockErrorKind::Timeout => End::Busy,
                _ => End::Unavailable,
            };
            (end, error.to_string().replace("set a wait to queue for it", "set --wait to queue for it"))
        }
    };
    if out.is_json() {
        // A caller that cannot read it reads the exit code.
        let _ = out.failure(&text, end as u8);
    }
    complain(&text);
    end
}

async fn act(url: &str, action: Action, out: &mut Output) -> Result<End, Failure> {
    if url.starts_with("memory:") {
        return Err(Failure::Url(LockError::misconfigured(
            "locks in memory:// are seen by their own process only, in its live view /locks; name a store that processes share",
        )));
    }
    let fleet = match &action {
        Action::Sync { key } => return quorum::sync(url, key, out).await,
        Action::Quorum { action } => return quorum::act(url, action, out).await,
        Action::Doctor => return doctor::doctor(url, out).await,
        Action::Topology => return topology::topology(url, out).await,
        Action::Acquire(wanted) => return lease::acquire(url, wanted, out).await,
        Action::Renew(wanted) => return lease::renew(url, wanted, out).await,
        Action::Release { key, expected: Expected { holder: Some(holder), .. }, reason, force } => {
            let force = reason.as_deref().filter(|_| *force);
            return lease::release(url, key, holder, force, out).await;
        }
        Action::Forget { key, version } => return forget::forget(url, key, version, out).await,
        _ => FleetReader::new(url).map_err(Failure::Url)?,
    };
    let fleet = &fleet;
    let named = |key: &LockKey| values::within(fleet.key_prefix(), key);
    let meant = async |key: &LockKey| -> Result<LockKey, Failure> {
        let key = named(key)?;
        let Some((meant, count)) = listing::key_of_name(fleet, &key).await? else { return Ok(key) };
        let (name, shown) =
            (lock_core::store::text::visible(key.as_str()), lock_core::store::text::visible(meant.as_str()));
        complain(&format!("{name} is the name of {count} locks that are held; this is {shown}"));
        Ok(meant)
    };
    match action {
        Action::Contention { views, scope } => contention::contention(fleet, &views, &scope, out).await,
        Action::List(wanted) => locks::list(fleet, &wanted, out).await,
        Action::Show { key } => locks::show(fleet, &meant(&key).await?, out).await,
        Action::Waiters { key } => locks::waiters(fleet, &meant(&key).await?, out).await,
        Action::Jobs(scope) => jobs::jobs(fleet, &scope, out).await,
        Action::Leader { name } => leader::leader(fleet, &named(&name)?, out).await,
        Action::Why { key, views } => why::why(&why::Store { fleet, url }, &meant(&key).await?, &views, out).await,
        Action::Watch { key, wanted } => {
            watch::watch(fleet, key.as_ref().map(named).transpose()?.as_ref(), &wanted, out).await
        }
        Action::Release { key, expected, reason, .. } => {
            release::release(fleet, &named(&key)?, &expected, &reason.unwrap_or_default(), out).await
        }
        _ => unreachable!("done without the store"),
    }
}
