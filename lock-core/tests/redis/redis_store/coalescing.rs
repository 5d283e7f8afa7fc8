//! Calls pending for one connection leave together, but fail separately.

mod background;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::{LockBackend, LockError, LockErrorKind, RedisStore};
use lock_store::{Attempt, Claim, Freed, Release, Ticket};
use lock_testing::{RedisServer, Reply, limit};
use tokio::task::{JoinHandle, yield_now};

use crate::redis_store::{acquire, claim, granted, release, request, store, token};

type Acquiring<'a> = Pin<Box<dyn Future<Output = Result<Attempt, LockError>> + 'a>>;

/// Counts scripts and transactions.
fn calls(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let count = |name: &str| -> u64 {
        let line = stats.text().lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0,");
        line.split(',').next().unwrap().parse().unwrap()
    };
    count("cmdstat_evalsha:calls=") + count("cmdstat_exec:calls=")
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

fn claims(count: usize) -> Vec<Claim> {
    (0..count).map(|n| claim(&format!("lock:{n}"))).collect()
}

/// Polls a future once. Its waker does nothing.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets the connection write and read as much as it can.
async fn let_others_run() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Sends a call that the stopped server does not answer, so that the calls after it gather.
async fn occupy(store: &Arc<RedisStore>) -> JoinHandle<Result<Attempt, LockError>> {
    let store = Arc::clone(store);
    let first = tokio::spawn(async move { acquire(&store, &claim("first")).await });
    let_others_run().await;
    first
}

async fn connected(server: &RedisServer) -> Arc<RedisStore> {
    let store = Arc::new(store(server));
    granted(&store, &claim("warm")).await;
    store
}

async fn within_seconds<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("an answer that somebody waits for")
}

#[tokio::test]
#[limit]
async fn many_at_once_leave_in_few_scripts() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let before = calls(&server);
    let tasks: Vec<_> = claims(64)
        .into_iter()
        .map(|claim| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                token(acquire(&store, &claim).await.unwrap());
                release(&store, &claim).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), Freed::Released);
    }
    let used = calls(&server) - before;
    assert!(used <= 32, "{used} scripts for 64 acquires and 64 releases");
}

#[tokio::test]
#[limit]
async fn one_task_that_waits_for_many_sends_them_together_too() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let (before, claims) = (calls(&server), claims(4));
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| acquire(&store, &claims[n]));
    let answers = tokio::join!(a, b, c, d);
    for answer in [answers.0, answers.1, answers.2, answers.3] {
        token(answer.unwrap());
    }
    assert_eq!(calls(&server) - before, 2, "the first alone, as the connection was idle, and the others");
}

#[tokio::test]
#[limit]
async fn who_finds_the_connection_idle_waits_for_nobody() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let lone = claim("lock:lone");
    let mut acquiring = pin!(acquire(&store, &lone));
    assert!(poll_once(acquiring.as_mut()).is_pending());
    // The future is not polled again, so its first poll must have sent the call.
    while !exists(&server, "lock:lone") {
        yield_now().await;
    }
    token(acquiring.await.unwrap());
}

#[tokio::test]
#[limit]
async fn a_key_of_another_type_fails_alone() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    server.command(&["RPUSH", "lock:3", "x"]);
    server.command(&["RPUSH", "{lock:5}@queue", "x"]);
    let (before, claims) = (calls(&server), claims(8));
    let answers = all(&store, &claims).await;
    assert_eq!(calls(&server) - before, 3, "one by itself, the others together, and a script for the one refused");
    for (n, answer) in answers.into_iter().enumerate() {
        match n {
            3 => {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), LockErrorKind::Misconfigured);
                assert!(error.to_string().contains("\"lock:3\""), "{error}");
            }
            // The broken queue only affects waiters.
            _ => drop(token(answer.unwrap())),
        }
    }
}

#[tokio::test]
#[limit]
async fn a_key_that_is_not_permitted_fails_alone() {
    let server = RedisServer::start();
    let rules = "ACL SETUSER app on >pw ~lock:* ~{lock:* ~distributed-lock:clock &* +@all";
    server.command(&rules.split(' ').collect::<Vec<_>>());
    let store = Arc::new(RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap());
    granted(&store, &claim("lock:warm")).await;
    let mut claims = claims(8);
    claims[4] = claim("elsewhere");
    for (n, answer) in all(&store, &claims).await.into_iter().enumerate() {
        if n == 4 {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured);
            assert_eq!(error.key(), Some(&claims[4].key));
        } else {
            token(answer.unwrap());
        }
    }
}

#[tokio::test]
#[limit]
async fn a_full_memory_refuses_acquires_but_not_the_release_beside_them() {
    let server = RedisServer::builder().with_maxmemory("0", "noeviction").start();
    let store = connected(&server).await;
    let held = claim("lock:held");
    granted(&store, &held).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let [a, b, c] = ["lock:a", "lock:b", "lock:c"].map(claim);
    // The server checks its memory only before the first write of a script, so the release comes
    // last.
    let (alone, one, other, freed) =
        tokio::join!(acquire(&store, &a), acquire(&store, &b), acquire(&store, &c), release(&store, &held));
    assert_eq!(freed, Freed::Released);
    for refused in [alone, one, other] {
        let error = refused.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("(OOM: "), "{error}");
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(!exists(&server, "lock:held"));
}

#[tokio::test]
#[limit]
async fn a_flush_of_the_scripts_in_the_middle_is_not_noticed() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    server.pause();
    let first = occupy(&store).await;
    let claims = claims(10);
    let mut waiting: Vec<Acquiring<'_>> = claims.iter().map(|claim| boxed(&store, claim)).collect();
    waiting.iter_mut().for_each(|acquiring| assert!(poll_once(acquiring.as_mut()).is_pending()));
    server.resume();
    server.command(&["SCRIPT", "FLUSH"]);
    for acquiring in waiting {
        token(within_seconds(acquiring).await.unwrap());
    }
    token(first.await.unwrap().unwrap());
}

#[tokio::test]
#[limit]
async fn each_call_has_its_own_deadline() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    server.pause();
    let first = occupy(&store).await;
    let (fresh, late) = (claim("lock:fresh"), claim("lock:late"));
    let late_claim = late.clone();
    let mut hasty = request(&late);
    hasty.execute_within = Duration::from_millis(50);
    let late = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.try_acquire(&hasty).await }
    });
    let fresh = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store, &fresh).await }
    });
    let_others_run().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    late.abort();
    server.resume();
    token(fresh.await.unwrap().unwrap());
    token(first.await.unwrap().unwrap());
    // Its caller has gone, but a release of its claim finds the attempt, even over another
    // connection.
    let other = Arc::clone(&store);
    let ending = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move { other.withdraw(&late_claim).await })
    });
    while !ending.is_finished() {
        yield_now().await;
    }
    ending.join().unwrap().unwrap();
    assert!(!exists(&server, "lock:late"));
}

#[tokio::test]
#[limit]
async fn what_is_freed_leaves_before_what_is_taken() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let [one, two] = [(); 2].map(|()| claim("lock:a"));
    let first = granted(&store, &one).await;
    let before = calls(&server);
    let idle = claim("lock:other");
    let (_, second, freed) = tokio::join!(acquire(&store, &idle), acquire(&store, &two), release(&store, &one));
    assert_eq!(freed, Freed::Released);
    let second = token(second.unwrap());
    assert!(first < second, "{first} {second}");
    assert_eq!(calls(&server) - before, 3, "the idle one, then a script and a transaction in one message");
}

#[tokio::test]
#[limit]
async fn two_who_want_one_key_at_once_get_it_once() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let [idle, one, two] = ["lock:idle", "lock:a", "lock:a"].map(claim);
    let (_, first, second) = tokio::join!(acquire(&store, &idle), acquire(&store, &one), acquire(&store, &two));
    token(first.unwrap());
    assert!(matches!(second.unwrap(), Attempt::Held { holder } if holder.owner == Some(one.owner)));
}

#[tokio::test]
#[limit]
async fn a_release_finds_who_queued_before() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let [holder, waiter] = ["lock:a", "lock:a"].map(claim);
    granted(&store, &holder).await;
    let mut waiting = request(&waiter);
    waiting.ticket = Some(Ticket::new("nobody".into(), 1, Duration::from_secs(3)));
    assert!(matches!(store.try_acquire(&waiting).await.unwrap(), Attempt::Queued { .. }));
    assert_eq!(release(&store, &holder).await, Freed::Released);
    // Its inbox does not have a listener, so it was passed over, and its entry says so.
    let entry = server.command(&["HGET", "{lock:a}@waiters", &waiter.owner.to_hex()]);
    assert_eq!(entry.text().split('|').nth(3), Some("1"), "{entry:?}");
    waiting.repeated = true;
    token(store.try_acquire(&waiting).await.unwrap());
    assert!(!exists(&server, "{lock:a}@waiters") && !exists(&server, "{lock:a}@queue"));
}

/// The call that opens a batch may be dropped, or never polled again, after any number of polls.
#[tokio::test]
#[limit]
async fn the_others_are_answered_whatever_becomes_of_the_first() {
    let server = RedisServer::start();
    for (polls, dropped) in (1..6).flat_map(|polls| [(polls, true), (polls, false)]) {
        let store = connected(&server).await;
        server.pause();
        let first = occupy(&store).await;
        let (opener, claims) = (claim("lock:opener"), claims(3));
        let mut opening: Option<Acquiring<'_>> = Some(boxed(&store, &opener));
        let mut others: Vec<Acquiring<'_>> = claims.iter().map(|claim| boxed(&store, claim)).collect();
        for polled in 1..=polls {
            if let Some(opening) = &mut opening {
                assert!(poll_once(opening.as_mut()).is_pending());
            }
            others.iter_mut().for_each(|other| assert!(poll_once(other.as_mut()).is_pending()));
            if dropped && polled == polls {
                opening = None;
            }
            let_others_run().await;
        }
        server.resume();
        for (other, claim) in others.into_iter().zip(&claims) {
            token(within_seconds(other).await.unwrap());
            assert_eq!(release(&store, claim).await, Freed::Released);
        }
        token(first.await.unwrap().unwrap());
        // A call that was not sent yet was taken back; one that was sent was executed, and its
        // release finds the lock.
        assert_eq!(exists(&server, "lock:opener"), !dropped || polls > 1, "{polls} polls, dropped: {dropped}");
        drop(opening);
        store.withdraw(&opener).await.unwrap();
        assert!(!exists(&server, "lock:opener"));
        server.command(&["DEL", "first", "warm"]);
    }
}

#[tokio::test]
#[limit]
async fn a_batch_that_everybody_left_is_executed_once_and_holds_nothing_up() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    server.pause();
    let first = occupy(&store).await;
    let claims = claims(3);
    let mut waiting: Vec<Acquiring<'_>> = claims.iter().map(|claim| boxed(&store, claim)).collect();
    for _ in 0..2 {
        waiting.iter_mut().for_each(|acquiring| assert!(poll_once(acquiring.as_mut()).is_pending()));
    }
    let_others_run().await;
    drop(waiting);
    first.abort();
    let late = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store, &claim("lock:after")).await }
    });
    let_others_run().await;
    server.resume();
    token(within_seconds(late).await.unwrap().unwrap());
    for claim in &claims {
        assert_eq!(store.release(&Release::new(claim.clone())).await.unwrap(), Freed::Released);
    }
}

fn boxed<'a>(store: &'a RedisStore, claim: &'a Claim) -> Acquiring<'a> {
    Box::pin(acquire(store, claim))
}

/// Acquires all at once.
async fn all(store: &Arc<RedisStore>, claims: &[Claim]) -> Vec<Result<Attempt, LockError>> {
    let tasks: Vec<_> = claims
        .iter()
        .map(|claim| {
            let (store, claim) = (Arc::clone(store), claim.clone());
            tokio::spawn(async move { acquire(&store, &claim).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}
