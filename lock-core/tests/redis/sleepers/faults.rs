//! Faults while claims sleep.

use std::time::Duration;

use lock_core::Renew;
use lock_testing::{FaultProxy, RedisServer, Reply, Stopwatch, limit};
use tokio::task::JoinSet;

use super::{age, all_asleep, asleep, entries, now, queue_up, stamps, wait_for_k};
use crate::support::{
    LONG, MS, SECOND, Scratch, Worker, eventually, locked_keys, locks, nothing_is_left, pttl, take, warm,
};

/// A process that takes leases of three seconds.
async fn process(server: &RedisServer, scratch: &Scratch) -> Worker {
    let (url, history) = (server.url(), scratch.path("history"));
    let mut worker = Worker::start("hold", &[("url", &url), ("history", &history), ("ttl_ms", "3000")]);
    assert_eq!(worker.next().await, "ready");
    worker
}

/// A process that waits for `k` behind so many others.
async fn waiting(server: &RedisServer, scratch: &Scratch, behind: usize) -> Worker {
    let mut worker = process(server, scratch).await;
    worker.send("acquire k").await;
    eventually("it queues", || entries(server).len() == behind + 1).await;
    worker
}

#[tokio::test]
#[limit]
async fn one_that_was_frozen_in_its_sleep_does_not_enter_when_its_grant_is_over() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let (one, two) = (locks(&server), locks(&server));
    for locks in [&one, &two] {
        locks.observe(scratch.recorder());
    }
    let guard = take(&one, "k").await;
    let mut frozen = waiting(&server, &scratch, 0).await;
    let next = tokio::spawn(async move { two.lock("k").await.unwrap() });
    all_asleep(&server, 2).await;
    frozen.stop();
    scratch.recorder().release(guard.key(), guard.token());
    let released = Stopwatch::start();
    guard.release().await.unwrap();
    let holder = one.holder("k").await.unwrap().expect("the lock passes on in the release");
    assert_eq!(holder.info.map(|info| info.pid), Some(frozen.pid()), "its connection lives, so it is granted");
    let second = next.await.unwrap();
    // The other one was woken, and asked when the grant ended.
    released.assert_within(3 * SECOND + SECOND, "the turn after one that nobody took");
    frozen.resume();
    tokio::time::sleep(SECOND).await;
    second.ensure_held().unwrap();
    scratch.recorder().release(second.key(), second.token());
    second.release().await.unwrap();
    assert!(frozen.next().await.starts_with("held "));
    assert_eq!(frozen.order("release").await, "Released");
    frozen.ended().await;
    assert_eq!(scratch.verdict().violations, []);
}

/// The holder is killed, and so many of those who sleep behind it.
async fn after_deaths(killed: usize, within: Duration) {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let mut holder = process(&server, &scratch).await;
    assert!(holder.order("acquire k").await.starts_with("held "));
    let mut dying = Vec::new();
    for behind in 0..killed {
        dying.push(waiting(&server, &scratch, behind).await);
    }
    let last = locks(&server);
    let next = tokio::spawn(async move { last.lock("k").with_wait(LONG).await.unwrap() });
    all_asleep(&server, killed + 1).await;
    for worker in dying.iter_mut().chain([&mut holder]) {
        worker.kill().await;
    }
    let killed_at = Stopwatch::start();
    let guard = next.await.unwrap();
    killed_at.assert_within(within, "the next turn");
    guard.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_dead_holder_costs_its_lease() {
    after_deaths(0, 3 * SECOND + 500 * MS).await;
}

#[tokio::test]
#[limit]
async fn a_dead_holder_and_a_dead_head_cost_no_more() {
    after_deaths(1, 3 * SECOND + 500 * MS).await;
}

#[tokio::test]
#[limit]
async fn whoever_stands_behind_three_deaths_looks_within_ten_seconds() {
    after_deaths(2, 3 * SECOND + 10 * SECOND).await;
}

#[tokio::test]
#[limit]
async fn who_could_not_hear_for_a_while_asks_at_once() {
    let server = RedisServer::start();
    let guard = locks(&server).lock("k").with_ttl(LONG).await.unwrap();
    let mut tasks = JoinSet::new();
    queue_up(&server, &mut tasks, 5).await;
    all_asleep(&server, 5).await;
    let before = stamps(&server);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let cut = Stopwatch::start();
    eventually("all ask again", || stamps(&server).iter().all(|stamp| !before.contains(stamp))).await;
    cut.assert_within(3 * SECOND, "the next word of those who were cut off");
    assert_eq!(entries(&server).len(), 5, "all keep their places");
    guard.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
#[limit]
async fn nobody_sleeps_who_may_not_listen_any_more() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all"]);
    let guard = locks(&server).lock("k").with_ttl(LONG).await.unwrap();
    let deaf = warm(&format!("redis://deaf:secret@127.0.0.1:{}", server.port())).await;
    let next = tokio::spawn(async move { deaf.lock("k").with_wait(LONG).await.unwrap() });
    all_asleep(&server, 1).await;
    server.command(&["ACL", "SETUSER", "deaf", "-subscribe"]);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Longer than the time after which it polls.
    tokio::time::sleep(2 * SECOND).await;
    let released = Stopwatch::start();
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    released.assert_within(SECOND, "the turn of one that polls");
}

#[tokio::test]
#[limit]
async fn a_queue_that_is_lost_is_entered_again_at_once() {
    let server = RedisServer::start();
    let guard = take(&locks(&server), "k").await;
    let mut tasks = JoinSet::new();
    for name in 0..50 {
        wait_for_k(&mut tasks, locks(&server), name);
    }
    all_asleep(&server, 50).await;
    let lost = Stopwatch::start();
    server.command(&["FLUSHALL"]);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    lost.assert_within(5 * SECOND, "fifty turns after everything was lost");
    drop(guard);
}

/// All of twenty processes, each of which waits for the same fifty locks.
#[tokio::test]
#[limit(300)]
async fn a_thousand_that_sleep_are_served_again_when_the_server_has_been_restarted() {
    const PROCESSES: usize = 20;
    const LOCKS: usize = 50;
    let mut server = RedisServer::start();
    let holder = locks(&server);
    let (mut held, mut tasks) = (Vec::new(), JoinSet::new());
    for lock in 0..LOCKS {
        held.push(holder.lock(format!("k{lock}")).with_ttl(LONG).await.unwrap());
    }
    for _ in 0..PROCESSES {
        let locks = locks(&server);
        for lock in 0..LOCKS {
            let wait = locks.lock(format!("k{lock}")).with_wait(LONG);
            tasks.spawn(async move { wait.await.unwrap().release().await.map(drop) });
        }
    }
    let queue = |lock: usize| format!("{{k{lock}}}@queue");
    let standing = |lock| server.command(&["ZCARD", &queue(lock)]) == Reply::Int(PROCESSES as i64);
    eventually("all wait", || (0..LOCKS).all(standing)).await;
    for lock in 0..LOCKS {
        super::age_queue(&server, &queue(lock));
    }
    let sleeping = |lock| {
        let now = now(&server);
        let entries = super::entries_of(&server, &format!("{{k{lock}}}@waiters"));
        entries.len() == PROCESSES && entries.iter().all(|entry| entry[2].parse::<i64>().unwrap() > now)
    };
    eventually("all sleep", || (0..LOCKS).all(sleeping)).await;
    server.kill();
    server.restart();
    let back = Stopwatch::start();
    while let Some(done) = tasks.join_next().await {
        // A lock of which the restart took the lease is lost, which its holder is told.
        done.unwrap().unwrap();
    }
    // Fifty queues of twenty move on at the same time: how soon that is done, the machine decides.
    println!("figure: a thousand turns after a restart: {:?}", back.elapsed());
    drop(held);
    nothing_is_left(&server).await;
}

/// It takes the lock out of our hands, and leaves it, twice.
#[tokio::test]
#[limit]
async fn a_foreign_client_that_comes_and_goes_costs_no_place() {
    let server = RedisServer::start();
    let guard = locks(&server).lock("k").with_ttl(LONG).with_renew(Renew::Off).await.unwrap();
    let mut tasks = JoinSet::new();
    queue_up(&server, &mut tasks, 4).await;
    all_asleep(&server, 4).await;
    for _ in 0..2 {
        server.command(&["SET", "k", "foreign", "PX", "60000"]);
        // The first two look at it again and again, the others are as they were.
        eventually("two watch it", || asleep(&server) == 2).await;
        let before = stamps(&server);
        eventually("they do", || stamps(&server).iter().filter(|stamp| !before.contains(stamp)).count() == 2).await;
        assert_eq!((entries(&server).len(), asleep(&server)), (4, 2));
        server.command(&["SET", "k", "another", "PX", "60000"]);
    }
    let gone = Stopwatch::start();
    server.command(&["DEL", "k"]);
    let mut order = Vec::new();
    while let Some(name) = tasks.join_next().await {
        order.push(name.unwrap());
    }
    gone.assert_within(5 * SECOND, "the turns of all");
    assert_eq!(order, [0, 1, 2, 3]);
    drop(guard);
    // That a foreign client was there is known for half a minute, and then no more.
    eventually("nothing else is left", || {
        let fields = server.command(&["HKEYS", "{k}@waiters"]);
        locked_keys(&server) == ["{k}@waiters"]
            && matches!(&fields, Reply::List(all) if all.len() == 1 && all[0].text() == "others")
    })
    .await;
    assert!((1..=30_000).contains(&pttl(&server, "{k}@waiters")));
}

/// This sends no message, like a lost one: a claim that watches the lock asks now and then.
#[tokio::test]
#[limit]
async fn a_lock_that_somebody_deletes_is_taken_by_one_that_watches_it() {
    let server = RedisServer::start();
    // It is never renewed, so its holder does not look.
    let guard = locks(&server).lock("k").with_ttl(LONG).with_renew(Renew::Off).await.unwrap();
    let mut tasks = JoinSet::new();
    queue_up(&server, &mut tasks, 3).await;
    all_asleep(&server, 3).await;
    let deleted = Stopwatch::start();
    server.command(&["DEL", "k"]);
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), 0);
    deleted.assert_within(11 * SECOND, "the next turn");
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    drop(guard);
}

/// The connection that listens is dead, and nothing says so.
#[tokio::test]
#[limit]
async fn a_listener_that_is_cut_in_silence_is_found_out_while_claims_sleep() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let guard = locks(&server).lock("k").with_ttl(LONG).await.unwrap();
    let behind = warm(&proxy.url()).await;
    let waiting = behind.clone();
    let next = tokio::spawn(async move { waiting.lock("k").with_wait(LONG).await.unwrap() });
    all_asleep(&server, 1).await;
    // The answer to this comes behind the one that says so.
    take(&behind, "other").await.release().await.unwrap();
    let inbox = entries(&server).remove(0).remove(0);
    let listening = || server.command(&["PUBSUB", "NUMSUB", &inbox]);
    let before = listening();
    proxy.strand_connections();
    let cut = Stopwatch::start();
    eventually("it listens over another connection too", || listening() != before).await;
    cut.assert_within(8 * SECOND, "finding out that nothing can be heard");
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
}

/// Given up while it sleeps, while its grant is on its way, while it is confirmed, and by a time-out.
#[tokio::test]
#[limit]
async fn one_that_is_given_up_in_its_sleep_leaves_nothing_behind() {
    let server = RedisServer::start();
    let holder = locks(&server);
    let proxy = FaultProxy::start(server.port());
    let sleeper = warm(&proxy.url()).await;
    for round in 0_u32..8 {
        let guard = take(&holder, "k").await;
        let locks = sleeper.clone();
        let next = tokio::spawn(async move { locks.lock("k").with_wait(LONG).await.map(drop) });
        all_asleep(&server, 1).await;
        match round {
            0 => {}
            // Its confirmation arrives, and the answer to it does not.
            1 => {
                proxy.drop_replies(2);
                guard.release().await.unwrap();
                tokio::time::sleep(20 * MS).await;
            }
            _ => {
                tokio::spawn(guard.release());
                tokio::time::sleep(round * MS / 2).await;
            }
        }
        next.abort();
        let _ = next.await;
        proxy.resume();
        if round == 0 {
            eventually("its place is left", || entries(&server).is_empty()).await;
            take_after_release(&server).await;
        }
        eventually("nothing stays", || server.command(&["EXISTS", "k", "{k}@queue", "{k}@waiters"]) == Reply::Int(0))
            .await;
    }
}

/// The lock is freed by its deletion, and works.
async fn take_after_release(server: &RedisServer) {
    server.command(&["DEL", "k"]);
    take(&locks(server), "k").await.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_time_out_in_its_sleep_is_kept_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let guard = locks(&server).lock("k").with_ttl(LONG).await.unwrap();
    let other = locks(&server);
    let waited = Stopwatch::start();
    let next = tokio::spawn(async move { other.lock("k").with_wait(5 * SECOND).await.map(drop) });
    all_asleep(&server, 1).await;
    let error = next.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), lock_core::LockErrorKind::Timeout);
    waited.assert_within(6 * SECOND, "a wait of five seconds");
    eventually("its place is left", || entries(&server).is_empty()).await;
    guard.release().await.unwrap();
    assert_eq!(server.command(&["EXISTS", "k", "{k}@queue", "{k}@waiters"]), Reply::Int(0));
}

/// The effect of an older version on a sleeper: it does not know of sleep, but reads the entry nevertheless.
#[tokio::test]
#[limit]
async fn an_entry_of_one_that_sleeps_is_what_every_version_reads() {
    let server = RedisServer::start();
    let guard = locks(&server).lock("k").with_ttl(LONG).await.unwrap();
    let other = locks(&server);
    let next = tokio::spawn(async move { other.lock("k").with_wait(LONG).await.unwrap() });
    all_asleep(&server, 1).await;
    let entry = entries(&server).remove(0);
    // inbox, stamp, confirmed, reach, grant_ttl, floor, ttl, host, pid, site, name
    assert_eq!((entry.len(), &*entry[3], &*entry[4]), (11, "0", "3000"));
    let ahead = entry[2].parse::<i64>().unwrap() - now(&server);
    assert!((1..=27_000_000).contains(&ahead), "three pauses, less the lease of a grant: {ahead}");
    age(&server);
    assert_eq!(asleep(&server), 1);
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
}
