//! Signals and output of processes, and what waits for them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use lock_store::types::system::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to start, and to answer one command, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops a process as SIGSTOP does, and returns when all its threads stand still. Its connections and files stay open.
///
/// `kill` returns earlier: until the kernel has run one thread of the process, the other threads go on. On a busy
/// machine they can still take a lock, or send an answer. A process that has ended, and a system without `/proc`, is
/// not waited for.
///
/// # Panics
///
/// Panics if `process` is not the id of a process, or if it has not stopped within a minute.
pub fn freeze(process: u32) {
    // A process that has ended needs no signal.
    let _ = kill_process(pid(process), Signal::STOP);
    assert!(wait_until(|| stands_still(process)), "process {process} does not stop");
}

/// Lets a process go on, as SIGCONT does.
///
/// # Panics
///
/// Panics if `process` is not the id of a process.
pub fn thaw(process: u32) {
    let _ = kill_process(pid(process), Signal::CONT);
}

pub(crate) fn kill(process: u32) {
    let _ = kill_process(pid(process), Signal::KILL);
}

/// Stops a process and those that it has started. The parent would start others, so it is stopped first.
pub(crate) fn freeze_all(parent: u32) {
    freeze(parent);
    children(parent).for_each(freeze);
}

/// Lets a process and those that it has started go on, the parent last.
pub(crate) fn thaw_all(parent: u32) {
    children(parent).for_each(thaw);
    thaw(parent);
}

/// Returns the processes that a process has started and that have not ended.
fn children(process: u32) -> impl Iterator<Item = u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    children.into_iter()
}

fn stands_still(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        // The state is the word behind the name, and the name can contain brackets and blanks.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// Opens the standard error of this process anew, for a child. Node.js makes an inherited pipe non-blocking: if a test program and its
/// child shared the open file, later output of the program would be lost.
pub fn own_stderr() -> Stdio {
    fs::File::options().append(true).open("/dev/stderr").map_or_else(|_| Stdio::null(), Stdio::from)
}

fn pid(process: u32) -> Pid {
    i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process has a positive id")
}

/// Checks a condition every few milliseconds, until it holds or [`PATIENCE`] ends.
pub(crate) fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    loop {
        if holds() {
            return true;
        }
        if clock.now() >= end {
            return false;
        }
        #[expect(clippy::disallowed_methods, reason = "tests start and stop processes outside of any runtime")]
        std::thread::sleep(Duration::from_millis(5));
    }
}
