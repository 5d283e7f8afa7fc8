//! Leases from a shell: several commands hold one lock.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_core::LockManager;
#[cfg(feature = "postgres")]
use lock_testing::PostgresServer;
use lock_testing::{RedisServer, limit};

use crate::program::{Ended, lockctl_at};

const KEY: &str = "deploy:prod";

/// Runs `lockctl release --force` with an answer to its question.
fn force(url: &str, answer: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
    command.args(["release", KEY, "--holder", "bob", "--force", "--reason", "INC-1"]).env("LOCK_URL", url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The life of a lease, each step by a process of its own.
fn a_deploy_of_several_steps(url: &str) {
    let ctl = |arguments: &[&str]| lockctl_at(url, arguments);
    let acquire = ["acquire", KEY, "--holder", "ann@ci-4711", "--ttl", "30m", "--reason", "release 42", "--json"];
    let taken = ctl(&acquire);
    taken.assert_code(0);
    let token = |ended: &Ended| ended.json()["token"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!((&taken.json()["holder"], &taken.json()["key"]), (&"ann@ci-4711".into(), &KEY.into()));
    assert!(taken.json()["expires_at_unix_seconds"].as_f64().unwrap() > 1.7e9);
    // The same holder once more: not a deadlock.
    let again = token(&ctl(&acquire));
    assert!(again > token(&taken));
    ctl(&["acquire", KEY, "--holder", "ann@ci-4711", "--exclusive-holder"]).assert_code(75);
    let renewed = ctl(&["renew", KEY, "--holder", "ann@ci-4711", "--ttl", "40m"]);
    renewed.assert_code(0);
    assert!(renewed.stdout.contains("is renewed by ann@ci-4711"), "{renewed:?}");
    let renewed = ctl(&["renew", KEY, "--holder", "ann@ci-4711", "--ttl", "40m", "--json"]);
    assert!(token(&renewed) >= again, "a token that is not older than that of the acquire: {renewed:?}");
    let shown = ctl(&["show", KEY, "--json"]).json();
    assert_eq!(shown["lease"], serde_json::json!({ "holder": "ann@ci-4711", "reason": "release 42" }));
    assert_eq!(shown["lock"], KEY, "the key is its own name in metrics");
    assert!(shown["ttl_left_seconds"].as_f64().unwrap() > 2000.0, "{shown}");
    for command in [&["show", KEY][..], &["list"], &["why", KEY]] {
        let told = ctl(command).stdout;
        assert!(told.contains("ann@ci-4711") && told.contains("release 42"), "{told}");
    }
    let shown = ctl(&["show", KEY]).stdout;
    assert!(shown.contains("lockctl release --holder") && !shown.contains("process alone"), "{shown}");
    // Another holder waits, and reads meanwhile who has it and why.
    let busy = ctl(&["acquire", KEY, "--holder", "bob", "--wait", "2s"]);
    busy.assert_code(75);
    let lines: Vec<&str> = busy.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "one message while it waits, and the error: {busy:?}");
    for part in ["waiting for deploy:prod for ", "by lease ann@ci-4711: release 42 (pid ", "; gives up in "] {
        assert!(lines[0].contains(part), "{part} in {busy:?}");
    }
    ctl(&["acquire", KEY, "--holder", "bob", "--wait", "none", "--json"]).assert_code(75);
    for command in ["renew", "release"] {
        let refused = ctl(&[command, KEY, "--holder", "bob"]);
        refused.assert_code(1);
        assert!(refused.stderr.contains("it is held by ann@ci-4711 (release 42)"), "{refused:?}");
    }
    let run = ctl(&["run", KEY, "--wait", "2s", "--", "true"]);
    run.assert_code(75);
    assert!(run.stderr.contains("lockctl: waiting for deploy:prod for "), "{run:?}");
    ctl(&["release", KEY, "--holder", "ann@ci-4711"]).assert_code(0);
    ctl(&["release", KEY, "--holder", "ann@ci-4711"]).assert_code(1);
    ctl(&["run", KEY, "--", "true"]).assert_code(0);
    // Taken away by force, which is recorded.
    ctl(&acquire).assert_code(0);
    force(url, "no\n").assert_code(1);
    force(url, "").assert_code(1);
    let forced = force(url, "yes\n");
    forced.assert_code(0);
    for part in ["audit: action=\"release\"", "reason=\"INC-1\"", "outcome=\"released\"", "Take it away?"] {
        assert!(forced.stderr.contains(part), "{part} in {forced:?}");
    }
    assert!(forced.stdout.contains("taken from ann@ci-4711 (release 42)"), "{forced:?}");
    ctl(&["show", KEY]).assert_code(1);
}

#[test]
#[limit]
fn a_lease_spans_several_commands_on_redis() {
    a_deploy_of_several_steps(&RedisServer::start().url());
}

#[cfg(feature = "postgres")]
#[test]
#[limit]
fn a_lease_spans_several_commands_on_postgres() {
    let server = PostgresServer::start();
    // An acquire makes the tables, as the first program of a fleet does.
    a_deploy_of_several_steps(&server.url());
}

#[test]
#[limit]
fn mistakes_on_the_command_line_are_named() {
    let server = RedisServer::start();
    for (arguments, part) in [
        (&["acquire", KEY][..], "--holder"),
        (&["acquire", KEY, "--holder", "a b"], "no spaces"),
        (&["acquire", KEY, "--holder", "a", "--ttl", "31d"], "at most 30d"),
        (&["release", KEY, "--holder", "a", "--force"], "--reason"),
        (&["release", KEY, "--reason", "r", "--force"], "--holder"),
        (&["release", KEY, "--expect-owner", &"1".repeat(32)], "--reason"),
    ] {
        let ended = lockctl_at(&server.url(), arguments);
        ended.assert_code(2);
        assert!(ended.stderr.contains(part), "{part} in {ended:?}");
    }
}

/// A guard is held by a process. No name of a lease frees it without force.
#[tokio::test]
#[limit]
async fn a_guard_is_not_released_by_name() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock(KEY).with_site("lease bob").with_ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let refused = lockctl_at(&server.url(), &["release", KEY, "--holder", "bob"]);
    refused.assert_code(1);
    assert!(guard.ensure_held().is_ok());
    guard.release().await.unwrap();
}
