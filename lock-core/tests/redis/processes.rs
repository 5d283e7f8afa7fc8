//! Several processes on one server: they exclude each other, are killed and stopped, and end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_testing::{RedisCluster, RedisSentinels, RedisServer, Stopwatch, freeze, limit, thaw};
use tokio::time::sleep;

use crate::support::{
    Resource, SECOND, Scratch, Worker, eventually, exists, figure, locked_keys, locks, pttl, seed, take,
};

#[tokio::test]
#[limit]
async fn eight_processes_of_eight_tasks_exclude_each_other() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let (url, history, address, seed) = (server.url(), scratch.path("history"), resource.address(), seed());
    let workers: Vec<Worker> = (0..8)
        .map(|process: u64| {
            let seed = seed.wrapping_add(process * 1_000).to_string();
            Worker::start(
                "contend",
                &[
                    ("url", url.as_str()),
                    ("history", &history),
                    ("resource", &address),
                    ("ttl_ms", "30000"),
                    ("tasks", "8"),
                    ("keys", "5"),
                    ("rounds", "12"),
                    ("seed", &seed),
                ],
            )
        })
        .collect();
    for mut worker in workers {
        assert_eq!(worker.next().await, "done");
        worker.ended().await;
    }
    let verdict = scratch.verdict();
    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.grants, verdict.writes, verdict.keys), (8 * 8 * 12, 8 * 8 * 12, 5));
    assert_eq!(locked_keys(&server), [""; 0]);
}

/// A lease that ends while a test waits, and that a stall of the machine does not end.
const TTL: Duration = Duration::from_secs(3);

async fn holder(server: &RedisServer, scratch: &Scratch, resource: &Resource) -> Worker {
    holder_for(TTL, server, scratch, resource).await
}

async fn holder_for(ttl: Duration, server: &RedisServer, scratch: &Scratch, resource: &Resource) -> Worker {
    let mut worker = Worker::start(
        "hold",
        &[
            ("url", &server.url()),
            ("history", &scratch.path("history")),
            ("resource", &resource.address()),
            ("ttl_ms", &ttl.as_millis().to_string()),
        ],
    );
    assert_eq!(worker.next().await, "ready");
    worker
}

#[tokio::test]
#[limit]
async fn a_killed_holder_is_followed_within_its_ttl() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = holder(&server, &scratch, &resource).await;
    let said = worker.order("acquire k").await;
    let token: u64 = said.strip_prefix("held ").unwrap().parse().unwrap();
    assert_eq!(worker.order("write").await, "written");
    let next = locks(&server);
    next.observe(scratch.recorder());
    let waiting = {
        let next = next.clone();
        tokio::spawn(async move { next.lock("k").await })
    };
    eventually("it waits", || exists(&server, "{k}@queue")).await;
    let pid = worker.pid();
    worker.kill().await;
    scratch.recorder().killed(pid);
    let (left, killed) = (pttl(&server, "k"), Stopwatch::start());
    let guard = waiting.await.unwrap().unwrap();
    figure("next owner after SIGKILL of a holder, ms left of its lease", (killed.elapsed(), left));
    killed.assert_within(TTL + SECOND, "the next owner after SIGKILL of a holder");
    assert!(guard.token().get() > token);
    assert!(resource.write("k", guard.token()));
    guard.release().await.unwrap();
    assert_eq!(scratch.verdict().violations, []);
}

#[tokio::test]
#[limit]
async fn a_killed_waiter_holds_up_nobody() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = holder(&server, &scratch, &resource).await;
    let locks = locks(&server);
    let guard = take(&locks, "k").await;
    worker.send("acquire k").await;
    eventually("it waits", || exists(&server, "{k}@queue")).await;
    let pid = worker.pid();
    worker.kill().await;
    scratch.recorder().killed(pid);
    let released = Stopwatch::start();
    guard.release().await.unwrap();
    let next = take(&locks, "k").await;
    // A grant that nobody receives ends by itself.
    released.assert_within(TTL, "the next owner after SIGKILL of a waiter");
    next.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_stopped_holder_finds_its_lock_lost_before_it_writes_again() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = Worker::start(
        "body",
        &[
            ("url", &server.url()),
            ("history", &scratch.path("history")),
            ("resource", &resource.address()),
            ("ttl_ms", "3000"),
            ("key", "k"),
        ],
    );
    assert!(worker.next().await.starts_with("held "));
    for _ in 0..5 {
        assert_eq!(worker.next().await, "written");
    }
    worker.stop();
    let stopped = Stopwatch::start();
    let next = locks(&server);
    next.observe(scratch.recorder());
    let guard = take(&next, "k").await;
    figure("next owner after SIGSTOP of a holder with a ttl of 3 s", stopped.elapsed());
    stopped.assert_within(TTL + SECOND, "the next owner after SIGSTOP of a holder");
    assert!(resource.write("k", guard.token()));
    worker.resume();
    // Its writes before it was stopped, and at most one write that it was about to make: the check
    // may have come right before the stop. The fence refuses that one.
    let mut refused = 0;
    let end = loop {
        match worker.next().await.as_str() {
            "written" => {}
            "refused" => refused += 1,
            end => break end.to_owned(),
        }
    };
    assert!(end.starts_with("lost "), "{end}");
    assert!(refused <= 1, "{refused} writes were tried under a lost lock");
    worker.ended().await;
    guard.ensure_held().unwrap();
    scratch.recorder().release(guard.key(), guard.token());
    guard.release().await.unwrap();
    assert_eq!(scratch.verdict().violations, []);
}

#[tokio::test]
#[limit]
async fn a_write_that_skips_the_check_is_refused_by_the_fence() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = holder(&server, &scratch, &resource).await;
    assert!(worker.order("acquire k").await.starts_with("held "));
    assert_eq!(worker.order("write").await, "written");
    worker.stop();
    let next = locks(&server);
    let guard = take(&next, "k").await;
    assert!(resource.write("k", guard.token()));
    // The worker reads both orders at once when it resumes.
    worker.send("check").await;
    worker.send("write").await;
    worker.resume();
    assert!(worker.next().await.starts_with("lost "));
    assert_eq!(worker.next().await, "refused");
    let released = worker.order("release").await;
    assert!(released.starts_with("AlreadyLost("), "{released}");
    // Its late release did not free the next owner's lock.
    assert!(exists(&server, "k"));
    guard.ensure_held().unwrap();
    worker.ended().await;
    assert_eq!(scratch.verdict().violations, []);
}

#[tokio::test]
#[limit]
async fn a_stop_shorter_than_the_lease_costs_nothing() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = holder_for(30 * SECOND, &server, &scratch, &resource).await;
    assert!(worker.order("acquire k").await.starts_with("held "));
    for _ in 0..3 {
        worker.stop();
        sleep(SECOND).await;
        worker.resume();
        assert_eq!(worker.order("check").await, "held");
        assert_eq!(worker.order("write").await, "written");
    }
    assert_eq!(worker.order("release").await, "Released");
    worker.ended().await;
    assert_eq!(scratch.verdict().violations, []);
}

/// The last handle waits for releases that are on their way, for at most 250 ms. A process that needed that time, or was
/// held up by the machine, says so and does not count.
#[tokio::test]
#[limit(180)]
async fn nothing_is_left_when_main_returns() {
    let server = RedisServer::start();
    let url = server.url();
    let ways = ["guard-then-manager", "inside", "blocking", "cancelled", "manager-then-guard"];
    for how in ways.into_iter().chain(["released-behind", "released-and-gone", "leading", "led-and-gone"]) {
        let mut witnesses = 0;
        // Until one has told: if none ever does, the limit names this test.
        for round in 0.. {
            let key = format!("{how}:{round}");
            let mut worker = Worker::start("exit", &[("url", &url), ("ttl_ms", "600000"), ("key", &key), ("how", how)]);
            let undisturbed = worker.next().await == "undisturbed";
            worker.ended().await;
            if undisturbed {
                // A release may be on its way in the socket of a process that has ended.
                eventually(&format!("{how}, round {round}: the key is free"), || !exists(&server, &key)).await;
                witnesses += 1;
            }
            if witnesses == 5 || (round >= 20 && witnesses > 0) {
                break;
            }
        }
    }
}

#[tokio::test]
#[limit]
async fn the_holder_is_named_across_processes() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let resource = Resource::start(&scratch.history());
    let mut worker = holder(&server, &scratch, &resource).await;
    assert!(worker.order("acquire k").await.starts_with("held "));
    let locks = locks(&server);
    let seen = locks.holder("k").await.unwrap().unwrap();
    let info = seen.info.clone().unwrap();
    assert_eq!(info.pid, worker.pid());
    assert!(info.site.contains("/worker/mod.rs"), "{info}");
    let busy = locks.lock("k").without_waiting().await.unwrap_err();
    assert_eq!(busy.holder().unwrap().info.as_ref(), Some(&info));
    assert!(busy.to_string().contains(&format!("pid {}", worker.pid())), "{busy}");
    assert_eq!(worker.order("release").await, "Released");
    assert!(locks.holder("k").await.unwrap().is_none());
    worker.ended().await;
}

/// How long a process has computed so far.
fn computed(worker: &Worker) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap();
    // After the name, which may contain anything: the 12th and the 13th word, in hundredths of a second.
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| words[at].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// It holds a lock and waits for another, and tries to connect again and again.
#[tokio::test]
#[limit]
async fn a_process_whose_servers_are_away_rests() {
    async fn rests(what: &str, url: &str, key: &str, end: impl FnOnce()) {
        let scratch = Scratch::new();
        let history = scratch.history();
        let arguments = [("url", url), ("ttl_ms", "600000"), ("history", history.to_str().unwrap())];
        let mut worker = Worker::start("hold", &arguments);
        assert_eq!(worker.next().await, "ready");
        assert!(worker.order(&format!("acquire {key}")).await.starts_with("held "));
        end();
        // While it has not found out yet, it asks more often.
        sleep(Duration::from_secs(2)).await;
        let before = computed(&worker);
        sleep(Duration::from_secs(4)).await;
        let worked = computed(&worker) - before;
        figure(&format!("computed in 4 s while its servers are away, {what}"), worked);
        assert!(worked < Duration::from_secs(1), "{what}: {worked:?}");
    }
    let mut server = RedisServer::start();
    rests("one server", &server.url(), "k", || server.kill()).await;
    let mut servers = RedisSentinels::start();
    rests("Sentinel", &servers.url(), "k", || {
        servers.sentinels_mut().iter_mut().for_each(RedisServer::kill);
        (0..2).for_each(|at| servers.kill(at));
    })
    .await;
    let mut cluster = RedisCluster::start(3);
    let key = cluster.key_on(0, "lock:");
    rests("Cluster", &cluster.url(), &key, || (0..3).for_each(|at| cluster.kill(at))).await;
}

/// The tools of these tests: a process that was frozen does nothing, and goes on when it is thawed.
#[test]
#[limit]
fn a_frozen_process_answers_after_it_was_thawed() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    freeze(child.id());
    assert!(state().contains(") T "), "{}", state());
    child.stdin.as_ref().unwrap().write_all(b"told\n").unwrap();
    thaw(child.id());
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert_eq!(answer, "told\n");
    drop(child.stdin.take());
    child.wait().unwrap();
}
