//! Readers, writers and permits on a real server: processes that are killed and stopped, clients of other libraries,
//! and a semaphore that is resized under load.

mod heard;
mod neighbours;
mod wrong_state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{GrantPath, HolderInfo, LockBackend as _, LockErrorKind, LockKey, LockManager, Mode, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Ticket};
use lock_testing::{EventLog, RedisServer, Reply, Stopwatch, limit};

use crate::support::{
    LONG, MS, SECOND, Scratch, Worker, eventually, exists, figure, listening, locked_keys, locks, lost, pttl, seed,
};

/// A certain hold, from when to when, in ns.
struct Hold {
    mode: String,
    units: u64,
    limit: u64,
    from: u64,
    until: u64,
}

/// Reads what the workers wrote down, by key.
fn holds(text: &str) -> HashMap<String, Vec<Hold>> {
    let mut by_key: HashMap<String, Vec<Hold>> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        let hold =
            Hold { mode: words[1].to_owned(), units: number(2), limit: number(3), from: number(4), until: number(5) };
        by_key.entry(words[0].to_owned()).or_default().push(hold);
    }
    by_key
}

/// Returns what must not be: a writer beside anybody, or more units than the greatest limit of those inside.
fn violations(holds: &HashMap<String, Vec<Hold>>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, holds) in holds {
        let mut holds: Vec<&Hold> = holds.iter().collect();
        holds.sort_by_key(|hold| hold.from);
        let mut inside: Vec<&Hold> = Vec::new();
        for hold in holds {
            inside.retain(|other| other.until > hold.from);
            inside.push(hold);
            let alone = |hold: &&Hold| hold.mode == "write";
            let units: u64 = inside.iter().map(|hold| hold.units).sum();
            let limit = inside.iter().map(|hold| hold.limit).max().unwrap_or(0);
            if inside.len() > 1 && inside.iter().any(alone) || units > limit {
                let told: Vec<_> = inside.iter().map(|hold| (&hold.mode, hold.units, hold.limit, hold.from)).collect();
                found.push(format!("{key}: {told:?} at once"));
            }
        }
    }
    found
}

#[test]
#[limit]
fn the_check_of_histories_sees_what_must_not_be() {
    let wrong = |text: &str| violations(&holds(text)).len();
    assert_eq!(wrong("k read 1 9 10 20\nk read 1 9 15 30\nk write 0 0 30 40\nj write 0 0 15 30"), 0);
    assert_eq!(wrong("k read 1 9 10 20\nk write 0 0 19 30"), 1);
    assert_eq!(wrong("k permit 2 3 10 20\nk permit 2 3 15 30"), 1);
    assert_eq!(wrong("k permit 2 3 10 20\nk permit 2 4 15 30"), 0, "while callers disagree, the greatest counts");
}

const KEYS: [&str; 3] = ["mix:rw", "mix:sem", "mix:any"];

/// How long processes are killed and stopped: `LOCK_MIX_SECONDS`, or a few seconds.
fn time_of_faults() -> Duration {
    let seconds = std::env::var("LOCK_MIX_SECONDS").ok();
    SECOND * seconds.map_or(6, |text| text.parse().unwrap_or_else(|error| panic!("LOCK_MIX_SECONDS: {error}")))
}

#[tokio::test]
#[limit(900)]
async fn processes_that_are_killed_and_stopped_break_no_mode() {
    let (server, scratch, seed) = (RedisServer::start(), Scratch::new(), seed());
    let mut random = fastrand::Rng::with_seed(seed);
    let (url, path, clock) = (server.url(), scratch.path("holds"), scratch.path("clock"));
    let start = |number: u64| {
        let seed = seed.wrapping_add(number * 1_000).to_string();
        let args = [("ttl_ms", "1500"), ("tasks", "6"), ("wait_ms", "2000"), ("seed", &seed)];
        let args: Vec<_> = args.into_iter().chain([("url", &*url), ("holds", &path), ("history", &clock)]).collect();
        Worker::start("mix", &args)
    };
    let recorder = scratch.recorder();
    let mut classic = String::new();
    let mut workers = Vec::new();
    for number in 0..4 {
        let mut worker = start(number);
        assert_eq!(worker.next().await, "ready");
        workers.push(worker);
    }
    let (began, mut number, mut kills, mut stops) = (Instant::now(), 4, 0, 0);
    while began.elapsed() < time_of_faults() {
        tokio::time::sleep(random.u32(50..400) * MS).await;
        let at = random.usize(0..workers.len());
        match random.u8(0..10) {
            0..3 => {
                workers[at].kill().await;
                workers[at] = start(number);
                assert_eq!(workers[at].next().await, "ready");
                (number, kills) = (number + 1, kills + 1);
            }
            3..6 => {
                workers[at].stop();
                tokio::time::sleep(random.u32(100..2_500) * MS).await;
                workers[at].resume();
                stops += 1;
            }
            6..8 => {
                let permits = if random.bool() { 8 } else { 16 };
                for worker in &mut workers {
                    worker.send(&format!("permits {permits}")).await;
                }
            }
            _ => {
                let (key, asked) = (KEYS[random.usize(0..3)], recorder.now());
                if server.command(&["SET", key, "a classic client", "NX", "PX", "200"]) != Reply::Nil {
                    let from = recorder.now();
                    tokio::time::sleep(100 * MS).await;
                    let until = recorder.now().min(asked + 190_000_000);
                    if from < until {
                        classic += &format!("{key} write 0 0 {from} {until}\n");
                    }
                }
            }
        }
    }
    for mut worker in workers {
        assert_eq!(worker.order("stop").await, "done");
        worker.ended().await;
    }
    let history = std::fs::read_to_string(&path).unwrap() + &classic;
    let holds = holds(&history);
    let found = violations(&holds);
    assert!(found.is_empty(), "{} of {}: {:#?}", found.len(), history.lines().count(), &found[..found.len().min(5)]);
    for mode in ["read", "write", "permit"] {
        assert!(holds.values().flatten().any(|hold| hold.mode == mode), "nobody had a {mode}");
    }
    figure("holds, kills, stops", (history.lines().count(), kills, stops));
    // The next claim removes the entries of dead claims, once it is certain that they are dead.
    // That is long before the entries would end by themselves.
    let (next, watch) = (locks(&server), Instant::now());
    for key in KEYS {
        let [queue, waiters] = ["queue", "waiters"].map(|part| format!("{{{key}}}@{part}"));
        loop {
            next.lock(key).with_ttl(SECOND).await.unwrap().release().await.unwrap();
            if !exists(&server, &queue) {
                break;
            }
            let left = || (server.command(&["ZRANGE", &queue, "0", "-1"]), server.command(&["HGETALL", &waiters]));
            assert!(watch.elapsed() < 10 * SECOND, "{key}: {:?}", left());
            tokio::time::sleep(100 * MS).await;
        }
        // That clients of other libraries come is remembered for a while.
        let known = server.command(&["HKEYS", &waiters]);
        assert!(known == Reply::List(Vec::new()) || known == Reply::List(vec![Reply::Text("others".to_owned())]));
        assert!(!exists(&server, key));
    }
}

/// Otherwise each release would pass the permit on through the store, to a claim of the same process as often as not.
#[tokio::test]
#[limit]
async fn who_waits_for_permits_in_one_process_has_few_places_in_the_queue_and_is_given_what_it_has() {
    let (server, events) = (RedisServer::start(), EventLog::default());
    // However long this machine takes, a hold of ours is short enough to be passed on.
    let store = RedisStore::new(&server.url()).unwrap();
    let ours = LockManager::builder(store).with_wait(LONG).handoff_slice(LONG).build().unwrap();
    let theirs = locks(&server);
    ours.observe(events.clone());
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(theirs.semaphore("k", 4).with_ttl(LONG).await.unwrap());
    }
    let queued = || server.command(&["ZCOUNT", "{k}@queue", "0", "+inf"]).int();
    let wait = || tokio::spawn(ours.semaphore("k", 4).with_ttl(LONG).acquire());
    let mut waiting = vec![wait()];
    eventually("the first waits, and knows it", || queued() == 1 && events.count("Contended") == 1).await;
    waiting.extend((1..6).map(|_| wait()));
    eventually("all wait", || events.count("Contended") == 6).await;
    assert_eq!(queued(), 1);
    // As soon as one is in, the next ask: one for each permit that there is, as long as more callers stay here than hold one.
    held.pop().unwrap().release().await.unwrap();
    eventually("the next wait", || events.count("Acquired") == 1 && queued() == 3).await;
    // The others wait behind those, so what this process has, it passes on.
    waiting.remove(0).await.unwrap().unwrap().release().await.unwrap();
    eventually("it passes on what it has", || events.paths().contains(&GrantPath::Handoff)).await;
    drop(held);
    for permit in waiting {
        permit.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(locked_keys(&server), [""; 0]);
}

/// A lease that ends while a test waits, and that a stall of the machine does not end.
const TTL: Duration = Duration::from_secs(3);

#[tokio::test]
#[limit]
async fn a_writer_waits_no_longer_for_a_dead_reader_than_its_lease() {
    let server = RedisServer::start();
    let (dies, lives, next) = (locks(&server), locks(&server), locks(&server));
    let dead = dies.read("k").with_ttl(TTL).with_renew(lock_core::Renew::Off).await.unwrap();
    let reader = lives.read("k").with_ttl(LONG).await.unwrap();
    let writing = tokio::spawn(async move { next.write("k").with_ttl(LONG).await });
    eventually("it waits", || server.command(&["ZCOUNT", "{k}@queue", "0", "+inf"]) == Reply::Int(1)).await;
    let watch = Stopwatch::start();
    reader.release().await.unwrap();
    let writer = writing.await.unwrap().unwrap();
    watch.assert_within(TTL + SECOND, "a writer behind a reader that died");
    assert!(dead.ensure_held().is_err(), "not before its lease was over");
    writer.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn clients_of_the_classic_protocol_exclude_readers_and_are_excluded() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let reader = locks.read("k").with_ttl(LONG).await.unwrap();
    let set = || server.command(&["SET", "k", "theirs", "NX", "PX", "60000"]);
    assert_eq!(set(), Reply::Nil, "a reader excludes them");
    reader.release().await.unwrap();
    assert_ne!(set(), Reply::Nil);
    for request in [locks.read("k"), locks.semaphore("k", 4), locks.write("k")] {
        let refused = request.without_waiting().await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Busy, "{refused}");
        assert!(refused.to_string().contains("another client"), "{refused}");
    }
    let waiting = tokio::spawn(locks.read("k").acquire());
    eventually("it waits", || exists(&server, "{k}@queue")).await;
    server.command(&["DEL", "k"]);
    let reader = waiting.await.unwrap().unwrap();

    // They overwrite what a reader has: its next renewal finds out.
    let watched = locks.read("other").with_ttl(3 * SECOND).await.unwrap();
    server.command(&["SET", "other", "theirs", "PX", "60000"]);
    assert_eq!(lost(&watched).await, lock_core::LossReason::Stolen);
    reader.release().await.unwrap();
}

#[tokio::test]
#[limit]
async fn a_lowered_limit_lets_nobody_in_until_enough_have_left() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(one.semaphore("k", 16).with_ttl(LONG).await.unwrap());
    }
    assert!(two.semaphore("k", 8).try_acquire().await.unwrap().is_none());
    held.truncate(8);
    eventually("eight are left", || two_holders(&server) == 8).await;
    assert!(two.semaphore("k", 8).try_acquire().await.unwrap().is_none());
    held.pop();
    let eighth = two.semaphore("k", 8).await.unwrap();
    assert!(two.semaphore("k", 8).try_acquire().await.unwrap().is_none());
    let more = two.semaphore("k", 16).await.unwrap();
    assert_eq!(one.holders("k").await.unwrap().len(), 9);
    assert_eq!(more.token(), eighth.token(), "one phase");
}

fn two_holders(server: &RedisServer) -> i64 {
    server.command(&["ZCOUNT", "{k}@queue", "-inf", "(0"]).int()
}

#[tokio::test]
#[limit]
async fn holders_have_leases_of_their_own_and_the_key_outlasts_them_all() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let (long, short) = (Duration::from_secs(120), 10 * SECOND);
    let one = locks.semaphore("k", 4).with_ttl(long).await.unwrap();
    let two = locks.semaphore("k", 4).with_ttl(short).await.unwrap();
    let key = pttl(&server, "k");
    assert!(key > 100_000, "the key ends with the last lease: {key}");
    for companion in ["{k}@queue", "{k}@waiters"] {
        assert!(pttl(&server, companion) > key, "{companion} outlasts it");
    }
    let mut left: Vec<_> = locks.holders("k").await.unwrap().iter().map(|holder| holder.ttl_left.unwrap()).collect();
    left.sort();
    assert!(left[0] <= short && left[1] > 100 * SECOND && left[1] <= long, "{left:?}");
    one.release().await.unwrap();
    let key = pttl(&server, "k");
    assert!(key <= 10_000, "and is not kept for who has left: {key}");
    assert_eq!(two.mode(), Mode::permits(1, 4).unwrap());
    two.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_permit_stays_taken_for_its_min_hold() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let permit = || locks.semaphore("k", 1).with_min_hold(SECOND);
    permit().await.unwrap().release().await.unwrap();
    assert!(permit().try_acquire().await.unwrap().is_none());
    let kept = locks.holders("k").await.unwrap();
    assert_eq!(kept.iter().map(|holder| holder.owner).collect::<Vec<_>>(), [None], "it is nobody's any more");
    let watch = Stopwatch::start();
    permit().await.unwrap().release().await.unwrap();
    watch.assert_within(2 * SECOND, "the next permit after a min_hold");
}

#[tokio::test]
#[limit]
async fn a_key_of_another_type_is_named() {
    let server = RedisServer::start();
    let locks = locks(&server);
    server.command(&["LPUSH", "list", "x"]);
    server.command(&["SET", "{k}@queue", "x"]);
    for (key, named) in [("list", "list"), ("k", "{k}@queue")] {
        let key = LockKey::new(key).unwrap();
        let error = locks.read(&key).with_wait(SECOND).await.unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
#[limit]
async fn a_batch_does_not_end_with_the_one_that_asked() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    let (inbox, mut reports) = listening(&store).await;
    let claim = |mode| Claim::new(LockKey::new("k").unwrap(), LONG).with_mode(mode);
    let ask = |claim: &Claim| {
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
        request.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, LONG));
        request
    };
    let (writer, one, two) = (claim(Mode::Exclusive), claim(Mode::READ), claim(Mode::READ));
    assert!(matches!(store.try_acquire(&ask(&writer)).await, Ok(Attempt::Granted { .. })));
    for reader in [&one, &two] {
        assert!(matches!(store.try_acquire(&ask(reader)).await, Ok(Attempt::Queued { .. })));
    }
    // The writer's lease ends without a release, and the first reader asks again.
    server.command(&["DEL", "k"]);
    assert!(matches!(store.try_acquire(&ask(&one)).await, Ok(Attempt::Shared { .. })));
    let grant = tokio::time::timeout(10 * SECOND, reports.next_grant()).await.expect("the second is let in too");
    assert_eq!(grant.map(|grant| grant.claim.owner), Some(two.owner));
}
