//! `lockctl run` as the first process of a container.

use std::process::{Command, Stdio};
use std::time::Duration;

use lock_testing::{RedisServer, Stopwatch, limit};

use crate::program::Ended;
use crate::run::{KEY, is_free, until};

/// Runs a script under a lock, in process 1 of a namespace. Returns nothing, and says so, where that is not permitted.
fn first(server: &RedisServer, options: &[&str], script: &str) -> Option<Command> {
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    if !Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status().is_ok_and(|it| it.success()) {
        println!("left out: unshare --pid is not permitted here");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(unshare).args(["env", "--default-signal", env!("CARGO_BIN_EXE_lockctl"), "run", KEY]);
    command.args(options).args(["--", "sh", "-c", script]).env("LOCK_URL", server.url());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Waits until no zombie is left.
const NO_ZOMBIE: &str = "while ps -A -o stat= | grep -q Z; do sleep 0.05; done";

#[test]
#[limit]
fn as_the_first_process_it_waits_for_orphans() {
    let server = RedisServer::start();
    let script =
        format!("for i in 1 2 3; do (sleep 0.01 &) ; (setsid sleep 0.01 &) ; done; sleep 0.2; {NO_ZOMBIE}; exit 5");
    let Some(mut command) = first(&server, &[], &script) else { return };
    let ended = end(&mut command);
    ended.assert_code(5);
    assert!(ended.stderr.is_empty() && is_free(&server), "{ended:?}");
}

#[test]
#[limit]
fn as_the_first_process_it_gives_the_lock_back_at_once() {
    let server = RedisServer::start();
    // Orphans that have ended; that end at once when they are asked; and that have left the group.
    for (script, says) in [
        ("(sleep 0.01 &); sleep 0.2; exit 5", ""),
        ("(sleep 600 &); exit 5", "left processes behind"),
        ("(setsid sleep 600 &); sleep 0.2; exit 5", ""),
    ] {
        let Some(mut command) = first(&server, &[], script) else { return };
        let watch = Stopwatch::start();
        let ended = end(&mut command);
        watch.assert_within(Duration::from_secs(4), "not the 10 s of the grace");
        ended.assert_code(5);
        assert!(ended.stderr.contains(says) && ended.stderr.is_empty() == says.is_empty(), "{ended:?}");
        assert!(!ended.stderr.contains("do not end") && is_free(&server), "{ended:?}");
    }
}

#[test]
#[limit]
fn as_the_first_process_it_is_ended_as_any_other() {
    let server = RedisServer::start();
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        for script in ["exec sleep 600", "kill -STOP $$; exec sleep 600", "(sleep 600 &); exec sleep 600"] {
            let Some(mut command) = first(&server, &[], script) else { return };
            let child = command.spawn().unwrap();
            until("it is held", || !is_free(&server));
            let children = format!("/proc/{0}/task/{0}/children", child.id());
            let first: u32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
            super::signal(first, name);
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{name}, {script}: {output:?}");
            assert!(is_free(&server));
        }
    }
}

/// The first process of a container may be one that waits for no orphans, above lockctl.
#[test]
#[limit]
fn below_a_first_process_that_waits_for_nobody_it_waits_for_orphans() {
    let server = RedisServer::start();
    let Some(_) = first(&server, &[], "") else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "python3", "-c"]);
    command.arg("import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))");
    command.args([
        env!("CARGO_BIN_EXE_lockctl"),
        "run",
        KEY,
        "--",
        "sh",
        "-c",
        "(sleep 0.01 &); (sleep 600 &); sleep 0.1; exit 5",
    ]);
    let watch = Stopwatch::start();
    let ended = end(command.env("LOCK_URL", server.url()).stdin(Stdio::null()));
    watch.assert_within(Duration::from_secs(4), "not the 10 s of the grace");
    ended.assert_code(5);
    assert!(!ended.stderr.contains("do not end") && is_free(&server), "{ended:?}");
}

/// Where `/proc` is missing, lockctl finds its own file by its name.
#[test]
#[limit]
fn without_proc_a_command_runs_or_the_message_names_it() {
    let server = RedisServer::start();
    let hide = ["--mount", "sh", "-c"];
    let run = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(hide).arg(format!("mount -t tmpfs none /proc && {line}")).env("LOCK_URL", server.url());
        end(command.env("LOCKCTL", env!("CARGO_BIN_EXE_lockctl")).stdin(Stdio::null()))
    };
    if run("true").code != Some(0) {
        println!("left out: unshare --mount is not permitted here");
        return;
    }
    let ended = run("exec \"$LOCKCTL\" run lock:backup -- sh -c '(sleep 600 &); echo ran; exit 5'");
    ended.assert_code(5);
    assert!(ended.stdout == "ran\n" && is_free(&server), "{ended:?}");
    let ended = run("exec bash -c 'exec -a no-such-name \"$LOCKCTL\" run lock:backup -- echo ran'");
    ended.assert_code(126);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("mount /proc"), "{ended:?}");
    assert!(is_free(&server));
}
