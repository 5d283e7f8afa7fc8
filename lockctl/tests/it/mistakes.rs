//! Mistakes in the URL, the environment or the command line are reported with their own code, as JSON for programs, and
//! without a password.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use lock_core::LockManager;
use lock_core::testing::{RedisServer, limit};

use crate::program::{Ended, lockctl, lockctl_at};
use crate::take;

/// Runs it with only these variables of ours.
fn bare(arguments: &[&str], variables: &[(&str, &OsStr)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
    for name in ["LOCK_URL", "LOCK_KEY_PREFIX", "LOCK_LIVE_VIEW"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
#[limit]
fn without_a_url_nothing_is_asked() {
    for arguments in [&["list"][..], &["why", "k"], &["topology"], &["run", "k", "--", "true"]] {
        for url in ["", " "] {
            let ended = bare(arguments, &[("LOCK_URL", OsStr::new(url))]);
            ended.assert_code(2);
            assert!(ended.stderr.contains("no store is named") && ended.stderr.contains("LOCK_URL"), "{ended:?}");
        }
    }
    bare(&["completions", "bash"], &[]).assert_code(0);
}

#[test]
#[limit]
fn a_url_that_makes_no_sense_is_a_mistake_and_no_outage() {
    for url in ["http://h", "memory://", "h:6379", "redis://h?ttl=1s", "redlock://a,b", "redis://h?key_prefix=a"] {
        for arguments in [&["list"][..], &["show", "k"], &["topology"], &["run", "k", "--", "true"]] {
            let ended = lockctl_at(url, arguments);
            ended.assert_code(2);
            assert!(!ended.stderr.is_empty() && ended.stdout.is_empty(), "{url}: {ended:?}");
        }
    }
}

#[test]
#[limit]
fn a_url_of_another_scheme_is_told_what_there_is() {
    for (url, says) in [("http://h", "redlock://host,host,host"), ("memory://", "seen by their own process only")] {
        for arguments in [&["list"][..], &["topology"], &["run", "k", "--", "true"]] {
            let ended = lockctl_at(url, arguments);
            assert!(ended.stderr.contains(says), "{says}: {ended:?}");
        }
    }
}

/// The library refuses such a server: nothing is ever locked through this URL.
#[test]
#[limit]
fn a_url_of_a_cluster_that_is_none_is_refused() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "redis+cluster://");
    let owner = "5f".repeat(16);
    for arguments in [
        &["list"][..],
        &["jobs"],
        &["list", "--json"],
        &["show", "k"],
        &["why", "k"],
        &["waiters", "k"],
        &["leader", "k"],
        &["release", "k", "--expect-owner", &owner, "--reason", "x"],
        &["release", "k", "--expect-value", "x", "--reason", "x"],
        &["run", "k", "--", "true"],
    ] {
        let ended = lockctl_at(&url, arguments);
        ended.assert_code(if arguments[0] == "run" { 69 } else { 4 });
        assert!(ended.stderr.contains("is no node of a cluster; write redis://"), "{arguments:?}: {ended:?}");
    }
}

#[test]
#[limit]
fn errors_are_json_for_programs() {
    // Port 1 does not have a listener.
    for (url, arguments, code) in [
        ("redis://127.0.0.1:1", &["list", "--json"][..], 3),
        ("redis://127.0.0.1:1", &["--json", "show", "k"], 3),
        ("http://h", &["list", "--json"], 2),
        ("redis://h", &["lst", "--json"], 2),
    ] {
        let ended = lockctl_at(url, arguments);
        ended.assert_code(code);
        let document = ended.json();
        assert_eq!(document["exit_code"], code, "{ended:?}");
        assert!(document["error"].as_str().is_some_and(|text| text.len() > 5), "{ended:?}");
    }
}

#[tokio::test]
#[limit]
async fn the_environment_is_read_as_the_library_reads_it() {
    let server = RedisServer::start();
    let (url, show) = (server.url(), ["show", "k", "--json"]);
    let locks = LockManager::builder_for(&url).unwrap().key_prefix("prod:").build().unwrap();
    let _guard = locks.lock("k").await.unwrap();
    let within = |prefix: &OsStr| bare(&show, &[("LOCK_URL", OsStr::new(&url)), ("LOCK_KEY_PREFIX", prefix)]);
    let seen = within(OsStr::new("prod:"));
    seen.assert_code(0);
    assert_eq!(seen.json()["key"], "prod:k");
    // Not set.
    within(OsStr::new(" ")).assert_code(1);
    let ended = within(OsStr::from_bytes(b"\xff:"));
    ended.assert_code(2);
    assert!(ended.stderr.contains("LOCK_KEY_PREFIX is not text"), "{ended:?}");
    // Neither of them takes what a URL cannot carry.
    for prefix in ["a&b:", "a#b:", "a?b:", "a@b:", "prod:&b:", "prod:&", "prod:#b:"] {
        within(OsStr::new(prefix)).assert_code(2);
        assert!(LockManager::builder_for(&url).unwrap().key_prefix(prefix).build().is_err(), "{prefix}");
    }
}

#[tokio::test]
#[limit]
async fn strings_of_other_clients_are_counted_below_the_table() {
    let server = RedisServer::start();
    let (_locks, _guard) = take(&server, "lock:user:42").await;
    for key in ["other:1", "other:2"] {
        server.command(&["SET", key, "nonce", "PX", "600000"]);
    }
    let ended = lockctl(&server, &["list"]);
    assert!(
        ended.stdout.contains("1 lock on ") && ended.stdout.contains("2 strings may be locks of other"),
        "{ended:?}"
    );
}

#[tokio::test]
#[limit]
async fn flags_of_flock_mean_the_same() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.read("k").await.unwrap();
    lockctl(&server, &["run", "-s", "k", "--", "true"]).assert_code(0);
    let busy = lockctl(&server, &["run", "-n", "k", "--", "true"]);
    busy.assert_code(75);
    assert!(busy.stderr.contains("leave out -n, or set --wait, to queue for it"), "{busy:?}");
    lockctl(&server, &["run", "-n", "-s", "k", "--", "true"]).assert_code(0);
    lockctl(&server, &["run", "-n", "--wait", "1s", "k", "--", "true"]).assert_code(2);
    guard.release().await.unwrap();
    lockctl(&server, &["run", "-n", "k", "--", "true"]).assert_code(0);
}

#[test]
#[limit]
fn no_output_has_a_password() {
    const PASSWORD: &str = "~k7q~";
    for url in [
        "redis://:P@127.0.0.1:1",
        "P@127.0.0.1:1",
        "u:P@127.0.0.1:1",
        "P://h",
        "redis://127.0.0.1:1?acks=P",
        "redis://127.0.0.1:1?key_prefix=P",
        "redis://127.0.0.1:1?P=1",
        "redis://:a?acks=P@h",
        "redis://:a?key_prefix=P@h",
        "redis+sentinel://:P@127.0.0.1:1/s?sentinel_password=P",
        "redis+cluster://:P@127.0.0.1:1",
        "redlock://:P@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "redlock://a,b,c?max_ttl=P&P=P",
    ] {
        let url = url.replace('P', PASSWORD);
        for arguments in [
            &["list"][..],
            &["list", "--json"],
            &["topology"],
            &["why", "k", "--json"],
            &["run", "-n", "k", "--", "true"],
            // Where it does not belong.
            &[&url, "list"],
            &["list", &url, "--json"],
            &["list", "--ulr", &url],
            &["list", &format!("--prefixes={url}")],
        ] {
            let ended = lockctl_at(&url, arguments);
            assert_ne!(ended.code, Some(0), "{url} {arguments:?}");
            assert!(!format!("{ended:?}").contains("k7q"), "{url} {arguments:?}: {ended:?}");
        }
    }
}
