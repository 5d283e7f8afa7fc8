//! The process that holds the lock.

use std::path::Path;
use std::process::ExitCode;

use lock_core::store::JobVersion;
use lock_core::store::text::{human, visible};
use lock_core::{
    LockError, LockErrorKind, LockGuard, LockLabel, LockManager, LockManagerBuilder, ReleaseOutcome, Wait,
};
use rustix::process::kill_current_process_group;

use crate::args::{OnBusy, Run};
use crate::end::{SET_IT, complain, flush, run_to_end};
use crate::run::running::{self, Outcome, killed_by};
use crate::run::signals::Events;
use crate::run::{BUSY, LOST, NOT_EXECUTABLE, PATIENCE, UNAVAILABLE};
use crate::values;
use crate::waiting;

/// Takes the lock, runs the command, and returns the exit code.
pub(crate) fn run(url: &str, wanted: &Run) -> ExitCode {
    if url.starts_with("memory:") {
        complain(
            "locks in memory:// are seen by their own process only; name a store that processes share with --url or LOCK_URL",
        );
        return ExitCode::from(2);
    }
    // Connects with the request, whose wait covers that too.
    let locks = match LockManager::builder_for(url).and_then(LockManagerBuilder::build) {
        Ok(locks) => locks,
        Err(error) => {
            complain(&format!("{error}{SET_IT}"));
            return ExitCode::from(2);
        }
    };
    ExitCode::from(run_to_end(under_lock(&locks, wanted)).unwrap_or(UNAVAILABLE))
}

async fn under_lock(locks: &LockManager, wanted: &Run) -> u8 {
    // Before anything else, so that no signal is missed.
    let mut events = match Events::listen() {
        Ok(events) => events,
        Err(error) => {
            complain(&format!("cannot take signals: {error}"));
            return UNAVAILABLE;
        }
    };
    let taken = tokio::select! {
        biased;
        signal = events.end() => {
            flush();
            return killed_by(signal.as_raw());
        }
        taken = take_to_do(locks, wanted) => taken,
    };
    let guard = match taken {
        Ok(Some(guard)) => guard,
        Ok(None) => return 0,
        Err(error) => return refused(&error, wanted.on_busy),
    };
    let Outcome { code, key } = match running::start(wanted, &guard, &mut events) {
        Ok(run) => run.finish().await,
        Err(error) => {
            complain(&format!("the command was not run: {error}"));
            Outcome { code: NOT_EXECUTABLE, key: None }
        }
    };
    let code = match &wanted.once_for {
        Some(version) if code == 0 => marked(&guard, version).await,
        _ => code,
    };
    let code = release(guard, code).await;
    locks.shutdown(PATIENCE).await;
    if let Some(key) = key {
        // The terminal sent it to the command alone. A script that called this program ends with it too.
        let _ = kill_current_process_group(key);
    }
    code
}

/// Takes the lock, unless the command is done for its version, before or while the lock is waited for.
async fn take_to_do(locks: &LockManager, wanted: &Run) -> Result<Option<LockGuard>, LockError> {
    let Some(version) = &wanted.once_for else { return take(locks, wanted).await.map(Some) };
    match done(locks, wanted, version).await {
        Ok(true) => return Ok(None),
        Ok(false) => {}
        // The wait covers that too, and under the lock it is asked again.
        Err(error) if error.is_transient() => {}
        Err(error) => return Err(error),
    }
    let guard = take(locks, wanted).await?;
    match done(locks, wanted, version).await {
        Ok(false) => Ok(Some(guard)),
        known => {
            // An error is told by what is returned; the lock ends with its lease.
            let _ = guard.release().await;
            known.map(|_| None)
        }
    }
}

/// Asks whether the command is done for a version, and says so.
async fn done(locks: &LockManager, wanted: &Run, version: &JobVersion) -> Result<bool, LockError> {
    let Some(mark) = locks.done(key(locks, wanted), version.as_str()).await? else { return Ok(false) };
    complain(&visible(&format!(
        "{} is done for {version}, since {} by {}; the command was not run",
        wanted.key,
        human(mark.ago),
        mark.by,
    )));
    Ok(true)
}

/// Marks the command as done. Returns the code with which this ends.
async fn marked(guard: &LockGuard, version: &JobVersion) -> u8 {
    let Err(error) = guard.mark_done(version, None).await else { return 0 };
    complain(&error.to_string());
    if error.kind() == LockErrorKind::Lost { LOST } else { UNAVAILABLE }
}

/// Returns the key of the lock in its namespace.
fn key(locks: &LockManager, wanted: &Run) -> String {
    values::without(locks.key_prefix(), &wanted.key).to_owned()
}

async fn take(locks: &LockManager, wanted: &Run) -> Result<LockGuard, LockError> {
    let program = wanted.command.first().map(|program| Path::new(program).file_name().unwrap_or(program));
    let mut site = format!("lockctl run {}", program.unwrap_or_default().to_string_lossy());
    // No process exports metrics of this run: an inspector reads here when it counts as stuck.
    if let Some(age) = wanted.stuck_after {
        site += &format!(" (stuck after {}s)", age.as_secs().max(1));
    }
    let key = key(locks, wanted);
    let wait = if wanted.nonblock { Wait::None } else { wanted.wait };
    // The key is its own family: each command that is run so is a lock of its own in metrics.
    let label = LockLabel::new(key.clone());
    let request = if wanted.shared { locks.read(key) } else { locks.lock(key) };
    let mut request = request.with_ttl(wanted.ttl).with_wait(wait).with_site(site.leak()).with_label(label);
    if let Some(limit) = wanted.max_hold {
        request = request.with_max_hold(limit);
    }
    if let Some(least) = wanted.min_hold {
        request = request.with_min_hold(least);
    }
    let taken = request.on_waiting(waiting::tell).acquire().await;
    flush();
    taken
}

fn refused(error: &LockError, on_busy: OnBusy) -> u8 {
    let is_busy = matches!(error.kind(), LockErrorKind::Busy | LockErrorKind::Timeout);
    if is_busy && on_busy == OnBusy::Skip {
        return 0;
    }
    // On a command line a wait has a name.
    complain(&error.to_string().replace("set a wait to queue for it", "leave out -n, or set --wait, to queue for it"));
    match error.kind() {
        LockErrorKind::InvalidKey => 2,
        _ if is_busy => BUSY,
        _ => UNAVAILABLE,
    }
}

async fn release(guard: LockGuard, code: u8) -> u8 {
    if code == LOST {
        return code;
    }
    match guard.release().await {
        Ok(ReleaseOutcome::AlreadyLost(reason)) => {
            complain(&format!("the lock was lost: {reason}; by then the command had ended, or was about to"));
            LOST
        }
        Ok(_) => code,
        Err(error) => {
            complain(&format!("{error}; the command has ended"));
            code
        }
    }
}
