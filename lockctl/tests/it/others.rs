//! Locks of other libraries, and of other namespaces.

use lock_core::LockManager;
use lock_testing::{RedisServer, Reply, limit};

use crate::program::{lockctl, lockctl_at, shell};

#[test]
#[limit]
fn a_lock_of_another_library_is_released_by_its_value() {
    let server = RedisServer::start();
    for (key, value, spelled) in
        [("lock:py", "0f4c-it's", "0f4c-it's"), ("lock:net", "\u{1}\u{2}", "hex:0102"), ("lock:dash", "-x", "-x")]
    {
        server.command(&["SET", key, value, "PX", "600000"]);
        let shown = lockctl(&server, &["show", key]);
        assert!(shown.stdout.contains(spelled), "{shown:?}");
        assert_eq!(lockctl(&server, &["show", key, "--json"]).json()["value"], spelled);
        // The command that `show` prints, run by a shell unchanged.
        let hint = shown.stdout.lines().find_map(|line| line.trim().strip_prefix("lockctl ")).unwrap().to_owned();
        let ended = shell(&server, &hint);
        ended.assert_code(0);
        assert!(ended.stdout.contains(&format!("released {key}, held by a client of another library")), "{ended:?}");
        assert_eq!(server.command(&["EXISTS", key]), Reply::Int(0));
        server.command(&["SET", key, "somebody else", "PX", "600000"]);
        let ended = shell(&server, &hint);
        ended.assert_code(1);
        assert_eq!(server.command(&["EXISTS", key]), Reply::Int(1));
    }
    let list = lockctl(&server, &["list", "--prefix", "lock:", "--owners"]);
    assert!(!list.stdout.contains("somebody"), "with the value anybody may release: {list:?}");
}

#[test]
#[limit]
fn an_empty_list_names_what_may_be_locks_of_others() {
    let server = RedisServer::start();
    server.command(&["SET", "jobs:nightly", "nonce", "PX", "600000"]);
    let ended = lockctl(&server, &["list"]);
    for part in
        ["no lock is held on ", "1 strings may be locks of other clients, such as jobs:nightly", "list --prefix jobs:"]
    {
        assert!(ended.stdout.contains(part), "{part} in {ended:?}");
    }
    assert_eq!(lockctl(&server, &["list", "--json"]).json()["foreign_left_out"], 1);
    assert!(lockctl(&server, &["list", "--prefix", "jobs:"]).stdout.starts_with("KEY"));
}

#[tokio::test]
#[limit]
async fn a_namespace_is_all_that_is_seen_of_a_server() {
    let server = RedisServer::start();
    let of = |prefix: &str| format!("{}?key_prefix={prefix}", server.url());
    let mut held = Vec::new();
    for prefix in ["prod:", "test:"] {
        let locks = LockManager::connect(&of(prefix)).await.unwrap();
        let guard = locks.lock("lock:user:42").with_site("shop::charge").acquire().await.unwrap();
        held.push((locks, guard));
    }
    server.command(&["SET", "prod:job:1", "nonce", "PX", "600000"]);
    let prod = |arguments: &[&str]| lockctl_at(&of("prod:"), arguments);
    let list = prod(&["list"]);
    assert!(list.stdout.contains("prod:lock:user:42 ") && !list.stdout.contains("test:"), "{list:?}");
    assert!(prod(&["list", "--prefix", "job:"]).stdout.contains("prod:job:1 "));
    for key in ["lock:user:42", "prod:lock:user:42"] {
        assert_eq!(prod(&["show", key, "--json"]).json()["key"], "prod:lock:user:42");
    }
    prod(&["show", "user:42"]).assert_code(1);
    for key in ["lock:user:42", "prod:lock:user:42"] {
        prod(&["run", key, "--wait", "none", "--", "true"]).assert_code(75);
    }
    let owner = prod(&["show", "lock:user:42", "--json"]).json()["owner"].as_str().unwrap().to_owned();
    prod(&["release", "lock:user:42", "--expect-owner", &owner, "--reason", "x"]).assert_code(0);
    prod(&["run", "lock:user:42", "--wait", "none", "--", "true"]).assert_code(0);
    assert_eq!(server.command(&["EXISTS", "test:lock:user:42"]), Reply::Int(1));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockctl"));
    let output = command.args(["list"]).env("LOCK_URL", server.url()).env("LOCK_KEY_PREFIX", "test:").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("test:lock:user:42 ") && !text.contains("prod:"), "{text}");
    lockctl_at(&of("prod"), &["list"]).assert_code(2);
}
