//! Tests `lockctl run` with real commands, signals and servers. Known problems of `consul lock`, by the numbers of
//! their threads, have tests here.

mod ended;
mod first;
mod killed;
mod refused;
mod secrets;
mod terminal;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lock_core::Clock;
use lock_testing::{RedisServer, Reply, Stopwatch, limit};

use crate::program::{Ended, lockctl, lockctl_at};
use crate::take;

const KEY: &str = "lock:backup";

/// A run in progress. Killed when this is dropped.
struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

fn start(server: &RedisServer, arguments: &[&str]) -> Run {
    // The parent of the tests may ignore signals itself, as `nohup` does, and they stay ignored.
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
        .arg(env!("CARGO_BIN_EXE_lockctl"))
        .args(["run", KEY])
        .args(arguments)
        .env("LOCK_URL", server.url())
        .stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Run { child, stdout }
}

impl Run {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line that the command writes.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end, which also means that no process is left that could write.
    fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout, stderr }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Whether a process exists and is not a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test that looks at other processes, without a runtime")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Clock::system().now();
    while !is_so() {
        assert!(Clock::system().now().since(begun) < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The parts of a run, by their arguments.
fn part_of(parent: u32, name: &str) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let is_part = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(name.as_bytes()))
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_part).unwrap()
}

fn is_free(server: &RedisServer) -> bool {
    server.command(&["EXISTS", KEY]) == Reply::Int(0)
}

/// A command that starts another, prints its process id, and waits for it.
const FAMILY: &str = "sleep 600 & echo $!; wait";

#[test]
#[limit]
fn the_command_learns_its_token_and_its_code_is_ours() {
    let server = RedisServer::start();
    let run = |script: &str| lockctl(&server, &["run", KEY, "--", "sh", "-c", script]);
    let ended = run("echo \"$LOCK_KEY $LOCK_TOKEN $LOCK_DEADLINE\"; exit 7");
    ended.assert_code(7);
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let [key, token, deadline] = words[..] else { panic!("{ended:?}") };
    assert_eq!(key, KEY);
    let deadline: u64 = deadline.parse().unwrap();
    let time = server.command(&["EVAL", "return redis.call('TIME')[1]", "0"]);
    let now = time.text().parse::<u64>().unwrap() * 1000;
    assert!((now - 60_000..now + 60_000).contains(&deadline), "{deadline} at {now}");
    assert!(is_free(&server) && ended.stderr.is_empty(), "{ended:?}");
    let next: i64 = run("echo $LOCK_TOKEN").stdout.trim().parse().unwrap();
    assert!(next > token.parse().unwrap());
    run("kill -KILL $$").assert_code(137);
    run("kill -TERM $$").assert_code(143);
    assert!(is_free(&server));
}

#[test]
#[limit]
fn who_holds_it_is_seen_by_others() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", "echo ready; sleep 600"]);
    assert_eq!(run.line(), "ready");
    let shown = lockctl(&server, &["show", KEY]).stdout;
    assert!(shown.contains("lockctl run sh") && shown.contains(&format!("pid {} on ", run.pid())), "{shown}");
    run.signal("TERM");
    run.end().assert_code(143);
}

#[tokio::test]
#[limit]
async fn busy_is_a_code_of_its_own_or_no_error() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, KEY).await;
    let ended = lockctl(&server, &["run", KEY, "--wait", "none", "--", "echo", "inside"]);
    ended.assert_code(75);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("shop::charge"), "{ended:?}");
    // A command that may be skipped does not wait, unless `--wait` says so: otherwise every host would run the job, one after the other.
    for wait in [&[][..], &["--wait", "1s"]] {
        let watch = Stopwatch::start();
        let words = [&["run", KEY, "--on-busy", "skip"], wait, &["--", "echo", "inside"]].concat();
        let ended = lockctl(&server, &words);
        ended.assert_code(0);
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{ended:?}");
        watch.assert_within(Duration::from_secs(4), "skipping, not the 5 s of who waits");
    }
}

#[test]
#[limit]
fn what_cannot_be_run_leaves_nothing_locked() {
    let mut server = RedisServer::start();
    let ended = lockctl(&server, &["run", KEY, "--", "no-such-command"]);
    ended.assert_code(127);
    assert!(ended.stderr.contains("cannot run no-such-command"), "{ended:?}");
    lockctl(&server, &["run", KEY, "--", "/dev/null"]).assert_code(126);
    assert!(is_free(&server));
    server.command(&["HSET", KEY, "a", "b"]);
    lockctl(&server, &["run", KEY, "--", "echo", "inside"]).assert_code(69);
    let url = server.url();
    server.kill();
    let ended = lockctl_at(&url, &["run", KEY, "--", "echo", "inside"]);
    ended.assert_code(69);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("check that the server runs"), "{ended:?}");
}

#[test]
#[limit]
fn consul_797_and_2489_every_signal_reaches_the_command() {
    let server = RedisServer::start();
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("TERM", 15)] {
        let script = format!("trap 'echo got {name}; exit 3' {name}; echo $$; while :; do sleep 0.05; done");
        let mut run = start(&server, &["--", "sh", "-c", &script]);
        let command: u32 = run.line().parse().unwrap();
        run.signal(name);
        assert_eq!(run.line(), format!("got {name}"));
        run.end().assert_code(3);
        assert!(!is_alive(command) && is_free(&server), "{name}");

        // A command that handles no signals is ended by it, and so is what it started.
        let mut run = start(&server, &["--", "sh", "-c", "sleep 600 & echo $!; exec sleep 600"]);
        let other: u32 = run.line().parse().unwrap();
        run.signal(name);
        run.end().assert_code(128 + number);
        assert!(!is_alive(other) && is_free(&server), "{name}");
    }
}

#[test]
#[limit]
fn what_nohup_ignores_stays_ignored_by_both() {
    let server = RedisServer::start();
    let mut shell = Command::new("sh");
    let line = "trap '' HUP INT; exec \"$0\" run backup -- sh -c 'kill -HUP $$; kill -INT $$; echo on; exec sleep 600'";
    shell.args(["-c", line]).arg(env!("CARGO_BIN_EXE_lockctl")).env("LOCK_URL", server.url());
    let mut child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut run = Run { child, stdout };
    assert_eq!(run.line(), "on", "the command ignores them");
    run.signal("HUP");
    run.signal("INT");
    run.signal("TERM");
    // The command was ended by the last: the others reached nobody.
    run.end().assert_code(128 + 15);
}

#[test]
#[limit]
fn a_wait_covers_a_server_that_stands_still() {
    let server = RedisServer::start();
    server.pause();
    for wait in ["300ms", "1s"] {
        let watch = Stopwatch::start();
        let ended = lockctl(&server, &["run", "k", "--wait", wait, "--", "true"]);
        watch.assert_within(Duration::from_millis(1500), wait);
        ended.assert_code(69);
        assert!(ended.stderr.contains("did not answer"), "{ended:?}");
    }
    server.resume();
}

#[test]
#[limit]
fn consul_2022_the_group_is_ended_when_the_lock_is_lost_not_the_shell_alone() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", FAMILY]);
    let other: u32 = run.line().parse().unwrap();
    server.command(&["DEL", KEY]);
    let ended = run.end();
    ended.assert_code(76);
    assert!(ended.stderr.contains("was lost: its key was deleted or taken by another client"), "{ended:?}");
    assert!(!is_alive(other));
}

#[tokio::test]
#[limit]
async fn consul_4439_signals_are_heeded_while_it_waits() {
    let server = RedisServer::start();
    let (_locks, guard) = take(&server, KEY).await;
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let run = start(&server, &["--wait", "forever", "--", "echo", "inside"]);
        let waiting = || lockctl(&server, &["waiters", KEY, "--json"]).json()["waiters"].as_array().unwrap().len();
        until("it waits", || waiting() == 1);
        run.signal(name);
        let ended = run.end();
        ended.assert_code(code);
        assert!(ended.stdout.is_empty(), "{ended:?}");
        // And it leaves the queue.
        assert_eq!(waiting(), 0);
    }
    guard.release().await.unwrap();
    assert!(is_free(&server));
}

#[test]
#[limit]
fn consul_9788_the_command_is_ended_when_the_lease_is_and_not_when_the_server_says_so() {
    let server = RedisServer::start();
    let mut run = start(
        &server,
        &["--ttl", "2s", "--", "sh", "-c", "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done"],
    );
    assert_eq!(run.line(), "ready");
    server.pause();
    // The server is silent from now on: it sends neither an answer nor the end of a connection.
    assert_eq!(run.line(), "asked");
    let ended = run.end();
    server.resume();
    ended.assert_code(76);
    assert!(ended.stderr.contains("could not be reached"), "{ended:?}");
}

#[test]
#[limit]
fn who_does_not_end_is_killed_after_the_grace() {
    let server = RedisServer::start();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let mut run = start(&server, &["--grace", "100ms", "--", "sh", "-c", script]);
    let command: u32 = run.line().parse().unwrap();
    server.command(&["DEL", KEY]);
    run.end().assert_code(76);
    assert!(!is_alive(command));
}

#[test]
#[limit]
fn the_lock_is_renewed_while_the_command_runs_and_not_beyond_its_limit() {
    let server = RedisServer::start();
    let ended = lockctl(&server, &["run", KEY, "--ttl", "1s", "--", "sleep", "2.5"]);
    ended.assert_code(0);
    assert!(ended.stderr.is_empty() && is_free(&server), "{ended:?}");
    let ended = lockctl(&server, &["run", KEY, "--max-hold", "300ms", "--", "sleep", "600"]);
    ended.assert_code(76);
    assert!(ended.stderr.contains("max_hold"), "{ended:?}");
    lockctl(&server, &["run", KEY, "--min-hold", "20s", "--", "true"]).assert_code(0);
    assert_eq!(lockctl(&server, &["show", KEY, "--json"]).json()["state"], "kept");
}

#[test]
#[limit]
fn what_the_command_leaves_behind_is_ended_before_the_lock_is_released() {
    let server = RedisServer::start();
    let ended = lockctl(&server, &["run", KEY, "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!; exit 5"]);
    ended.assert_code(5);
    assert!(!is_alive(ended.stdout.trim().parse().unwrap()) && is_free(&server));
    assert!(ended.stderr.contains("left processes behind"), "{ended:?}");
}

#[test]
#[limit]
fn an_operator_who_takes_the_lock_away_is_named() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(run.line(), "ready");
    crate::until_it_listens(&server);
    let owner = crate::shown_owner(&server, KEY);
    lockctl(&server, &["release", KEY, "--expect-owner", &owner, "--reason", "a | test"]).assert_code(0);
    let ended = run.end();
    ended.assert_code(76);
    for part in ["action=\"revoked\"", "actor=\"ana@", "reason=\"a | test\"", "it was revoked"] {
        assert!(ended.stderr.contains(part), "{part} in {ended:?}");
    }
}

#[test]
#[limit]
fn in_the_foreground_the_command_stays_in_our_group() {
    let server = RedisServer::start();
    let group = "cut -d' ' -f5 /proc/self/stat";
    let own = lockctl(
        &server,
        &["run", KEY, "--foreground", "--", "sh", "-c", &format!("{group}; cut -d' ' -f5 /proc/$PPID/stat")],
    );
    let lines: Vec<&str> = own.stdout.lines().collect();
    assert_eq!(lines[0], lines[1], "{own:?}");
    let apart = lockctl(&server, &["run", KEY, "--", "sh", "-c", &format!("{group}; cut -d' ' -f5 /proc/$PPID/stat")]);
    let lines: Vec<&str> = apart.stdout.lines().collect();
    assert_ne!(lines[0], lines[1], "{apart:?}");
    let mut run = start(&server, &["--foreground", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(run.line(), "ready");
    server.command(&["DEL", KEY]);
    run.end().assert_code(76);
}

#[tokio::test]
#[limit]
async fn a_run_is_a_lock_of_its_own_and_says_when_it_is_stuck() {
    let server = RedisServer::start();
    for (options, site) in
        [(&[][..], "lockctl run sh"), (&["--stuck-after", "2h"], "lockctl run sh (stuck after 7200s)")]
    {
        let arguments = [options, &["--", "sh", "-c", "echo started; exec sleep 600"]].concat();
        let mut run = start(&server, &arguments);
        assert_eq!(run.line(), "started");
        let fleet = lock_core::inspect::FleetReader::new(&server.url()).unwrap();
        let entry = fleet.entry(&lock_core::LockKey::new(KEY).unwrap()).await.unwrap().unwrap();
        assert_eq!((entry.holder.site(), entry.holder.lock()), (site, Some(KEY)));
        run.signal("TERM");
        run.end();
    }
}
