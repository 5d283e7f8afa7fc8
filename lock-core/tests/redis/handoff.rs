//! Locks that pass from process to process through the server's queue, on bad days.

mod away;
mod crowd;
mod unpolled;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, LockManager, RedisStore};
use lock_testing::{Direction, FaultProxy, RedisServer, Reply, Stopwatch, Violation, limit};

use crate::support::{
    LONG, MS, SECOND, Scratch, Worker, eventually, figure, locked_keys, locks, nothing_is_left, seed, take,
};
use crowd::Crowd;

/// How often scripts ran.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_evalsha:calls=").or(line.strip_prefix("cmdstat_eval:calls="))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    stats.text().lines().filter_map(calls).sum()
}

/// Checks every key again and again, and returns those that would have stayed forever.
fn sample_expiries(server: &RedisServer, until: &AtomicBool) -> (usize, Vec<String>) {
    let (mut looks, mut eternal) = (0, Vec::new());
    while !until.load(Ordering::SeqCst) {
        let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no list of keys") };
        // Only the clock stays.
        for key in keys.iter().filter(|key| key.text() != "distributed-lock:clock") {
            looks += 1;
            if server.command(&["PTTL", key.text()]) == Reply::Int(-1) {
                eternal.push(key.text().to_owned());
            }
        }
        std::thread::sleep(MS);
    }
    (looks, eternal)
}

/// Starts a worker whose tasks want the same keys until it is told to stop.
async fn competitor(server: &RedisServer, scratch: &Scratch, seed: u64) -> Worker {
    let mut worker = Worker::start(
        "compete",
        &[
            ("url", &server.url()),
            ("history", &scratch.path("history")),
            ("ttl_ms", "1000"),
            ("wait_ms", "30000"),
            ("tasks", "3"),
            ("keys", "3"),
            ("seed", &seed.to_string()),
        ],
    );
    assert_eq!(worker.next().await, "ready");
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn processes_killed_and_stopped_in_the_middle_hold_up_nobody() {
    let (server, scratch) = (Arc::new(RedisServer::start()), Scratch::new());
    let (over, seed) = (Arc::new(AtomicBool::new(false)), seed());
    let sampler = {
        let (server, over) = (Arc::clone(&server), Arc::clone(&over));
        std::thread::spawn(move || sample_expiries(&server, &over))
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut workers = Vec::new();
    for number in 0..8 {
        workers.push(competitor(&server, &scratch, seed.wrapping_add(number)).await);
    }
    let (mut kills, mut stops) = (0_u64, 0);
    for _ in 0..18 {
        tokio::time::sleep(random.u32(20..250) * MS).await;
        let index = random.usize(0..workers.len());
        if random.u8(0..3) == 0 {
            let pid = workers[index].pid();
            workers[index].kill().await;
            scratch.recorder().killed(pid);
            kills += 1;
            workers[index] = competitor(&server, &scratch, seed.wrapping_add(100 + kills)).await;
        } else {
            workers[index].stop();
            tokio::time::sleep(random.u32(1..1_300) * MS).await;
            workers[index].resume();
            stops += 1;
        }
    }
    let mut served = 0;
    for mut worker in workers {
        // The worker says this only if each of its waiters was served or gave up within its budget.
        let said = worker.order("stop").await;
        served += said.strip_prefix("served ").unwrap_or_else(|| panic!("{said}")).parse::<u64>().unwrap();
        worker.ended().await;
    }
    // The entries of the killed processes disappear by themselves.
    for key in locked_keys(&server) {
        let left = server.command(&["PTTL", &key]).int();
        assert!((-2..=30_000).contains(&left) && left != -1, "{key} stays for {left} ms");
    }
    over.store(true, Ordering::SeqCst);
    let (looks, eternal): (usize, Vec<String>) = sampler.join().unwrap();
    assert_eq!(eternal, [""; 0]);
    let verdict = scratch.verdict();
    assert_eq!(verdict.violations, []);
    figure("killed, stopped, grants to survivors, grants in all", (kills, stops, served, verdict.grants));
    figure("looks at the expiry of a key", looks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn inboxes_that_are_killed_all_the_time_cost_no_grant() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let crowd = Crowd::of(&managers(&server.url(), 4), &scratch).tasks(3).keys(2).start();
    let mut killed = 0;
    while killed < 100 || crowd.grants() < 300 {
        killed += server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
        tokio::time::sleep(30 * MS).await;
    }
    let tally = crowd.stop().await;
    assert_eq!((tally.timeouts, tally.failures), (0, 0));
    assert_eq!(scratch.verdict().violations, []);
    nothing_is_left(&server).await;
    figure("inbox connections killed, grants, longest wait", (killed, tally.grants, tally.longest_wait));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn replies_that_are_lost_again_and_again_cost_no_grant() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let proxy = FaultProxy::start(server.port());
    let crowd = Crowd::of(&managers(&proxy.url(), 4), &scratch).tasks(3).keys(2).start();
    let mut lost = 0;
    while lost < 30 || crowd.grants() < 200 {
        proxy.drop_replies(1);
        lost += 1;
        let passed = proxy.bytes(Direction::ToClient);
        // Cut after so many bytes each time, so that it hits grants, releases and pushes alike.
        eventually("bytes pass", || proxy.bytes(Direction::ToClient) > passed + 4_000).await;
    }
    proxy.resume();
    let tally = crowd.stop().await;
    assert_eq!(tally.timeouts, 0);
    assert_eq!(scratch.verdict().violations, []);
    nothing_is_left(&server).await;
    figure("replies lost, grants, longest wait", (lost, tally.grants, tally.longest_wait));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_flush_in_the_middle_is_healed() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let crowd = Crowd::of(&managers(&server.url(), 4), &scratch).tasks(3).keys(2).start();
    for _ in 0..20 {
        tokio::time::sleep(150 * MS).await;
        server.command(&["FLUSHALL"]);
    }
    let tally = crowd.stop().await;
    assert_eq!((tally.timeouts, tally.failures), (0, 0));
    // A lock that is flushed away is held twice. A caller that was granted it before the flush may learn of the
    // grant, or pass it on, after the next owner: with an older token, which a fence refuses.
    let violations = scratch.verdict().violations;
    let expected = |one: &&Violation| matches!(one, Violation::Overlap { .. } | Violation::TokenOrder { .. });
    let worse: Vec<_> = violations.iter().filter(|one| !expected(one)).collect();
    assert!(worse.is_empty(), "{worse:?}");
    nothing_is_left(&server).await;
    figure("grants over 20 flushes, longest wait, overlaps", (tally.grants, tally.longest_wait, violations.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_classic_client_takes_its_turns_between_waiters() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    // The pause is so long that the queue is sometimes empty: otherwise a stranger has no right to a
    // turn.
    let crowd = Crowd::of(&managers(&server.url(), 3), &scratch).tasks(2).keys(1).pause(50 * MS).start();
    let mut turns = 0;
    while turns < 20 || crowd.grants() < 200 {
        if server.command(&["SET", "crowd:0", "classic", "NX", "PX", "600000"]) == Reply::Text("OK".to_owned()) {
            crowd.stranger(true);
            tokio::time::sleep(5 * MS).await;
            crowd.stranger(false);
            assert_eq!(server.command(&["DEL", "crowd:0"]), Reply::Int(1));
            turns += 1;
        }
        tokio::time::sleep(MS).await;
    }
    let tally = crowd.stop().await;
    assert_eq!((tally.timeouts, tally.failures), (0, 0));
    assert_eq!(scratch.verdict().violations, []);
    figure("turns of a classic client, grants, longest wait", (turns, tally.grants, tally.longest_wait));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_user_who_may_not_hear_or_tell_of_grants_is_served_by_polling() {
    for denied in ["-subscribe", "-publish"] {
        let (server, scratch) = (RedisServer::start(), Scratch::new());
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", denied]);
        let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
        let crowd = Crowd::of(&managers(&url, 2), &scratch).tasks(2).keys(1).start();
        eventually("grants", || crowd.grants() >= 40).await;
        let tally = crowd.stop().await;
        assert_eq!((tally.timeouts, tally.failures), (0, 0), "{denied}");
        assert_eq!(scratch.verdict().violations, [], "{denied}");
        figure(&format!("grants by polling, {denied}, longest wait"), (tally.grants, tally.longest_wait));
    }
}

#[tokio::test]
#[limit]
async fn queue_keys_of_a_wrong_type_are_named_and_keep_no_lock() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    for companion in ["{k}@queue", "{k}@waiters"] {
        let guard = take(&one, "k").await;
        let waiting = tokio::spawn({
            let two = two.clone();
            async move { two.lock("k").await }
        });
        eventually("it waits", || server.command(&["EXISTS", companion]) == Reply::Int(1)).await;
        server.command(&["SET", companion, "nonsense"]);
        let error = locks(&server).lock("k").await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{companion}: {error}");
        assert!(error.to_string().contains(companion), "{error}");
        // Every waiter asks again, and gets the lock or an answer.
        let watch = Stopwatch::start();
        let released = guard.release().await;
        assert!(released.is_ok(), "{companion}: {released:?}");
        match waiting.await.unwrap() {
            Ok(next) => assert!(next.release().await.is_ok(), "{companion}"),
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{companion}: {error}"),
        }
        watch.assert_within(2 * SECOND, companion);
        assert_eq!(server.command(&["EXISTS", "k"]), Reply::Int(0), "{companion}");
        server.command(&["DEL", companion, "{k}@waiters", "{k}@queue"]);
        take(&two, "k").await.release().await.unwrap();
    }
}

/// The length of turns depends on the machine, but its limit does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn turns_are_shared_and_nobody_is_passed_over_for_ever() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let crowd = Crowd::of(&managers(&server.url(), 4), &scratch).tasks(4).keys(1).hold(MS).start();
    eventually("grants", || crowd.grants() >= 2_000).await;
    let tally = crowd.stop().await;
    let (poorest, mean) = (tally.poorest(), tally.grants / 4);
    figure("grants, poorest process, mean, longest bypass", (tally.grants, poorest, mean, tally.longest_bypass));
    assert!(poorest * 2 >= mean, "{:?}", tally.by_process);
    // A process has at most 65 grants in a turn, and each of its four callers gets one of its turns at the latest
    // after the three before it.
    assert!(tally.longest_bypass <= 4 * 3 * 65, "{}", tally.longest_bypass);
    assert_eq!(scratch.verdict().violations, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn commands_per_acquisition() {
    // On any machine, however slow, a turn ends by its number of passes, and no confirmation is
    // due.
    let manager = |server: &RedisServer| {
        let store = RedisStore::new(&server.url()).unwrap();
        LockManager::builder(store).with_ttl(LONG).with_wait(LONG).handoff_slice(LONG).build().unwrap()
    };
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let crowd = Crowd::of(&[manager(&server)], &scratch).tasks(32).keys(1).hold(Duration::ZERO).start();
    eventually("grants", || crowd.grants() >= 10_000).await;
    let tally = crowd.stop().await;
    let each = scripts(&server) as f64 / tally.grants as f64;
    figure("commands per acquisition within one process", each);
    // A turn has one token more than callers waited for it.
    assert!(each <= 0.1, "{each}");

    let server = RedisServer::start();
    let crowd =
        Crowd::of(&[manager(&server), manager(&server)], &scratch).tasks(1).keys(1).hold(Duration::ZERO).start();
    eventually("grants", || crowd.grants() >= 1_000).await;
    let tally = crowd.stop().await;
    let each = scripts(&server) as f64 / tally.grants as f64;
    figure("commands per hand-off between two processes", each);
    assert!((1.0..=2.2).contains(&each), "{each}");
}

/// Other libraries poll ten times a second or more, or spin while the first in the queue is dead.
#[tokio::test]
#[limit]
async fn waiting_costs_about_a_command_a_second_since_redis_7() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let guard = take(&one, "k").await;
    let waiting = tokio::spawn(async move { two.lock("k").await.unwrap() });
    eventually("it waits", || server.command(&["EXISTS", "{k}@queue"]) == Reply::Int(1)).await;
    let (before, watch) = (scripts(&server), Stopwatch::start());
    tokio::time::sleep(4 * SECOND).await;
    let (sent, seconds) = (scripts(&server) - before, watch.elapsed().as_secs_f64());
    figure("commands of a waiter, seconds", (sent, seconds));
    // The 3.0 covers the first look of the holder's watchdog.
    assert!(sent as f64 <= 1.5 * seconds + 3.0, "{sent} commands in {seconds} s");
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// Managers whose lost messages and dead heads cost little, because their leases are short.
fn managers(url: &str, count: usize) -> Vec<LockManager> {
    let manager = || LockManager::builder(RedisStore::new(url).unwrap()).with_ttl(SECOND).build().unwrap();
    (0..count).map(|_| manager()).collect()
}
