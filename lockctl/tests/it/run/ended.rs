//! The command can always be ended, and the lock is then given back.

use std::io::{BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_testing::{RedisServer, Stopwatch, limit};

use crate::run::{KEY, Run, is_alive, is_free, part_of, signal, start, until};

/// Whether a process is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[test]
#[limit]
fn a_command_that_is_stopped_gets_each_signal() {
    let server = RedisServer::start();
    for options in [&[][..], &["--foreground"]] {
        for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15), ("USR1", 10), ("USR2", 12)] {
            // No shell could continue the group of lockctl, in which the kernel ignores the others.
            for stop in if options.is_empty() { &["STOP", "TTIN", "TTOU", "TSTP"][..] } else { &["STOP"] } {
                let mut run = start(&server, &[options, &["--", "sh", "-c", "echo $$; exec sleep 600"]].concat());
                let command: u32 = run.line().parse().unwrap();
                signal(command, stop);
                until("the command is stopped", || is_stopped(command));
                run.signal(name);
                run.end().assert_code(128 + number);
                assert!(!is_alive(command) && is_free(&server), "{stop}, then {name}");
            }
        }
    }
}

#[test]
#[limit]
fn the_grace_counts_from_the_first_signal_and_ends_all_that_the_command_started() {
    let server = RedisServer::start();
    let deaf =
        "trap '' HUP INT QUIT TERM; (while :; do sleep 0.05; done) & echo $$; echo $!; while :; do sleep 0.05; done";
    for name in ["HUP", "INT", "QUIT", "TERM"] {
        for is_stopped_before in [false, true] {
            let mut run = start(&server, &["--grace", "200ms", "--", "sh", "-c", deaf]);
            let [command, other]: [u32; 2] = [(); 2].map(|()| run.line().parse().unwrap());
            if is_stopped_before {
                signal(command, "STOP");
                until("the command is stopped", || is_stopped(command));
            }
            // More signals do not put it off, however long they go on.
            let watch = Stopwatch::start();
            while run.child.try_wait().unwrap().is_none() && watch.elapsed() < Duration::from_secs(10) {
                run.signal(name);
            }
            run.end().assert_code(137);
            watch.assert_within(Duration::from_secs(5), "the grace is 200 ms");
            assert!(!is_alive(command) && !is_alive(other) && is_free(&server), "{name}");
        }
    }
    // Signals that do not ask for an end do not count.
    let mut run = start(
        &server,
        &["--grace", "0s", "--", "sh", "-c", "trap 'echo usr' USR1; echo on; while :; do sleep 0.05; done"],
    );
    assert_eq!(run.line(), "on");
    for _ in 0..2 {
        run.signal("USR1");
        assert_eq!(run.line(), "usr");
    }
    run.signal("TERM");
    run.end();
}

#[test]
#[limit]
fn a_stop_and_its_end_reach_the_command_through_lockctl() {
    let server = RedisServer::start();
    // Without a shell that could continue it, TSTP stops nothing.
    let mut run = start(&server, &["--", "sh", "-c", "echo $$; while :; do echo on; sleep 0.05; done"]);
    let command: u32 = run.line().parse().unwrap();
    signal(command, "STOP");
    until("the command is stopped", || is_stopped(command));
    run.signal("CONT");
    until("the command goes on", || !is_stopped(command));
    run.signal("TERM");
    let ended = run.end();
    ended.assert_code(143);
    assert!(ended.stderr.contains("was stopped by signal 19; the lock is held until it ends: kill -CONT"), "{ended:?}");
    assert!(is_free(&server));
}

#[test]
#[limit]
fn a_command_that_is_stopped_when_the_lock_is_lost_is_ended() {
    let server = RedisServer::start();
    for script in ["echo $$; exec sleep 600", "trap '' TERM; echo $$; while :; do sleep 0.05; done"] {
        // By the holder, and while that is stopped itself by the sentinel.
        for is_holder_stopped in [false, true] {
            let mut run = start(&server, &["--ttl", "1s", "--grace", "200ms", "--", "sh", "-c", script]);
            let command: u32 = run.line().parse().unwrap();
            signal(command, "STOP");
            until("the command is stopped", || is_stopped(command));
            if is_holder_stopped {
                run.signal("STOP");
                until("the command is dead", || !is_alive(command));
                run.signal("CONT");
            } else {
                server.command(&["DEL", KEY]);
            }
            run.end().assert_code(76);
            assert!(!is_alive(command), "{script}");
        }
    }
}

/// Returns whether a process blocks TERM. It inherits the blocked TTOU of the one that started it.
fn blocks_term(pid: u32) -> bool {
    const TERM: u64 = 1 << 14;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(blocked.trim(), 16).unwrap() & TERM != 0
}

#[test]
#[limit]
fn a_sentinel_that_is_stopped_or_asked_to_end_keeps_nobody() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", "echo $$; exec sleep 600"]);
    let command: u32 = run.line().parse().unwrap();
    let sentinel = part_of(run.pid(), "@sentinel");
    // It blocks signals as the first thing that it does. On a busy machine the command may be there before.
    until("the sentinel blocks signals", || blocks_term(sentinel));
    for name in ["TERM", "INT", "HUP"] {
        signal(sentinel, name);
    }
    signal(sentinel, "STOP");
    until("the sentinel is stopped", || is_stopped(sentinel));
    run.signal("TERM");
    run.end().assert_code(143);
    assert!(!is_alive(command) && !is_alive(sentinel) && is_free(&server));
}

/// Starts a run whose standard error is what a shell makes of it.
fn start_with(server: &RedisServer, redirection: &str, options: &str, script: &str) -> Run {
    let mut shell = Command::new("bash");
    let line = format!("exec env --default-signal \"$0\" run {KEY} {options} -- sh -c '{script}' {redirection}");
    shell.args(["-c", &line]).arg(env!("CARGO_BIN_EXE_lockctl")).env("LOCK_URL", server.url());
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Run { child, stdout }
}

#[test]
#[limit]
fn no_message_that_cannot_be_written_keeps_the_command_alive() {
    let server = RedisServer::start();
    // Closed; a pipe without a reader; and a pipe that is full and that nobody reads.
    for redirection in ["2>&-", "2> >(exec <&-; sleep 600 >/dev/null 2>&1)", "2> >(sleep 600 >/dev/null 2>&1)"] {
        let fill = "for i in $(seq 100); do timeout 0.1 head -c 65536 /dev/zero >&2 || break; done";
        for is_holder_stopped in [false, true] {
            let script = format!("echo $$; {fill}; echo full; trap \"\" TERM; while :; do sleep 0.05; done");
            let mut run = start_with(&server, redirection, "--ttl 1s --grace 200ms", &script);
            let command: u32 = run.line().parse().unwrap();
            assert_eq!(run.line(), "full");
            if is_holder_stopped {
                run.signal("STOP");
                until("the command is dead", || !is_alive(command));
                run.signal("CONT");
            } else {
                server.command(&["DEL", KEY]);
                until("the command is dead", || !is_alive(command));
            }
            assert_eq!(run.child.wait().unwrap().code(), Some(76), "{redirection}");
            until("the lock is free", || is_free(&server));
        }
    }
}

#[test]
#[limit]
fn what_a_command_leaves_with_its_output_open_keeps_nobody() {
    let server = RedisServer::start();
    // A daemon has left the group and has the output: the lock is given back, and lockctl ends.
    let script =
        "setsid sh -c \"echo \\$\\$; exec sleep 600\" & until [ $(ps -o sid= -p $!) = $! ]; do :; done; exit 3";
    let mut run = start_with(&server, "", "", script);
    let daemon: u32 = run.line().parse().unwrap();
    assert_eq!(run.child.wait().unwrap().code(), Some(3));
    assert!(is_alive(daemon) && is_free(&server));
    signal(daemon, "KILL");
    let mut rest = String::new();
    run.stdout.read_to_string(&mut rest).unwrap();
}
