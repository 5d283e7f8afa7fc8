//! Slots that are moved from master to master.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockErrorKind, LockEvent, LockObserver, Notice, Renew};
use lock_testing::{EventLog, Recorder, RedisCluster, Reply, Stopwatch, limit};

use crate::support::{
    MS, SECOND, Scratch, all_told, bounded, eventually, exists, figure, locked_keys, locks_at, lost, renewals, take,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)] // Each of 60 moves waits until three masters agree on it.
async fn locks_are_taken_held_and_passed_on_while_their_slots_are_moved() {
    let cluster = Arc::new(RedisCluster::start(3));
    let scratch = Scratch::new();
    let path = scratch.history();
    let recorder = Arc::new(Recorder::append_to(&path));
    let events = EventLog::default();
    let names: Vec<String> = (0..20).map(|at| cluster.key_on(at % 2, &format!("lock:{at}:"))).collect();
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for process in 0..2 {
        let locks = locks_at(&cluster.url());
        locks.observe(events.clone());
        locks.observe(Recorder::append_to(&path));
        for task in 0..16 {
            let (locks, names, over, recorder) =
                (locks.clone(), names.clone(), Arc::clone(&over), Arc::clone(&recorder));
            tasks.spawn(async move {
                let mut grants = 0;
                for turn in 0.. {
                    let name = &names[(turn * 7 + task + process) % names.len()];
                    let guard = locks.lock(name).await.unwrap_or_else(|error| panic!("{error}"));
                    tokio::task::yield_now().await;
                    guard.ensure_held().unwrap();
                    recorder.release(guard.key(), guard.token());
                    guard.release().await.unwrap_or_else(|error| panic!("{error}"));
                    grants += 1;
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                grants
            });
        }
    }
    let mover = tokio::task::spawn_blocking({
        let (cluster, names) = (Arc::clone(&cluster), names.clone());
        move || {
            // To the next master, three times: in the end each is where it was.
            for _ in 0..3 {
                for name in &names {
                    let home = (0..3).find(|master| serves(&cluster, *master, name)).unwrap();
                    cluster.move_slot(name, home, (home + 1) % 3);
                }
            }
        }
    });
    mover.await.unwrap();
    over.store(true, Ordering::Relaxed);
    let mut grants = 0;
    while let Some(done) = tasks.join_next().await {
        grants += done.unwrap();
    }
    all_told(&events).await;
    figure("grants while 60 slots were moved", grants);
    assert_eq!((events.count("Lost"), events.count("Failed"), events.count("RenewFailed")), (0, 0, 0));
    let verdict = scratch.verdict();
    assert_eq!((verdict.grants, &*verdict.violations), (grants, &[][..]));
}

/// Into how many parts the move of a thousand slots is cut. After each comes a time without moves that is as long, so
/// that whatever else the machine does falls on both alike.
const PARTS: u16 = 20;

/// How long a move may still be felt after it has ended.
const AFTERMATH: Duration = Duration::from_millis(100);

/// How far apart the moves of two slots begin, as over a network.
const MOVE_EVERY: Duration = Duration::from_millis(3);

/// How long each task pauses between two pairs: the time of a pair is not to be that of a queue for a processor.
const PAUSE: Duration = Duration::from_millis(20);

/// The phases while pairs are timed: warm-up, no moves, moves of slots, and so on.
#[derive(Default)]
struct Stages(AtomicUsize);

impl Stages {
    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn next(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn is_still(stage: usize) -> bool {
        stage % 3 == 1
    }

    fn is_moving(stage: usize) -> bool {
        stage % 3 == 2
    }

    /// Moves a thousand slots in parts.
    fn move_slots(&self, cluster: &RedisCluster) {
        let (slots, mut still) = (1000 / PARTS, SECOND / 4);
        for part in 0..PARTS {
            self.next();
            std::thread::sleep(still);
            self.next();
            let watch = Stopwatch::start();
            cluster.move_slots(part * slots..(part + 1) * slots, 0, 1, MOVE_EVERY);
            still = watch.elapsed();
            self.next();
            std::thread::sleep(AFTERMATH);
        }
    }
}

/// How long pairs took, of slots that stay.
#[derive(Default)]
struct Pairs {
    still: Vec<Duration>,
    /// The pairs that met a move at any point.
    moving: Vec<Duration>,
}

impl Pairs {
    fn note(&mut self, begun: usize, ended: usize, took: Duration) {
        if (begun..=ended).any(Stages::is_moving) {
            self.moving.push(took);
        } else if begun == ended && Stages::is_still(begun) {
            self.still.push(took);
        }
    }

    /// Returns the p99 of both.
    fn p99(all: &[Self]) -> [Duration; 2] {
        let of = |which: fn(&Self) -> &Vec<Duration>| {
            let mut pairs: Vec<Duration> = all.iter().flat_map(which).copied().collect();
            pairs.sort_unstable();
            pairs[(pairs.len() - 1) * 99 / 100]
        };
        [of(|pairs| &pairs.still), of(|pairs| &pairs.moving)]
    }
}

/// The first half of scenario 5 of the design: a thousand slots of one master, while others work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(180)] // A thousand slots, each with six commands.
async fn while_a_thousand_slots_are_moved_nobody_sees_an_error() {
    let cluster = Arc::new(RedisCluster::start(3));
    let (locks, events) = (locks_at(&cluster.url()), EventLog::default());
    locks.observe(events.clone());
    let (over, stages, done) =
        (Arc::new(AtomicBool::new(false)), Arc::<Stages>::default(), Arc::<AtomicUsize>::default());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let moves = task < 32;
        let name = if moves {
            cluster.key_among(0..1000, &format!("moves:{task}:"))
        } else {
            cluster.key_among(1000..16384, &format!("stays:{task}:"))
        };
        let (locks, over, stages, done) = (locks.clone(), Arc::clone(&over), Arc::clone(&stages), Arc::clone(&done));
        tasks.spawn(async move {
            let mut pairs = Pairs::default();
            while !over.load(Ordering::Relaxed) {
                let (stage, begun) = (stages.now(), Stopwatch::start());
                let guard = locks.lock(&name).await.unwrap_or_else(|error| panic!("{error}"));
                guard.release().await.unwrap_or_else(|error| panic!("{error}"));
                let took = begun.elapsed();
                done.fetch_add(1, Ordering::Relaxed);
                if !moves {
                    pairs.note(stage, stages.now(), took);
                }
                tokio::time::sleep(PAUSE).await;
            }
            pairs
        });
    }
    let held = locks.lock(cluster.key_among(0..1000, "held:")).with_renew(Renew::Every(100 * MS)).await.unwrap();
    eventually("they work", || done.load(Ordering::Relaxed) >= 1000).await;
    let mover = (Arc::clone(&cluster), Arc::clone(&stages));
    tokio::task::spawn_blocking(move || mover.1.move_slots(&mover.0)).await.unwrap();
    over.store(true, Ordering::Relaxed);
    let all = tasks.join_all().await;
    assert_eq!(held.ensure_held(), Ok(()));
    held.release().await.unwrap();
    all_told(&events).await;
    assert_eq!((events.count("Lost"), events.count("Failed"), events.count("RenewFailed")), (0, 0, 0));
    let [still, moving] = Pairs::p99(&all);
    figure("p99 of pairs of other slots while nothing is moved", still);
    figure("p99 of pairs of other slots while a thousand slots are moved", moving);
    bounded("the second of these as a multiple of the first", moving.as_secs_f64() / still.as_secs_f64(), 2);
    assert!(cluster.masters().iter().all(|master| locked_keys(master).is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn a_phase_and_who_waits_for_its_end_move_with_their_slot() {
    let cluster = Arc::new(RedisCluster::start(3));
    let name = cluster.key_on(0, "lock:");
    let (locks, others, events) = (locks_at(&cluster.url()), locks_at(&cluster.url()), EventLog::default());
    locks.observe(events.clone());
    let read = || locks.read(&name).with_ttl(30 * SECOND).with_renew(Renew::Every(100 * MS)).acquire();
    let readers = [read().await.unwrap(), read().await.unwrap()];
    let writing = tokio::spawn(others.write(&name).acquire());
    let waiting =
        |master: usize| cluster.masters()[master].command(&["ZCOUNT", &format!("{{{name}}}@queue"), "0", "+inf"]);
    eventually("a writer waits", || waiting(0) == Reply::Int(1)).await;
    let mover = tokio::task::spawn_blocking({
        let (cluster, name) = (Arc::clone(&cluster), name.clone());
        move || cluster.move_slot(&name, 0, 1)
    });
    mover.await.unwrap();
    assert_eq!(waiting(1), Reply::Int(1));
    renewals(&events, 3).await;
    for reader in readers {
        assert_eq!(reader.ensure_held(), Ok(()));
        reader.release().await.unwrap();
    }
    let writer = writing.await.unwrap().unwrap();
    writer.downgrade().await.unwrap();
    assert_eq!(others.holders(&name).await.unwrap().len(), 1);
    let beside = others.read(&name).await.unwrap();
    assert_eq!(beside.token(), writer.token());
    drop((writer, beside));
    eventually("all have left", || !exists(&cluster.masters()[1], &name)).await;
    assert_eq!((events.count("Lost"), events.count("Failed")), (0, 0));
}

/// Returns whether a master serves the slot of a key.
fn serves(cluster: &RedisCluster, master: usize, key: &str) -> bool {
    !matches!(cluster.masters()[master].command(&["EXISTS", key]), Reply::Error(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[limit]
async fn in_a_slot_that_stays_open_leases_are_renewed_and_released_and_waits_end() {
    let cluster = RedisCluster::start(2);
    let tag = cluster.key_on(0, "t");
    let [stays, goes, absent] = ["stays", "goes", "absent"].map(|name| format!("{{{tag}}}:{name}"));
    let (locks, others) = (locks_at(&cluster.url()), locks_at(&cluster.url()));
    let (events, waits) = (EventLog::default(), EventLog::default());
    locks.observe(events.clone());
    others.observe(waits.clone());
    let hold = |name: &str| locks.lock(name).with_ttl(6 * SECOND).with_renew(Renew::Every(100 * MS));
    let [staying, going] = [hold(&stays).await.unwrap(), hold(&goes).await.unwrap()];
    cluster.open_slot(&tag, 0, 1);
    cluster.move_keys(&[&goes], 0, 1);
    assert!(exists(&cluster.masters()[0], &stays));
    renewals(&events, 6).await;
    // Both are still ours, on different masters.
    assert_eq!((staying.ensure_held(), going.ensure_held()), (Ok(()), Ok(())));
    assert_eq!((events.count("RenewFailed"), events.count("Lost")), (0, 0));
    // No claim can be queued, and no key may be made on the importing side.
    for name in [&stays, &goes, &absent] {
        let error = others.lock(name).with_wait(300 * MS).await.unwrap_err();
        assert!(matches!(error.kind(), LockErrorKind::Unavailable | LockErrorKind::Timeout), "{error}");
        assert!(error.to_string().contains(&**name), "{error}");
    }
    assert_eq!(cluster.masters()[1].command(&["DBSIZE"]), Reply::Int(1));
    // Released by itself, where it is.
    staying.release().await.unwrap();
    going.release().await.unwrap();
    assert!(!exists(&cluster.masters()[0], &stays));
    assert_eq!(cluster.masters()[1].command(&["DBSIZE"]), Reply::Int(0));
    // A waiter gets its lock when the slot is closed.
    let waiting = tokio::spawn({
        let (others, name) = (others.clone(), absent.clone());
        async move { others.lock(name).await.map(drop) }
    });
    tokio::time::sleep(50 * MS).await;
    cluster.drain_slot(&tag, 0, 1);
    cluster.close_slot(&tag, 0, 1);
    waiting.await.unwrap().unwrap();
}

/// Hears how many slots of each master are open.
#[derive(Clone, Default)]
struct OpenSlots(Arc<Mutex<BTreeMap<String, u32>>>);

impl LockObserver for OpenSlots {
    fn on_event(&self, _: &LockEvent<'_>) {}

    fn on_notice(&self, notice: &Notice<'_>) {
        if let Notice::SlotsOpen { node, slots } = notice {
            self.0.lock().unwrap().insert((*node).to_owned(), *slots);
        }
    }
}

#[tokio::test]
#[limit]
async fn a_slot_that_is_left_open_is_told_of_by_both_of_its_masters() {
    let cluster = RedisCluster::start(3);
    let name = cluster.key_on(0, "t");
    let heard = async || {
        let (locks, open) = (locks_at(&cluster.url()), OpenSlots::default());
        locks.observe(open.clone());
        take(&locks, &cluster.key_on(1, "lock:")).await.release().await.unwrap();
        let told = || open.0.lock().unwrap().clone();
        eventually("every master has told", || told().len() == 3).await;
        // They tell again in a minute.
        let late = OpenSlots::default();
        locks.observe(late.clone());
        assert_eq!(*late.0.lock().unwrap(), told());
        cluster.masters().iter().map(|master| told()[&format!("127.0.0.1:{}", master.port())]).collect::<Vec<u32>>()
    };
    assert_eq!(heard().await, [0, 0, 0]);
    cluster.open_slot(&name, 0, 1);
    assert_eq!(heard().await, [1, 1, 0]);
    cluster.close_slot(&name, 0, 1);
    assert_eq!(heard().await, [0, 0, 0]);
}

#[tokio::test]
#[limit]
async fn a_lease_is_told_of_its_loss_by_the_new_master_of_its_slot() {
    let cluster = RedisCluster::start(2);
    let name = cluster.key_on(0, "lock:");
    let locks = locks_at(&cluster.url());
    let events = EventLog::default();
    locks.observe(events.clone());
    let guard = locks.lock(&name).with_ttl(600 * SECOND).with_renew(Renew::Every(200 * MS)).await.unwrap();
    renewals(&events, 1).await;
    cluster.move_slot(&name, 0, 1);
    renewals(&events, 2).await;
    assert_eq!(guard.ensure_held(), Ok(()));
    // Renewed at the new master, which therefore reports changes.
    cluster.masters()[1].command(&["DEL", &name]);
    assert_eq!(lost(&guard).await, lock_core::LossReason::Stolen);
    // A waiter in the queue moves along with it.
    let other = locks_at(&cluster.url());
    let guard = take(&locks, &name).await;
    let waiting = tokio::spawn({
        let name = name.clone();
        async move { other.lock(name).await.unwrap().token() }
    });
    let queue = format!("{{{name}}}@queue");
    eventually("it waits", || exists(&cluster.masters()[1], &queue)).await;
    cluster.move_slot(&name, 1, 0);
    let first = guard.token();
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap() > first);
}
