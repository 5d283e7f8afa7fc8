//! Several keys at once on a real server: one script takes them all, or none.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{HolderInfo, LockBackend, LockErrorKind, LockKey, RedisStore, ReleaseOutcome, Renew};
use lock_store::{AcquireRequest, AttemptAll, Claim, Freed, Release};
use lock_testing::{Direction, EventLog, FaultProxy, RedisCluster, RedisServer, Reply, Stopwatch, limit};

use crate::support::{
    LONG, MS, SECOND, all_told, cut_after, eventually, exists, expired, figure, locked_keys, locks, nothing_is_left,
    renewals, take, warm,
};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

fn key(text: &str) -> LockKey {
    LockKey::new(text).unwrap()
}

/// Returns how often scripts were called on a server.
fn scripts_called(server: &RedisServer) -> i64 {
    let stats = server.command(&["INFO", "commandstats"]).text().to_owned();
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
    };
    calls("evalsha") + calls("eval")
}

/// Counts scripts from now on.
struct Meter<'a> {
    server: &'a RedisServer,
    before: i64,
    watch: Stopwatch,
}

impl<'a> Meter<'a> {
    fn start(server: &'a RedisServer) -> Self {
        Self { server, before: scripts_called(server), watch: Stopwatch::start() }
    }

    /// Checks how many scripts there were, unless it took so long that the keeper may have looked at
    /// a lock.
    #[track_caller]
    fn assert_called(&self, scripts: i64, why: &str) {
        let called = scripts_called(self.server) - self.before;
        let looked = self.watch.elapsed() >= Duration::from_millis(90);
        assert!(called == scripts || (looked && called > scripts), "{called} instead of {scripts}: {why}");
    }
}

#[tokio::test]
#[limit]
async fn four_free_keys_cost_one_command_to_take_and_two_to_give_back() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    locks.lock_all(KEYS).await.unwrap().release().await.unwrap();
    let meter = Meter::start(&server);
    let guard = locks.lock_all(KEYS).with_ttl(LONG).await.unwrap();
    meter.assert_called(1, "all are taken at once");
    assert_eq!(locked_keys(&server).len(), 4);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    meter.assert_called(1 + 2, "one alone, as the connection is idle, and the others together");
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_try_that_is_refused_costs_one_command_takes_nothing_and_names_the_key() {
    let server = RedisServer::start();
    let (locks, events) = (warm(&server.url()).await, EventLog::default());
    let other = warm(&server.url()).await;
    locks.lock_all(KEYS).await.unwrap().release().await.unwrap();
    locks.observe(events.clone());
    let taken = take(&other, "c").await;
    let meter = Meter::start(&server);
    let busy = locks.lock_all(KEYS).without_waiting().await.unwrap_err();
    meter.assert_called(1, "one script tries all");
    assert_eq!((busy.kind(), busy.key()), (LockErrorKind::Busy, Some(&key("c"))));
    assert!(busy.holder().is_some_and(|holder| holder.owner.is_some()));
    assert_eq!(locked_keys(&server), ["c"]);
    assert_eq!(events.names(), ["WaitStarted", "Busy"], "nothing was taken, so nothing is told of the others");
    // The process knows without asking which locks it holds itself.
    let own = take(&locks, "b").await;
    let meter = Meter::start(&server);
    let busy = locks.lock_all(KEYS).without_waiting().await.unwrap_err();
    meter.assert_called(0, "this process knows");
    assert_eq!(busy.key(), Some(&key("b")));
    own.release().await.unwrap();
    taken.release().await.unwrap();
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn who_waits_takes_the_others_meanwhile_and_is_told_of_a_release() {
    let server = RedisServer::start();
    let (locks, other) = (warm(&server.url()).await, warm(&server.url()).await);
    let taken = take(&other, "c").await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_all(KEYS).with_wait(LONG).await }
    });
    eventually("those before it are taken", || exists(&server, "a") && exists(&server, "b")).await;
    assert!(!exists(&server, "d"), "those behind it are not");
    taken.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.keys().count(), 4);
    guard.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

/// Two callers each try to take all keys, over and over, while a third takes single ones: a script
/// in between would see, or leave, only some of the keys taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn nobody_ever_sees_some_taken_and_others_not() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (store, over) = (Arc::clone(&store), Arc::clone(&over));
        tasks.push(tokio::spawn(async move {
            let mut granted = 0_u32;
            while !over.load(Ordering::Relaxed) {
                let claims = KEYS.map(|name| Claim::new(key(name), LONG));
                match store.try_acquire_all(&requests(&claims)).await.unwrap() {
                    AttemptAll::Granted { .. } => granted += 1,
                    AttemptAll::Held { .. } => continue,
                    other => panic!("{other:?}"),
                }
                // Released in one transaction, as it was taken: a look in between sees all or none.
                let (links, release) = (&store, |claim: &Claim| Release::new(claim.clone()));
                for claim in claims.iter().rev() {
                    assert_eq!(links.release(&release(claim)).await.unwrap(), Freed::Released);
                }
            }
            granted
        }));
    }
    // They are freed from the last to the first, so whenever a key is taken, all before it are.
    let look = "local seen = '' for _, key in ipairs(KEYS) do seen = seen .. redis.call('EXISTS', key) end return seen";
    let (mut all, mut none) = (0, 0);
    let watch = Stopwatch::start();
    for look_number in 0.. {
        if look_number >= 1_500 && all >= 5 && none >= 5 {
            break;
        }
        assert!(watch.elapsed() < LONG, "seen all taken {all} times, and none taken {none} times");
        match server.command(&["EVAL", look, "4", "a", "b", "c", "d"]).text() {
            "1111" => all += 1,
            "0000" => none += 1,
            "1110" | "1100" | "1000" => {}
            seen => panic!("taken in part: {seen}"),
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    figure("granted, seen all taken, seen none taken", (granted, all, none));
    assert_eq!(locked_keys(&server), [""; 0]);
}

fn requests(claims: &[Claim]) -> Vec<AcquireRequest> {
    claims.iter().map(|claim| AcquireRequest::new(claim.clone(), HolderInfo::new("host-1", 42, "app::move"))).collect()
}

#[tokio::test]
#[limit]
async fn a_key_that_cannot_be_taken_gives_back_those_before_it() {
    let server = RedisServer::start();
    let store = RedisStore::new(&server.url()).unwrap();
    let claims = KEYS.map(|name| Claim::new(key(name), LONG));
    server.command(&["LPUSH", "c", "x"]);
    let error = store.try_acquire_all(&requests(&claims)).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("\"c\""), "{error}");
    server.command(&["DEL", "c"]);
    server.command(&["DEL", "distributed-lock:clock"]);
    server.command(&["LPUSH", "distributed-lock:clock", "x"]);
    let error = store.try_acquire_all(&requests(&claims)).await.unwrap_err();
    assert!(error.to_string().contains("distributed-lock:clock"), "{error}");
    server.command(&["DEL", "distributed-lock:clock"]);
    assert_eq!(locked_keys(&server), [""; 0]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.try_acquire_all(&requests(&claims)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(locked_keys(&server), [""; 0]);
    assert!(matches!(store.try_acquire_all(&requests(&claims)).await, Ok(AttemptAll::Granted { .. })));
}

#[tokio::test]
#[limit]
async fn who_waits_in_the_queue_goes_before_a_set_that_is_tried() {
    let server = RedisServer::start();
    let (locks, waiter) = (warm(&server.url()).await, warm(&server.url()).await);
    let taken = take(&locks, "b").await;
    let waiting = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.lock("b").with_wait(LONG).await }
    });
    eventually("it queues", || exists(&server, "{b}@queue")).await;
    // Like a crash of the holder: only the next caller that looks moves the queue on.
    server.command(&["DEL", "b"]);
    let store = RedisStore::new(&server.url()).unwrap();
    let claims = KEYS.map(|name| Claim::new(key(name), LONG));
    let answer = store.try_acquire_all(&requests(&claims)).await.unwrap();
    let AttemptAll::Held { index: 1, holder } = answer else { panic!("{answer:?}") };
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(holder.info.map(|info| info.pid), Some(std::process::id()));
    drop(taken);
    guard.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_set_too_large_for_one_script_is_taken_one_by_one() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let names: Vec<String> = (0..60).map(|index| format!("k{index}")).collect();
    let guard = locks.lock_all(&names).with_ttl(LONG).await.unwrap();
    assert_eq!(locked_keys(&server).len(), 60);
    guard.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_node_of_a_cluster_takes_keys_of_one_slot_at_once_and_others_one_by_one() {
    let cluster = RedisCluster::start(1);
    let server = &cluster.masters()[0];
    let locks = warm(&server.url()).await;
    let same = ["{tenant}:a", "{tenant}:b", "{tenant}:c"];
    locks.lock_all(same).await.unwrap().release().await.unwrap();
    let meter = Meter::start(server);
    let guard = locks.lock_all(same).with_ttl(LONG).await.unwrap();
    meter.assert_called(1, "they share a slot");
    guard.release().await.unwrap();
    let guard = locks.lock_all(KEYS).with_ttl(LONG).await.unwrap();
    assert_eq!(locked_keys(server).len(), 4);
    guard.release().await.unwrap();
    assert_eq!(locked_keys(server), [""; 0]);
}

/// Covers every await point of trying and of waiting, with the answer of the one script lost, late,
/// or neither; there are two managers, so that refusals come from the server too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn sets_cut_at_every_await_point_leave_nothing() {
    let server = RedisServer::start();
    let managers = [warm(&server.url()).await, warm(&server.url()).await];
    let events = EventLog::default();
    managers.iter().for_each(|locks| locks.observe(events.clone()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16_usize {
        let locks = managers[task % 2].clone();
        tasks.spawn(async move {
            let mut granted = 0;
            for round in 0..60_usize {
                let chosen = [KEYS[(task / 2 + round) % 4], KEYS[(task + round + 1) % 4], KEYS[(round * 3) % 4]];
                let request = locks.lock_all(chosen).with_ttl(LONG).with_wait(LONG);
                let request = if (task + round) % 3 == 0 { request.without_waiting() } else { request };
                let mut acquire = pin!(request.acquire());
                match cut_after((task + round) % 14, acquire.as_mut()).await.0 {
                    Some(Ok(guard)) => {
                        granted += 1;
                        drop(guard);
                    }
                    Some(Err(error)) => assert_eq!(error.kind(), LockErrorKind::Busy, "{error}"),
                    None => {}
                }
            }
            granted
        });
    }
    let granted: usize = tasks.join_all().await.into_iter().sum();
    figure("of 960 sets cut at every await point were granted", granted);
    figure("until the last was undone", nothing_is_left(&server).await);
    all_told(&events).await;
}

#[tokio::test]
#[limit]
async fn an_answer_that_is_swallowed_is_undone_or_made_up_for() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let locks = warm(&proxy.url()).await;
    let all = || locks.lock_all(KEYS).with_ttl(LONG);
    all().await.unwrap().release().await.unwrap();
    let mut swallowed = 0;
    for round in 0..10 {
        proxy.drop_replies(1);
        match all().without_waiting().await {
            Err(error) => {
                assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
                swallowed += 1;
            }
            // The lost reply was to some command of the keeper.
            Ok(guard) => drop(guard.release().await),
        }
        // Either the release or its repeat gave the locks back.
        eventually(&format!("round {round}: given back"), || locked_keys(&server).is_empty()).await;

        proxy.drop_replies(1);
        let guard = all().with_wait(LONG).await.unwrap();
        assert_eq!(locked_keys(&server).iter().filter(|key| !key.contains('@')).count(), 4);
        // The cleanup of the first attempt must not undo the second.
        tokio::time::sleep(100 * MS).await;
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        eventually(&format!("round {round}: nothing is left"), || locked_keys(&server).is_empty()).await;
    }
    figure("of 10 answers to a set were swallowed", swallowed);
    assert!(swallowed > 0);
    proxy.black_hole(Direction::ToClient);
    let error = all().with_ttl(1_200 * MS).without_waiting().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    proxy.resume();
    eventually("given back", || locked_keys(&server).is_empty()).await;
}

#[tokio::test]
#[limit]
async fn a_stalled_server_executes_no_set_of_a_caller_that_has_gone() {
    let server = RedisServer::start();
    let locks = locks(&server);
    locks.lock_all(KEYS).await.unwrap().release().await.unwrap();
    for round in 0..6_u32 {
        server.pause();
        let acquire = locks.lock_all(KEYS).with_ttl(30 * SECOND).acquire();
        // At moments around the command's timeout of 1 s.
        assert!(tokio::time::timeout((50 + 250 * round) * MS, acquire).await.is_err());
        server.resume();
        nothing_is_left(&server).await;
    }
    assert_eq!(expired(&server), 0, "some were not undone, and ended by themselves");
}

#[tokio::test]
#[limit]
async fn a_set_is_renewed_and_lost_key_by_key() {
    let server = RedisServer::start();
    let locks = warm(&server.url()).await;
    let events = EventLog::default();
    locks.observe(events.clone());
    let often = Renew::Every(200 * MS);
    let guard = locks.lock_all(KEYS).with_ttl(60 * SECOND).with_renew(often).await.unwrap();
    renewals(&events, 3 * KEYS.len()).await;
    guard.ensure_held().unwrap();
    assert_eq!(locked_keys(&server).len(), 4);
    server.command(&["DEL", "c"]);
    tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert!(matches!(guard.release().await, Ok(ReleaseOutcome::AlreadyLost(_))));
    eventually("the others are freed", || locked_keys(&server).is_empty()).await;
    assert_eq!(server.command(&["EXISTS", "a"]), Reply::Int(0));
}
