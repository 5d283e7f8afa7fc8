//! The secrets of the store that the command may learn.

use lock_core::testing::{RedisServer, limit};

use crate::program::lockctl_at;
use crate::run::KEY;

/// The URL may hold a password, which the command and its own children would show in their environment.
#[test]
#[limit]
fn the_command_does_not_learn_the_url() {
    let server = RedisServer::start();
    let url = format!("redis://default:s3cret@127.0.0.1:{}", server.port());
    server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let run = |options: &[&str], script: &str| {
        lockctl_at(&url, &[&["run", KEY], options, &["--", "sh", "-c", script]].concat())
    };
    for options in [&[][..], &["--foreground"]] {
        let ended = run(options, "env; exit 5");
        ended.assert_code(5);
        assert!(ended.stdout.contains("LOCK_TOKEN=") && !ended.stdout.contains("s3cret"), "{ended:?}");
    }
    let ended = run(&["--pass-url"], "echo $LOCK_URL");
    assert_eq!(ended.stdout.trim(), url, "{ended:?}");
    // A command that takes a lock itself needs the URL.
    let nested = format!("{} run other -- echo inside", env!("CARGO_BIN_EXE_lockctl"));
    let ended = run(&[], &nested);
    ended.assert_code(2);
    assert!(ended.stderr.contains("no store is named") && ended.stderr.contains("--pass-url"), "{ended:?}");
    let ended = run(&["--pass-url"], &nested);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "inside\n"), "{ended:?}");
}
