//! Clients of the classic protocol beside busy callers of ours: they poll, and must get their share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Holder, HolderInfo, LockBackend, LockKey, LockManager, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Ticket};
use lock_testing::{RedisServer, Reply, Report, limit};

use crate::support::{LONG, MS, SECOND, eventually, exists, figure, listening, locks};

const FREE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A lock that two must never be inside of.
#[derive(Default)]
struct Section {
    inside: AtomicBool,
    over: AtomicBool,
    ours: AtomicU64,
    theirs: AtomicU64,
}

impl Section {
    async fn pass(&self, count: &AtomicU64, hold: Duration) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two at once");
        if hold.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(hold).await;
        }
        count.fetch_add(1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

/// Runs busy tasks of ours beside a client that polls, until that has had the lock some times. Without windows
/// it never would: that is what the limit of the test is for.
async fn share(managers: &[LockManager], server: &RedisServer, hold: Duration) -> (u64, u64) {
    let section = Arc::new(Section::default());
    let tasks: Vec<_> = managers
        .iter()
        .map(|locks| {
            let (locks, section) = (locks.clone(), Arc::clone(&section));
            tokio::spawn(async move {
                while !section.over.load(Ordering::SeqCst) {
                    let guard = locks.lock("k").with_wait(LONG).await.unwrap();
                    section.pass(&section.ours, hold).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    eventually("ours are busy", || section.ours.load(Ordering::SeqCst) >= 20).await;
    while section.theirs.load(Ordering::SeqCst) < 5 {
        if server.command(&["SET", "k", "theirs", "NX", "PX", "60000"]) == Reply::Text("OK".to_owned()) {
            section.pass(&section.theirs, hold).await;
            assert_eq!(server.command(&["EVAL", FREE, "1", "k", "theirs"]), Reply::Int(1));
            let ours = section.ours.load(Ordering::SeqCst);
            eventually("ours go on", || section.ours.load(Ordering::SeqCst) > ours).await;
        }
        tokio::time::sleep(MS).await;
    }
    // Not aborted: a task that is cut off inside would look like one that is still there.
    section.over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    (section.ours.load(Ordering::SeqCst), section.theirs.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_polling_client_is_served_beside_one_busy_process() {
    for hold in [5 * MS, Duration::ZERO] {
        let server = RedisServer::start();
        let locks = locks(&server);
        let shares = share(&[locks.clone(), locks], &server, hold).await;
        figure(&format!("one process, two tasks, hold {hold:?}, ours and theirs"), shares);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_polling_client_is_served_beside_two_busy_processes() {
    for hold in [5 * MS, Duration::ZERO] {
        let server = RedisServer::start();
        let shares = share(&[locks(&server), locks(&server)], &server, hold).await;
        figure(&format!("two processes, hold {hold:?}, ours and theirs"), shares);
    }
}

/// Asks by the script, in order to queue.
fn queueing(claim: &Claim, inbox: &Arc<str>) -> AcquireRequest {
    let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "coexistence"));
    request.repeated = true;
    request.ticket = Some(Ticket::new(Arc::clone(inbox), 1, LONG));
    request
}

fn left_free(attempt: Attempt) -> Holder {
    match attempt {
        Attempt::Queued { holder } if holder.info.is_none() => holder,
        other => panic!("not left free: {other:?}"),
    }
}

/// Writes into a lock that it has been passing on for so long.
fn age(server: &RedisServer, key: &str, by: Duration) {
    passes_on_since(server, key, SystemTime::now() - by);
}

/// Writes into a lock since when it has been passing on.
fn passes_on_since(server: &RedisServer, key: &str, began: SystemTime) {
    let value = server.command(&["GET", key]).text().to_owned();
    let began = began.duration_since(UNIX_EPOCH).unwrap();
    let value: Vec<&str> = value.split('|').take(7).collect();
    server.command(&["SET", key, &format!("{}|{}", value.join("|"), began.as_micros()), "KEEPTTL"]);
}

#[tokio::test]
#[limit]
async fn a_lock_that_passes_on_is_left_free_now_and_then() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    let (inbox, mut reports) = listening(&store).await;
    let claim = || Claim::new(LockKey::new("lock:a").unwrap(), 60 * SECOND);
    let (one, two, three) = (claim(), claim(), claim());
    let ask = async |claim: &Claim| store.try_acquire(&queueing(claim, inbox.id())).await.unwrap();
    let requeue = async |before: &Claim, next: &Claim| {
        store.requeue(&Release::new(before.clone()), &queueing(next, inbox.id())).await.unwrap()
    };
    let is_granted = |attempt: &Attempt| matches!(attempt, Attempt::Granted { .. });
    assert!(is_granted(&ask(&one).await));
    age(&server, "lock:a", 200 * MS);
    assert!(is_granted(&requeue(&one, &two).await), "it has passed on for less than a second");
    age(&server, "lock:a", 2 * SECOND);
    let left = left_free(requeue(&two, &one).await).ttl_left.unwrap();
    assert!(left <= 10 * MS, "{left:?}");
    // Somebody was there. From now on it is left free sooner and for longer.
    assert!(!exists(&server, "lock:a"));
    server.command(&["SET", "lock:a", "theirs"]);
    left_free(ask(&one).await);
    server.command(&["DEL", "lock:a"]);
    assert!(is_granted(&ask(&one).await), "it has just been free");
    assert!(matches!(ask(&two).await, Attempt::Queued { .. }));
    age(&server, "lock:a", 150 * MS);
    assert_eq!(store.release(&Release::new(one.clone())).await, Ok(Freed::Released));
    assert!(!exists(&server, "lock:a"), "granted at once");
    // The next claim asks after the gap, as every other caller may. No claim takes the lock before.
    while reports.next().await.unwrap() != Report::AskAgain(two.owner) {}
    let all = [claim(), claim()].map(|claim| queueing(&claim, inbox.id()));
    let started = SystemTime::now();
    loop {
        let joint = store.try_acquire_all(&all[..1]).await.unwrap();
        let taken = is_granted(&ask(&two).await);
        if taken {
            break;
        }
        assert!(!format!("{joint:?}").starts_with("Granted"), "taken in the window");
        assert!(started.elapsed().unwrap() < LONG);
    }
    assert!(matches!(ask(&three).await, Attempt::Queued { .. }));
    // However long this test was kept from running.
    passes_on_since(&server, "lock:a", SystemTime::now() + LONG);
    assert_eq!(store.release(&Release::new(two.clone())).await, Ok(Freed::Released));
    // It has just been free. The joint attempt may have passed it on to the one before.
    while reports.next_grant().await.unwrap().claim.owner != three.owner {}
}

/// The bounds of `lab/benches/MIXED.md`, in polls: each side has the key by its first one that finds it free. Theirs finds it so in
/// each moment that ours leave, ours as soon as theirs have left it.
#[tokio::test]
#[limit]
async fn each_side_has_the_key_by_its_first_poll_that_finds_it_free() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    let (inbox, _reports) = listening(&store).await;
    let claim = || Claim::new(LockKey::new("lock:a").unwrap(), 60 * SECOND);
    let ask = async |claim: &Claim| store.try_acquire(&queueing(claim, inbox.id())).await.unwrap();
    let theirs_asks =
        || server.command(&["SET", "lock:a", "theirs", "NX", "PX", "60000"]) == Reply::Text("OK".to_owned());
    assert!(theirs_asks());
    let mut first = claim();
    for turn in 0..20 {
        // Each poll keeps the place in the queue.
        for _ in 0..3 {
            left_free(ask(&first).await);
        }
        let next = claim();
        left_free(ask(&next).await);
        assert_eq!(server.command(&["DEL", "lock:a"]).int(), 1);
        let ours = ask(&first).await;
        assert!(matches!(ours, Attempt::Granted { .. }), "turn {turn}: {ours:?}");
        assert!(matches!(ask(&next).await, Attempt::Queued { .. }) && !theirs_asks(), "turn {turn}");
        // A claim of this library waits, and the key has passed on for 100 ms since the other client was seen.
        age(&server, "lock:a", 150 * MS);
        assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
        assert!(theirs_asks(), "turn {turn}: nothing was left free");
        first = next;
    }
}

/// Such moments are noted in the server's time.
#[tokio::test]
#[limit]
async fn a_clock_that_steps_back_keeps_no_lock_free() {
    let server = RedisServer::start();
    let store = RedisStore::new(&server.url()).unwrap();
    let far = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + 3600 * SECOND;
    server.command(&["HSET", "{lock:a}@waiters", "others", &format!("{}|0", far.as_micros())]);
    let claim = Claim::new(LockKey::new("lock:a").unwrap(), 60 * SECOND);
    let attempt = store.try_acquire(&queueing(&claim, &"nobody".into())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted { .. }), "{attempt:?}");
}
