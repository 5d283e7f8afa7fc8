//! Processes that are stopped where they are, and go on later.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::servers::server::wait_until;

/// Stops a process as SIGSTOP does, and returns when all its threads stand still. Its connections and files stay open.
///
/// `kill` returns earlier: until the kernel has run one thread of the process, the other threads go on. On a busy
/// machine they can still take a lock, or send an answer. A process that has ended, and a system without `/proc`, is
/// not waited for.
///
/// # Panics
///
/// Panics if `process` is not the id of a process.
pub fn freeze(process: u32) {
    // A process that has ended needs no signal.
    let _ = kill_process(pid(process), Signal::STOP);
    wait_until(|| stands_still(process));
}

/// Lets a process go on, as SIGCONT does.
///
/// # Panics
///
/// Panics if `process` is not the id of a process.
pub fn thaw(process: u32) {
    let _ = kill_process(pid(process), Signal::CONT);
}

fn stands_still(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        // The state is the word behind the name, and the name can contain brackets and blanks.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    })
}

fn pid(process: u32) -> Pid {
    i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process has a positive id")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_frozen_process_answers_after_it_was_thawed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        freeze(child.id());
        child.stdin.as_mut().unwrap().write_all(b"told\n").unwrap();
        assert!(stands_still(child.id()));
        thaw(child.id());
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "told\n");
        assert!(!stands_still(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        freeze(child.id());
    }
}
