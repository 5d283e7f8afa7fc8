//! Texts that must never be printed, and servers that do not answer.

use lock_core::LockManager;
use lock_core::testing::{RedisServer, limit};

use crate::program::{lockctl, lockctl_at};

#[test]
#[limit]
fn a_server_that_is_away_is_code_3() {
    let mut server = RedisServer::start();
    server.kill();
    let owner = "ab".repeat(16);
    for command in [
        &["list"][..],
        &["show", "k"],
        &["waiters", "k"],
        &["watch"],
        &["release", "k", "--expect-owner", &owner, "--reason", "x"],
    ] {
        let ended = lockctl(&server, command);
        ended.assert_code(3);
        assert!(ended.stderr.contains("check that the server runs"), "{ended:?}");
        assert!(ended.stderr.contains(&format!("127.0.0.1:{}", server.port())), "{ended:?}");
    }
}

#[test]
#[limit]
fn passwords_are_never_printed() {
    let server = RedisServer::builder().with_password("open-sesame").start();
    let wrong = format!("redis://:closed-sesame@127.0.0.1:{}", server.port());
    let ended = lockctl_at(&wrong, &["list"]);
    ended.assert_code(4);
    assert!(ended.stderr.contains("user or password is wrong"), "{ended:?}");
    let none = format!("redis://127.0.0.1:{}", server.port());
    let missing = lockctl_at(&none, &["list"]);
    missing.assert_code(4);
    assert!(missing.stderr.contains("asks for a password"), "{missing:?}");
    let right = lockctl(&server, &["list"]);
    right.assert_code(0);
    let bad = lockctl_at("redis://:closed-sesame@host:port", &["list"]);
    bad.assert_code(2);
    let misplaced = lockctl(&server, &["list", "redis://:closed-sesame@host"]);
    misplaced.assert_code(2);
    let help = lockctl(&server, &["--help"]);
    for ended in [ended, missing, right, bad, misplaced, help] {
        assert!(!format!("{ended:?}").contains("sesame"), "{ended:?}");
    }
}

#[tokio::test]
#[limit]
async fn keys_cannot_act_on_the_terminal() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let evil = "lock:\u{1b}[2J\u{9b}31m\r\n\u{7}<script>\u{202e}é";
    let _guard = locks.lock(evil).with_site("a\u{1b}]0;x\u{7}").acquire().await.unwrap();
    for command in [&["list"][..], &["show", evil], &["waiters", evil], &["list", "--json"], &["show", evil, "--json"]]
    {
        let ended = lockctl(&server, command);
        ended.assert_code(0);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!ended.stdout.contains(acts), "{ended:?}");
        assert!(ended.stdout.contains("<script>"), "{ended:?}");
    }
    assert!(lockctl(&server, &["list"]).stdout.contains("lock:\\u{1b}[2J\\u{9b}31m\\r\\n\\u{7}<script>\\u{202e}é"));
    // JSON contains it exactly, so that a script can use it.
    assert_eq!(lockctl(&server, &["list", "--json"]).json()["locks"][0]["key"], evil);
    let owner = lockctl(&server, &["show", evil, "--json"]).json()["owner"].as_str().unwrap().to_owned();
    let ended = lockctl(&server, &["release", evil, "--expect-owner", &owner, "--reason", "\u{1b}[2J"]);
    ended.assert_code(0);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains('\u{1b}'), "{ended:?}");
}

/// An error does not mean *waits for nothing*.
#[tokio::test]
#[limit]
async fn what_a_holder_waits_for_is_unknown_to_who_may_not_read_it() {
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.lock("cart").acquire().await.unwrap();
    let rules = "ACL SETUSER ops reset on >pw &* +@all ~cart ~{cart}@queue ~{cart}@waiters ~{cart}@fence ~{cart}@job";
    server.command(&rules.split(' ').collect::<Vec<_>>());
    let url = server.url().replace("://", "://ops:pw@");
    let text = lockctl_at(&url, &["why", "cart"]);
    text.assert_code(0);
    let says = ["cart is held", "unknown whether the holder of cart waits for a lock: ", "NOPERM"];
    assert!(says.iter().all(|part| text.stdout.contains(part)), "{text:?}");
    let json = lockctl_at(&url, &["why", "cart", "--json"]).json();
    assert_eq!(
        (&json["blocked"], &json["blocked_unknown"]["key"]),
        (&serde_json::json!([]), &"cart".into()),
        "{json:#}"
    );
    let all = lockctl(&server, &["why", "cart", "--json"]).json();
    assert!(all["blocked_unknown"].is_null(), "{all:#}");
    guard.release().await.unwrap();
}
