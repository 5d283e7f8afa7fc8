//! A store that would refuse to give the lock back.

use lock_core::LockManager;
use lock_testing::{RedisServer, Reply, limit};

use crate::program::lockctl_at;
use crate::run::{KEY, is_free};

#[test]
#[limit]
fn a_command_is_not_run_under_a_lock_that_could_not_be_given_back() {
    let user = |denied: &str| {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "default", denied]);
        (server, "docs/operations.md#permissions")
    };
    let without = |name: &str| {
        (RedisServer::builder().with("rename-command", &format!("{name} elsewhere-{name}")).start(), "rename-command")
    };
    let denied = ["-eval", "-evalsha", "-@scripting", "-del", "-pexpire", "-zrem"].map(user);
    for (server, advice) in denied.into_iter().chain(["EVAL", "EVALSHA", "DEL", "PEXPIRE"].map(without)) {
        for options in [&[][..], &["--shared"], &["--min-hold", "1s"]] {
            let ended = lockctl_at(&server.url(), &[&["run", KEY], options, &["--", "echo", "ran"]].concat());
            ended.assert_code(69);
            assert!(ended.stdout.is_empty(), "{ended:?}");
            assert!(ended.stderr.contains(advice) && !ended.stderr.contains("6.2"), "{ended:?}");
            assert!(is_free(&server), "{ended:?}");
        }
    }
}

/// A process that goes on takes the lock once somebody has permitted what was refused.
#[tokio::test]
#[limit]
async fn a_refusal_ends_when_the_command_is_permitted() {
    let server = RedisServer::start();
    for denied in ["eval", "del"] {
        server.command(&["ACL", "SETUSER", "default", &format!("-{denied}")]);
        let locks = LockManager::connect(&server.url()).await.unwrap();
        for _ in 0..2 {
            let refused = locks.lock(KEY).await.unwrap_err();
            assert!(refused.to_string().contains("so none is taken"), "{refused}");
        }
        server.command(&["ACL", "SETUSER", "default", &format!("+{denied}")]);
        locks.lock(KEY).await.unwrap().release().await.unwrap();
        assert!(is_free(&server), "{denied}");
    }
}

/// Patterns of keys that have the lock and not its queue show at the release only.
#[test]
#[limit]
fn a_lock_whose_queue_is_forbidden_is_given_back() {
    let server = RedisServer::start();
    server.command(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "&*",
        "+@all",
        &format!("~{KEY}"),
        "~distributed-lock:clock*",
    ]);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let ended = lockctl_at(&url, &["run", KEY, "--", "echo", "ran"]);
    ended.assert_code(0);
    assert!(is_free(&server), "{ended:?}");
    let kept = lockctl_at(&url, &["run", KEY, "--min-hold", "20s", "--", "true"]);
    kept.assert_code(0);
    assert!(matches!(server.command(&["PTTL", KEY]), Reply::Int(1..=20_000)), "{kept:?}");
}
