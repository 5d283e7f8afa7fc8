//! The fate of the command when a part of `lockctl` itself is killed or stopped.

use lock_testing::{RedisServer, freeze, limit, thaw};

use crate::run::{FAMILY, is_alive, part_of, signal, start, until};

#[test]
#[limit]
fn when_lockctl_is_killed_the_command_dies_with_all_that_it_started() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", &format!("echo $$; {FAMILY}")]);
    let command: u32 = run.line().parse().unwrap();
    let other: u32 = run.line().parse().unwrap();
    run.signal("KILL");
    until("both are dead", || !is_alive(command) && !is_alive(other));
}

#[test]
#[limit]
fn when_the_sentinel_is_killed_too_the_kernel_kills_the_command() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--", "sh", "-c", "echo $$; exec sleep 600"]);
    let command: u32 = run.line().parse().unwrap();
    let sentinel = part_of(run.pid(), "@sentinel");
    signal(sentinel, "KILL");
    until("the sentinel is dead", || !is_alive(sentinel));
    assert!(is_alive(command));
    run.signal("KILL");
    until("the command is dead", || !is_alive(command));
}

#[test]
#[limit]
fn when_lockctl_is_stopped_the_command_ends_with_the_lease() {
    let server = RedisServer::start();
    let mut run = start(&server, &["--ttl", "1s", "--", "sh", "-c", &format!("echo $$; {FAMILY}")]);
    let command: u32 = run.line().parse().unwrap();
    let other: u32 = run.line().parse().unwrap();
    freeze(run.pid());
    until("what the command started is dead", || !is_alive(other));
    until("the command is dead", || !is_alive(command));
    thaw(run.pid());
    let ended = run.end();
    ended.assert_code(76);
    assert!(ended.stderr.contains("does nothing; ending the command"), "{ended:?}");
}

#[test]
#[limit]
fn when_lockctl_is_stopped_the_command_has_its_grace() {
    let server = RedisServer::start();
    let script = "trap 'echo told; exit' TERM; echo $$; while :; do sleep 0.05; done";
    let mut run = start(&server, &["--ttl", "1s", "--", "sh", "-c", script]);
    let command: u32 = run.line().parse().unwrap();
    freeze(run.pid());
    assert_eq!(run.line(), "told", "it was killed without a signal before");
    until("the command is dead", || !is_alive(command));
    thaw(run.pid());
    run.end().assert_code(76);
}
