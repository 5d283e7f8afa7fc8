//! Inboxes in single slots, which only the master of the slot knows of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_core::{GrantPath, HolderInfo, LockBackend, LockGuard, LockKey, LockManager, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Inbox, Release, Ticket};
use lock_testing::{EventLog, RedisCluster, RedisServer, Reply, Report, limit};
use tokio::task::JoinHandle;

use super::failover::{synced, take_over};
use super::refusing::services;
use crate::support::{MS, SECOND, all_told, eventually, exists, listening, locked_keys, locks_at, take};

/// Returns the channels of single slots to which somebody listens at a master.
fn channels(master: &RedisServer) -> Vec<String> {
    let Reply::List(channels) = master.command(&["PUBSUB", "SHARDCHANNELS"]) else { panic!("no list of channels") };
    channels.iter().map(|channel| channel.text().to_owned()).collect()
}

/// Waits until somebody listens in so many slots of a master. That begins when a process waits, or asks again a second
/// later, and not with the next of the rounds that are half a minute apart.
async fn heard(master: &RedisServer, count: usize) {
    let took = eventually("processes listen in slots", || channels(master).len() == count).await;
    assert!(took < 20 * SECOND, "{took:?}");
}

/// Returns how often the masters ran a command since they forgot what they had run.
fn calls(cluster: &RedisCluster, command: &str) -> u64 {
    let of = |master: &RedisServer| -> u64 {
        let stats = master.command(&["INFO", "commandstats"]);
        let start = format!("cmdstat_{command}:calls=");
        stats.text().lines().find_map(|line| line.strip_prefix(&*start)?.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    cluster.masters().iter().map(of).sum()
}

fn forget_calls(cluster: &RedisCluster) {
    cluster.masters().iter().for_each(|master| drop(master.command(&["CONFIG", "RESETSTAT"])));
}

/// Waits for a lock, in another task.
fn wait_for(locks: &LockManager, name: &str) -> JoinHandle<LockGuard> {
    let (locks, name) = (locks.clone(), name.to_owned());
    tokio::spawn(async move { take(&locks, &name).await })
}

/// Waits until so many claims stand in a queue.
async fn queued(master: &RedisServer, name: &str, count: i64) {
    let queue = format!("{{{name}}}@queue");
    eventually("it waits", || master.command(&["ZCARD", &queue]) == Reply::Int(count)).await;
}

/// Waits until so many processes listen at every master.
async fn listening_everywhere(cluster: &RedisCluster, processes: usize) {
    let listening = |master: &RedisServer| {
        let Reply::List(channels) = master.command(&["PUBSUB", "CHANNELS"]) else { panic!("no list of channels") };
        channels.len() == processes + 1 // and the one of all of them
    };
    eventually("all listen", || cluster.masters().iter().all(listening)).await;
}

/// A process whose grants are looked at.
fn watched_at(url: &str) -> (LockManager, EventLog) {
    let (locks, events) = (locks_at(url), EventLog::default());
    locks.observe(events.clone());
    (locks, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_grant_is_told_to_no_other_node_than_the_master_of_its_slot_since_redis_7() {
    let cluster = RedisCluster::start(3);
    let locks = locks_at(&cluster.url());
    let (others, events) = watched_at(&cluster.url());
    for (at, master) in cluster.masters().iter().enumerate() {
        let name = cluster.key_on(at, "lock:");
        // There are neither waiters nor listeners.
        take(&locks, &name).await.release().await.unwrap();
        take(&others, &name).await.release().await.unwrap();
        assert_eq!(channels(master), [""; 0]);
        let guard = take(&locks, &name).await;
        let waiting = wait_for(&others, &name);
        heard(master, 1).await;
        forget_calls(&cluster);
        guard.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (1, 0), "{name}");
        guard.release().await.unwrap();
        // A lock that was shared does not take the short way through the scripts.
        let (readers, writer) = (locks.read(&name).await.unwrap(), wait_for(&others, &name));
        // The holder stands there too.
        queued(master, &name, 2).await;
        heard(master, 1).await;
        forget_calls(&cluster);
        readers.release().await.unwrap();
        writer.await.unwrap().release().await.unwrap();
        assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (1, 0), "{name}, shared");
        assert_eq!(locked_keys(master), [""; 0]);
    }
    all_told(&events).await;
    assert_eq!(events.paths().iter().filter(|path| **path == GrantPath::Granted).count(), 6, "{:?}", events.paths());
    // The inboxes of a manager are closed with it.
    drop(others);
    for master in cluster.masters() {
        heard(master, 0).await;
    }
}

/// A claim that shares a lock hears of a waiter on every inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn calls_to_ask_again_and_news_of_who_waits_come_the_same_way_since_redis_7() {
    let cluster = RedisCluster::start(1);
    let (name, other) = (cluster.key_on(0, "{t}:"), cluster.key_on(0, "{t}:other:"));
    let (locks, (others, events)) = (locks_at(&cluster.url()), watched_at(&cluster.url()));
    // Both listen in the slot, because both wait for something in it.
    let (one, two) = (take(&locks, &other).await, take(&others, &name).await);
    let (first, second) = (wait_for(&others, &other), wait_for(&locks, &name));
    heard(&cluster.masters()[0], 2).await;
    forget_calls(&cluster);
    one.release().await.unwrap();
    two.release().await.unwrap();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (2, 0));
    first.release().await.unwrap();
    second.release().await.unwrap();
    let reader = locks.read(&name).await.unwrap();
    let writer = wait_for(&others, &name);
    eventually("the reader is told", || calls(&cluster, "spublish") == 3).await;
    assert_eq!(calls(&cluster, "publish"), 0);
    reader.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
    all_told(&events).await;
}

/// Each with what some user may do, in how many slots the process that waits then listens, and how often its grant is
/// passed on to all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn who_may_not_use_them_tells_and_is_told_as_before_since_redis_7() {
    let cluster = RedisCluster::start(2);
    let user = |name: &str, rules: &str| {
        for master in cluster.masters() {
            let words = format!("ACL SETUSER {name} on >pw {rules}");
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(master.command(&words), Reply::Text("OK".to_owned()));
        }
        cluster.url().replace("redis+cluster://", &format!("redis+cluster://{name}:pw@"))
    };
    let all = user("all", "~* &* +@all");
    let deaf = user("deaf", "~* &* +@all -ssubscribe");
    let documented = include_str!("../../../../stores/lock-redis/src/acl.txt").split_once(">password").unwrap().1;
    let plain = user("plain", documented);
    let documented =
        user("documented", &format!("{documented} +ssubscribe +sunsubscribe +spublish +pubsub|shardnumsub"));
    for (what, holder, waiter, listens, published) in [
        ("as documented", documented.clone(), documented, 1, 0),
        ("documented for one server", plain.clone(), plain, 0, 1),
        ("who tells may not listen", deaf.clone(), all.clone(), 1, 0),
        ("who waits may not listen", all.clone(), deaf, 0, 1),
        ("who tells may not ask", user("blind", "~* &* +@all -pubsub|shardnumsub"), all.clone(), 1, 1),
        ("who tells may not tell", user("mute", "~* &* +@all -spublish"), all.clone(), 1, 1),
    ] {
        let (name, master) = (cluster.key_on(1, &format!("lock:{what}:")), &cluster.masters()[1]);
        master.command(&["ACL", "LOG", "RESET"]);
        let (locks, (others, events)) = (locks_at(&holder), watched_at(&waiter));
        let guard = take(&locks, &name).await;
        let waiting = wait_for(&others, &name);
        queued(master, &name, 1).await;
        heard(master, listens).await;
        if listens == 0 {
            eventually("it is refused", || denied(master)).await;
        }
        forget_calls(&cluster);
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        all_told(&events).await;
        assert_eq!(events.paths(), [GrantPath::Granted], "{what}");
        assert_eq!(calls(&cluster, "publish"), published, "{what}");
        drop(others);
        heard(master, 0).await;
    }
}

/// Returns whether a master has refused a command to some user.
fn denied(master: &RedisServer) -> bool {
    matches!(master.command(&["ACL", "LOG"]), Reply::List(entries) if !entries.is_empty())
}

/// As Redis 6.2 says it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_server_without_them_is_served_by_the_inbox_of_the_process_since_redis_7() {
    let cluster = RedisCluster::start(2);
    let (services, url) = services(&cluster, |_, words| {
        words[0]
            .eq_ignore_ascii_case(b"SSUBSCRIBE")
            .then_some("ERR unknown command `SSUBSCRIBE`, with args beginning with:")
    });
    let (locks, (others, events)) = (locks_at(&url), watched_at(&url));
    let name = cluster.key_on(0, "lock:");
    let guard = take(&locks, &name).await;
    let waiting = wait_for(&others, &name);
    eventually("it is refused", || services[0].refused() > 0).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    all_told(&events).await;
    assert_eq!((events.paths(), services[0].refused()), (vec![GrantPath::Granted], 1));
    assert!(cluster.masters().iter().all(|master| channels(master).is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_process_that_waits_in_a_slot_that_moves_is_told_by_its_new_master_since_redis_7() {
    let cluster = RedisCluster::start(2);
    let name = cluster.key_on(0, "lock:");
    let locks = locks_at(&cluster.url());
    let (others, events) = watched_at(&cluster.url());
    listening_everywhere(&cluster, 2).await;
    for (from, to) in [(0, 1), (1, 0)] {
        let guard = take(&locks, &name).await;
        let waiting = wait_for(&others, &name);
        heard(&cluster.masters()[from], 1).await;
        cluster.move_slot(&name, from, to);
        heard(&cluster.masters()[from], 0).await;
        if to == 0 {
            // A waiter finds it again.
            heard(&cluster.masters()[to], 1).await;
            forget_calls(&cluster);
        }
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        if to == 0 {
            assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (1, 0));
        }
    }
    all_told(&events).await;
    assert_eq!(events.paths(), [GrantPath::Granted; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_process_that_waits_at_a_master_that_dies_is_told_by_its_replica_since_redis_7() {
    let mut cluster = RedisCluster::start(3);
    let replica = cluster.start_replica_of(0);
    let name = cluster.key_on(0, "lock:");
    let (locks, others) = (locks_at(&cluster.url()), locks_at(&cluster.url()));
    let guard = locks.lock(&name).with_ttl(60 * SECOND).await.unwrap();
    let waiting = wait_for(&others, &name);
    heard(&cluster.masters()[0], 1).await;
    synced(&cluster.masters()[0], &replica).await;
    cluster.kill(0);
    take_over(&replica);
    heard(&replica, 1).await;
    replica.command(&["CONFIG", "RESETSTAT"]);
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    let stats = replica.command(&["INFO", "commandstats"]);
    assert!(stats.text().contains("cmdstat_spublish:calls=1"), "{}", stats.text());
    assert!(!stats.text().contains("cmdstat_publish:"), "{}", stats.text());
}

/// Closes the only connection that listens in a slot, and waits for the next.
async fn closed_and_opened_again(master: &RedisServer) {
    let listener = || {
        let clients = master.command(&["CLIENT", "LIST"]);
        let line = clients.text().lines().find(|line| line.contains(" ssub=1 "))?;
        line.split(' ').find_map(|word| word.strip_prefix("id=").map(str::to_owned))
    };
    eventually("it listens", || listener().is_some()).await;
    let first = listener().unwrap();
    assert_eq!(master.command(&["CLIENT", "KILL", "ID", &first]), Reply::Int(1));
    eventually("it listens again", || listener().is_some_and(|id| id != first)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_connection_that_is_closed_is_opened_again_while_somebody_waits_since_redis_7() {
    let cluster = RedisCluster::start(2);
    let (name, master) = (cluster.key_on(0, "lock:"), &cluster.masters()[0]);
    let (locks, others) = (locks_at(&cluster.url()), locks_at(&cluster.url()));
    let guard = take(&locks, &name).await;
    let waiting = wait_for(&others, &name);
    closed_and_opened_again(master).await;
    forget_calls(&cluster);
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (1, 0));
}

/// The client takes the news that a slot has left for the answer to whatever was asked last.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_slot_that_leaves_while_another_is_asked_for_confuses_nobody_since_redis_7() {
    let cluster = RedisCluster::start(2);
    let (asked, holds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (_services, url) = services(&cluster, {
        let (asked, holds) = (Arc::clone(&asked), Arc::clone(&holds));
        move |_, words| {
            // The second is held back.
            if words[0].eq_ignore_ascii_case(b"SSUBSCRIBE") && asked.fetch_add(1, Ordering::SeqCst) == 1 {
                for _ in 0..30_000 {
                    if !holds.load(Ordering::SeqCst) {
                        break;
                    }
                    std::thread::sleep(MS);
                }
            }
            None
        }
    });
    let (locks, (others, events)) = (locks_at(&url), watched_at(&url));
    let (leaves, stays) = (cluster.key_on(0, "leaves:"), cluster.key_on(0, "stays:"));
    let (first, second) = (take(&locks, &leaves).await, take(&locks, &stays).await);
    let one = wait_for(&others, &leaves);
    heard(&cluster.masters()[0], 1).await;
    let two = wait_for(&others, &stays);
    eventually("the second is asked for", || asked.load(Ordering::SeqCst) == 2).await;
    cluster.move_slot(&leaves, 0, 1);
    heard(&cluster.masters()[0], 0).await;
    holds.store(false, Ordering::SeqCst);
    for master in cluster.masters() {
        heard(master, 1).await;
    }
    // Over another connection, because the first one's answers are those to other commands.
    eventually("both are asked for again", || asked.load(Ordering::SeqCst) >= 4).await;
    forget_calls(&cluster);
    first.release().await.unwrap();
    second.release().await.unwrap();
    one.await.unwrap().release().await.unwrap();
    two.await.unwrap().release().await.unwrap();
    assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (2, 0));
    all_told(&events).await;
}

/// Asks for a lock, with a place in the queue if a process is to wait for it.
fn asking(name: &str, inbox: Option<&Inbox>) -> AcquireRequest {
    let claim = Claim::new(LockKey::new(name).unwrap(), 600 * SECOND);
    let mut request = AcquireRequest::new(claim, HolderInfo::new("host", 1, "site"));
    request.ticket = inbox.map(|inbox| Ticket::new(Arc::clone(inbox.id()), 1, 600 * SECOND));
    request
}

#[tokio::test]
#[limit]
async fn whoever_waits_asks_again_when_a_connection_may_have_lost_a_message_since_redis_7() {
    let cluster = RedisCluster::start(1);
    let store = Arc::new(RedisStore::new(&cluster.url()).unwrap());
    let (inbox, mut reports) = listening(&store).await;
    store.try_acquire(&asking("lock", None)).await.unwrap();
    assert!(matches!(store.try_acquire(&asking("lock", Some(&inbox))).await.unwrap(), Attempt::Queued { .. }));
    heard(&cluster.masters()[0], 1).await;
    while reports.try_next().is_some() {}
    closed_and_opened_again(&cluster.masters()[0]).await;
    eventually("it is told to", || reports.try_next() == Some(Report::Reconnected)).await;
}

/// On this runtime, so that time can be made to pass.
#[tokio::test]
#[limit]
async fn a_slot_in_which_nobody_waits_is_given_up_within_a_minute_since_redis_7() {
    let cluster = RedisCluster::start(1);
    let master = &cluster.masters()[0];
    let store = Arc::new(RedisStore::new(&cluster.url()).unwrap());
    let (inbox, _reports) = listening(&store).await;
    let half_a_minute = async || {
        tokio::time::pause();
        tokio::time::advance(31 * SECOND).await;
        tokio::time::resume();
        // The sleepers are awake.
        tokio::time::sleep(20 * MS).await;
    };
    for name in ["lock:1", "lock:2"] {
        store.try_acquire(&asking(name, None)).await.unwrap();
    }
    let waiters = ["lock:1", "lock:2"].map(|name| asking(name, Some(&inbox)));
    for waiter in &waiters {
        assert!(matches!(store.try_acquire(waiter).await.unwrap(), Attempt::Queued { .. }));
    }
    heard(master, 2).await;
    // One of them goes on to wait.
    for _ in 0..3 {
        half_a_minute().await;
        assert!(matches!(store.try_acquire(&waiters[1]).await.unwrap(), Attempt::Queued { .. }));
    }
    heard(master, 1).await;
    for waiter in &waiters {
        store.release(&Release::new(waiter.claim.clone())).await.unwrap();
    }
    assert!(!exists(master, "{lock:2}@queue"));
    half_a_minute().await;
    half_a_minute().await;
    heard(master, 0).await;
    // And taken up again.
    assert!(matches!(store.try_acquire(&waiters[0]).await.unwrap(), Attempt::Queued { .. }));
    heard(master, 1).await;
}
