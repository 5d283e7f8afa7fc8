//! `lockctl run --once-for`, `lockctl forget`, and what `lockctl jobs` lists of it.

use std::time::Duration;

use lock_core::inspect::FleetReader;
use lock_core::testing::{RedisServer, limit};
use lock_core::{JobVersion, LockManager};

use crate::program::{Ended, lockctl, lockctl_at};

const KEY: &str = "migrate:orders";

fn migrate(url: &str, version: &str, command: &str) -> Ended {
    lockctl_at(url, &["run", KEY, "--once-for", version, "--wait", "60s", "--", "sh", "-c", command])
}

#[test]
#[limit]
fn a_command_that_succeeds_runs_once_for_its_version() {
    let server = RedisServer::start();
    let url = server.url();
    let failed = migrate(&url, "v42", "echo tried; exit 3");
    failed.assert_code(3);
    assert_eq!(lockctl(&server, &["jobs", "--json"]).json()["done"], serde_json::json!([]), "it failed");
    migrate(&url, "v42", "kill -TERM $$").assert_code(143);
    let done = migrate(&url, "v42", "echo migrated");
    done.assert_code(0);
    assert_eq!(done.stdout, "migrated\n");
    let again = migrate(&url, "v42", "echo migrated");
    again.assert_code(0);
    assert!(again.stdout.is_empty(), "{again:?}");
    for part in ["migrate:orders is done for v42", "lockctl run sh", "the command was not run"] {
        assert!(again.stderr.contains(part), "{part} in {again:?}");
    }
    assert_eq!(migrate(&url, "v43", "echo migrated").stdout, "migrated\n", "another version");

    let jobs = lockctl(&server, &["jobs"]);
    jobs.assert_code(0);
    let row = jobs.stdout.lines().find(|line| line.contains("v42")).unwrap_or_else(|| panic!("{jobs:?}"));
    assert!(row.starts_with(KEY) && row.contains(" ago") && row.contains("lockctl run sh"), "{jobs:?}");
    let json = lockctl(&server, &["jobs", "--json"]).json();
    let done = json["done"].as_array().unwrap();
    assert_eq!((done.len(), &done[0]["key"], &done[0]["version"]), (2, &KEY.into(), &"v42".into()), "{json:#}");
    assert!(done[0]["done_seconds_ago"].as_f64().unwrap() < 60.0 && done[0]["pid"].is_u64(), "{json:#}");

    let forgotten = lockctl(&server, &["forget", KEY, "v42"]);
    forgotten.assert_code(0);
    assert!(forgotten.stdout.contains("migrate:orders is not done for v42 any more"), "{forgotten:?}");
    for part in ["audit:", "action=\"forget\"", "key=\"migrate:orders\"", "version=\"v42\"", "ana", "forgotten"] {
        assert!(forgotten.stderr.contains(part), "{part} in {forgotten:?}");
    }
    let none = lockctl(&server, &["forget", KEY, "v42", "--json"]);
    none.assert_code(1);
    assert_eq!(none.json()["outcome"], "not_done");
    assert_eq!(migrate(&url, "v42", "echo migrated").stdout, "migrated\n", "it was forgotten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
#[expect(clippy::disallowed_methods, reason = "on the runtime of the test")]
async fn whoever_waits_while_it_is_done_has_nothing_to_do() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock(KEY).with_ttl(Duration::from_secs(60)).await.unwrap();
    let busy = lockctl(&server, &["run", KEY, "--once-for", "v42", "-n", "--", "echo", "ran"]);
    busy.assert_code(75);
    let url = server.url();
    let waits = tokio::task::spawn_blocking(move || migrate(&url, "v42", "echo ran"));
    let fleet = FleetReader::new(&server.url()).unwrap();
    while fleet.waiters(guard.key()).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    guard.mark_done(&JobVersion::new("v42").unwrap(), None).await.unwrap();
    guard.release().await.unwrap();
    let ended = waits.await.unwrap();
    ended.assert_code(0);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("is done for v42"), "{ended:?}");
    assert!(locks.holder(KEY).await.unwrap().is_none(), "it keeps nothing");
}

/// An unknown answer is an error. The command is then neither run nor counted as done.
#[test]
#[limit]
fn whether_it_is_done_must_be_known() {
    let server = RedisServer::start();
    server.command(&["RPUSH", "{migrate:orders}@done:v42", "x"]);
    let refused = migrate(&server.url(), "v42", "echo ran");
    refused.assert_code(69);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("holds a list"), "{refused:?}");
    lockctl(&server, &["forget", KEY, "v42"]).assert_code(4);
}

#[test]
#[limit]
fn a_namespace_is_done_for_itself() {
    let server = RedisServer::start();
    let at = |prefix: &str| format!("{}?key_prefix={prefix}", server.url());
    assert_eq!(migrate(&at("prod:"), "v1", "echo ran").stdout, "ran\n");
    assert_eq!(migrate(&at("test:"), "v1", "echo ran").stdout, "ran\n");
    let json = lockctl_at(&at("prod:"), &["jobs", "--json"]).json();
    assert_eq!((json["done"].as_array().unwrap().len(), &json["done"][0]["key"]), (1, &"prod:migrate:orders".into()));
    lockctl_at(&at("prod:"), &["forget", "prod:migrate:orders", "v1"]).assert_code(0);
    lockctl_at(&at("prod:"), &["forget", KEY, "v1"]).assert_code(1);
    lockctl_at(&at("test:"), &["forget", KEY, "v1"]).assert_code(0);
}

#[test]
#[limit]
fn a_quorum_knows_what_a_majority_has_marked() {
    let mut servers = [(); 3].map(|()| RedisServer::start());
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redlock://{}", hosts.join(","));
    lockctl_at(&url, &["quorum", "init"]).assert_code(0);
    assert_eq!(migrate(&url, "v42", "echo ran").stdout, "ran\n");
    let jobs = lockctl_at(&url, &["jobs"]);
    jobs.assert_code(0);
    assert_eq!(jobs.stdout.matches("v42").count(), 1, "{jobs:?}");
    servers[0].kill();
    let again = migrate(&url, "v42", "echo ran");
    again.assert_code(0);
    assert!(again.stdout.is_empty(), "{again:?}");
    lockctl_at(&url, &["forget", KEY, "v42"]).assert_code(3);
}
