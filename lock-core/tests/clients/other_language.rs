//! A client in another language, written from `docs/protocol.md` alone, in one queue with processes of ours.

mod scenarios;
mod symbols;
mod vectors;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_testing::{Record, RedisServer, limit};
use tokio::process::Command;

use crate::support::{SECOND, Scratch, Worker, eventually, exists, figure, locks, pttl, seed, take};

fn interpreter() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/foreign-clients/bin/python");
    assert!(python.exists(), "redis-py is not installed; run sh scripts/need-foreign-clients.sh");
    python
}

/// A process of `examples/python`, with leases of 30 s.
async fn python(server: &RedisServer, scratch: &Scratch) -> Worker {
    let (mut program, here) = (Command::new(interpreter()), Path::new(env!("CARGO_MANIFEST_DIR")));
    // It leaves no compiled files beside its sources.
    program.arg("-B").arg(here.join("tests/clients/other_language/worker.py")).arg(here.join("../examples/python"));
    program.arg(server.url()).arg(scratch.history()).arg("30000");
    let mut worker = Worker::run(program);
    assert_eq!(worker.next().await, "ready");
    worker
}

#[tokio::test]
#[limit]
async fn python_does_what_the_vectors_say() {
    let (server, here) = (RedisServer::start(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut program = Command::new(interpreter());
    program.arg("-B").arg(here.join("tests/clients/other_language/replay.py")).arg(here.join("../examples/python"));
    program.arg(server.port().to_string()).arg(here.join("../docs/protocol-vectors.json"));
    let output = program.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let replayed: usize = said.trim().strip_prefix("replayed ").unwrap().parse().unwrap();
    assert!(replayed >= 20, "{said}");
}

fn token(said: &str) -> u64 {
    said.strip_prefix("held ").unwrap_or_else(|| panic!("it says {said:?}")).parse().unwrap()
}

fn waiting(server: &RedisServer, key: &str) -> i64 {
    server.command(&["ZCOUNT", &format!("{{{key}}}@queue"), "0", "+inf"]).int()
}

/// The processes of a history by the order of their grants.
fn turns(history: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(history).unwrap_or_default();
    let grant = |line: &str| match serde_json::from_str(line) {
        Ok(Record::Grant { process, at, .. }) => Some((at, process)),
        _ => None,
    };
    let mut grants: Vec<_> = text.lines().filter_map(grant).collect();
    grants.sort_unstable();
    grants.into_iter().map(|(_, process)| process).collect()
}

/// How many turns later each process has its next one, which half of its turns do not exceed.
fn usual_rounds(turns: &[u32]) -> HashMap<u32, usize> {
    let mut rounds: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, process) in turns.iter().enumerate() {
        if let Some(next) = turns[place + 1..].iter().position(|other| other == process) {
            rounds.entry(*process).or_default().push(next + 1);
        }
    }
    rounds.values_mut().for_each(|rounds| rounds.sort_unstable());
    rounds.into_iter().map(|(process, rounds)| (process, rounds[rounds.len() / 2])).collect()
}

#[tokio::test]
#[limit]
async fn two_processes_of_python_and_two_of_ours_take_turns() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let mut workers = Vec::new();
    for process in 0..2_u64 {
        let seed = seed().wrapping_add(process).to_string();
        let (url, history) = (server.url(), scratch.path("history"));
        let terms = [("url", url.as_str()), ("history", &history), ("ttl_ms", "30000"), ("seed", &seed)];
        let work = [("tasks", "1"), ("keys", "1"), ("wait_ms", "600000")];
        let mut ours = Worker::start("compete", &[terms.as_slice(), &work].concat());
        assert_eq!(ours.next().await, "ready");
        workers.push(ours);
    }
    for _ in 0..2 {
        let mut python = python(&server, &scratch).await;
        python.send("compete compete:0").await;
        workers.push(python);
    }
    // Every process has so many turns, however slow the machine is.
    for worker in &workers {
        eventually("everybody gets turns", || {
            turns(&scratch.history()).iter().filter(|process| **process == worker.pid()).count() >= 50
        })
        .await;
    }
    for worker in &mut workers {
        worker.send("stop").await;
    }
    for mut worker in workers {
        assert!(worker.next().await.starts_with("served "));
        worker.ended().await;
    }
    let verdict = scratch.verdict();
    assert_eq!(verdict.violations, []);
    let rounds = usual_rounds(&turns(&scratch.history()));
    figure(
        "turns of four processes, two of them Python, and every how many turns each has one",
        (verdict.grants, &rounds),
    );
    // One in four would be just. A process that a busy machine holds up misses turns, and not half of the time.
    assert!(rounds.len() == 4 && rounds.values().all(|every| *every <= 8), "{rounds:?}");
    assert!(!exists(&server, "compete:0") && !exists(&server, "{compete:0}@queue"));
    // The note about other clients expires.
    let left = server.command(&["HKEYS", "{compete:0}@waiters"]);
    assert!(["List([])", "List([Text(\"others\")])"].contains(&&*format!("{left:?}")), "{left:?}");
    assert_ne!(pttl(&server, "{compete:0}@waiters"), -1);
}

#[tokio::test]
#[limit]
async fn a_lock_passes_from_python_to_us_and_back() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let (mut python, locks) = (python(&server, &scratch).await, locks(&server));
    let first = token(&python.order("acquire k").await);
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { take(&locks, "k").await }
    });
    eventually("we wait", || waiting(&server, "k") == 1).await;
    assert_eq!(python.order("release").await, "released");
    let guard = next.await.unwrap();
    python.send("acquire k").await;
    eventually("it waits", || waiting(&server, "k") == 1).await;
    let ours = guard.token().get();
    guard.release().await.unwrap();
    let last = token(&python.next().await);
    assert!(first < ours && ours < last, "{first} {ours} {last}");
    assert_eq!((python.order("check").await.as_str(), waiting(&server, "k")), ("held", 0));
    // A grant lasts three seconds. It is raised to the whole lease, and kept.
    eventually("it renews", || pttl(&server, "k") > 20_000).await;
    server.command(&["PEXPIRE", "k", "15000"]);
    eventually("it renews again", || pttl(&server, "k") > 20_000).await;
    // A lock that an operator takes away is lost at once.
    let value = server.command(&["GET", "k"]).text().to_owned();
    server.command(&["PUBLISH", "distributed-lock:inbox:revoked", &format!("{}|me|to see it", &value[..32])]);
    while python.order("check").await != "lost" {}
    assert_eq!(python.order("release").await, "released");
    assert!(!exists(&server, "k"));
}

#[tokio::test]
#[limit]
async fn python_waits_among_readers() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let (mut python, locks) = (python(&server, &scratch).await, locks(&server));
    let reader = locks.read("k").await.unwrap();
    python.send("acquire k").await;
    eventually("it waits", || waiting(&server, "k") == 1).await;
    let before = reader.token().get();
    let next = tokio::spawn({
        let locks = crate::support::locks(&server);
        async move { locks.read("k").with_wait(60 * SECOND).await.unwrap() }
    });
    eventually("another reader waits behind it", || waiting(&server, "k") == 2).await;
    reader.release().await.unwrap();
    let written = token(&python.next().await);
    assert_eq!(python.order("release").await, "released");
    let reader = next.await.unwrap();
    assert!(before < written && written < reader.token().get());
    reader.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_waiter_of_python_that_was_killed_is_passed_over() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let (mut python, locks) = (python(&server, &scratch).await, locks(&server));
    let guard = take(&locks, "k").await;
    python.send("acquire k").await;
    eventually("it waits", || waiting(&server, "k") == 1).await;
    python.kill().await;
    let next = tokio::spawn(async move { take(&locks, "k").await });
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert!(server.command(&["EXISTS", "k"]).int() == 0);
}

#[tokio::test]
#[limit]
async fn a_client_that_is_expected_is_left_a_window_by_python() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let mut workers = vec![python(&server, &scratch).await, python(&server, &scratch).await];
    for worker in &mut workers {
        worker.send("compete k").await;
    }
    for _ in 0..3 {
        let mut taken = false;
        eventually("somebody who polls gets it", || {
            taken = taken || server.command(&["SET", "k", "theirs", "NX", "PX", "60000"]) != lock_testing::Reply::Nil;
            taken
        })
        .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        server.command(&["DEL", "k"]);
        let turns_before = turns(&scratch.history()).len();
        eventually("they go on", || turns(&scratch.history()).len() > turns_before).await;
    }
    for worker in &mut workers {
        worker.send("stop").await;
        assert!(worker.next().await.starts_with("served "));
    }
    assert_eq!(scratch.verdict().violations, []);
}
