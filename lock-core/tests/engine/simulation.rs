//! The machinery on virtual time, over a store behind a network whose faults a seed decides.

mod mutants;
mod network;
mod queue_mutants;
mod recorder;
mod sets;
mod shares;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Clock, LockBackend, LockManager, LockRequest, MemoryStore, Renew};
use lock_testing::conformance::rules;
use lock_testing::{EventLog, Violation, limit};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use network::{Flaw, Network};
use recorder::{Book, KEYS, Recorder};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How many seeds each test runs. `LOCK_TEST_SEED` runs that one only.
const SEEDS: u64 = 200;

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("LOCK_TEST_SEED").ok().and_then(|text| text.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    }
}

/// Returns whether the conformance suite refuses a store, made from a correct one.
fn breaks_the_contract<B: LockBackend>(spoil: impl Fn(MemoryStore) -> B) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let run = runtime.block_on(async {
        let memory = MemoryStore::new();
        memory.attach(&Clock::of_current_runtime());
        // One store for each rule, as in the tests of a store.
        let [one, two, three, four, five, six] = [(); 6].map(|()| spoil(memory.clone()));
        tokio::spawn(async move {
            rules::identity(one).await;
            rules::floors(two).await;
            rules::leases(three).await;
            rules::batches(four).await;
            rules::all_or_nothing(five).await;
            rules::stopped_waiters(six).await;
        })
        .await
    });
    run.is_err()
}

/// The settings of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Leases of a second or less, which run out.
    Short,
    /// Leases that outlast the run, so that a lock that is not given back is seen.
    Long,
    /// Short leases over a network without faults: no caller ever waits in vain.
    Calm,
}

impl Mode {
    /// Returns how many of a hundred commands and grants meet a fault.
    fn faults(self, seed: u64) -> u8 {
        match self {
            Self::Calm => 0,
            Self::Short | Self::Long if seed.is_multiple_of(5) => 70,
            Self::Short | Self::Long => 25,
        }
    }
}

impl Mode {
    /// Returns two limits: how long a key may be free while somebody waits for it, once the network
    /// is healed, and how many later callers may be served before an earlier one.
    fn bounds(self) -> (Duration, usize) {
        match self {
            // Less than the backstop of the shortest lease, so that a wake-up that is lost is seen. A
            // lease that runs out is noticed up to 20 ms late.
            Self::Calm => (100 * MS, 14),
            // The lease of the process that was cut off, and a backstop.
            Self::Short => (6 * SECOND, 40),
            Self::Long => (12 * SECOND, 40),
        }
    }
}

/// Whether locks pass between the callers of one process. The seed decides, so that each kind gets
/// a third of the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Handoff {
    Never,
    Sometimes,
    Always,
}

impl Handoff {
    fn of(seed: u64) -> Self {
        [Self::Never, Self::Sometimes, Self::Always][usize::try_from(seed % 3).unwrap()]
    }
}

/// The result of one run.
struct Outcome {
    violations: Vec<Violation>,
    grants: usize,
    /// How many keys were still taken or waited for some time after the network was healed.
    left: usize,
    /// The longest time that a key was free while somebody waited for it, once the network was
    /// healed.
    idle: Duration,
    /// The most callers that came later than another and were served first.
    bypass: usize,
    trace: Vec<String>,
}

/// Three processes of several tasks on two keys, where the seed decides what each task does.
async fn run<B: LockBackend>(seed: u64, mode: Mode, memory: MemoryStore, store: B, flaw: Option<Flaw>) -> Outcome {
    let (origin, store, book) = (Instant::now(), Arc::new(store), Book::open());
    let handoff = Handoff::of(seed);
    let (mut tasks, mut networks, mut managers, mut logs) = (JoinSet::new(), Vec::new(), Vec::new(), Vec::new());
    for process in 0..3_u32 {
        let mut network = Network::new(Arc::clone(&store), seed * 31 + u64::from(process), mode.faults(seed));
        network.flaw = flaw;
        let (network, recorder, log) = (Arc::new(network), Recorder::new(process, &book), EventLog::default());
        let locks = LockManager::builder_shared(Arc::clone(&network)).observer(recorder.clone()).observer(log.clone());
        let locks = locks.drive_on_current_runtime().build().unwrap();
        for task in 0..if handoff == Handoff::Always { 5_u64 } else { 3 } {
            let random = fastrand::Rng::with_seed(seed * 1_009 + u64::from(process) * 17 + task);
            let task = Task { locks: locks.clone(), recorder: recorder.clone(), random, mode, handoff };
            tasks.spawn(task.work());
        }
        networks.push(network);
        managers.push(locks);
        logs.push(log);
    }
    if mode == Mode::Short && seed % 7 == 3 {
        sleep(SECOND).await;
        networks[2].cut_off();
        book.lock().unwrap().dead = Some(2);
    }
    // Most runs are healed halfway, so that callers that wait at that moment must be served.
    sleep(Duration::from_secs(3 + seed % 4)).await;
    while seed.is_multiple_of(4) && !tasks.is_empty() {
        tasks.join_next().await.unwrap().unwrap();
    }
    for network in networks {
        network.heal();
    }
    let healed = origin.elapsed();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // Commands still on their way arrive within ten seconds, and releases are repeated after that.
    if mode != Mode::Long {
        for key in KEYS {
            drop(managers[0].lock(key).with_ttl(SECOND).with_wait(60 * SECOND).await);
        }
    }
    sleep(40 * SECOND).await;
    let left = memory.len();
    for log in logs {
        log.assert_complete();
    }
    let book = book.lock().unwrap();
    let (verdict, idle, bypass) = (book.check(), book.longest_idle(healed), book.longest_bypass());
    let (violations, grants, trace) = (verdict.violations, verdict.grants, book.trace.clone());
    Outcome { violations, grants, left, idle, bypass, trace }
}

/// One task of a process.
struct Task {
    locks: LockManager,
    recorder: Recorder,
    random: fastrand::Rng,
    mode: Mode,
    handoff: Handoff,
}

impl Task {
    async fn work(mut self) {
        for _ in 0..8 {
            sleep(self.up_to(300)).await;
            let (request, kept) = self.request();
            let random = &mut self.random;
            // One in three is given up, at any moment.
            let patience = if random.u8(0..3) == 0 { random.u32(0..1_500) * MS } else { 600 * SECOND };
            let Ok(Ok(guard)) = timeout(patience, request.acquire()).await else { continue };
            // Many bodies are short, because only short ones pass a lock on.
            let longest = if self.handoff == Handoff::Never || random.bool() { 500 } else { 3 };
            for _ in 0..random.u8(0..4) {
                let _ = timeout(random.u32(0..longest) * MS, guard.lost()).await;
                if random.u8(0..6) == 0 {
                    let _ = timeout(random.u32(0..300) * MS, guard.extend(2 * SECOND)).await;
                }
                if guard.ensure_held().is_err() {
                    break;
                }
            }
            self.recorder.left(&guard, kept);
            match random.u8(0..3) {
                0 => drop(guard),
                1 => drop(timeout(random.u32(0..200) * MS, guard.release()).await),
                _ => drop(guard.release().await),
            }
        }
    }

    /// A request, and its `min_hold`.
    fn request(&mut self) -> (LockRequest, Duration) {
        let key = if self.random.bool() { KEYS[0] } else { KEYS[1] };
        let request = self.locks.lock(key).with_wait(self.up_to(4_000));
        let alike = self.handoff == Handoff::Always || self.random.bool();
        let mut kept = Duration::ZERO;
        let request = match self.mode {
            Mode::Long => request.with_ttl(600 * SECOND),
            // Callers with the same terms can pass a lock on.
            Mode::Short | Mode::Calm if alike => request.with_ttl(SECOND),
            Mode::Short | Mode::Calm => match self.random.u8(0..4) {
                0 => request.with_ttl(400 * MS).with_renew(Renew::Off),
                1 => request.with_ttl(4 * SECOND),
                2 => request.with_ttl(SECOND).with_max_hold(self.up_to(800) + MS),
                // The end of a min_hold is noticed by the backstop.
                _ if self.mode == Mode::Calm => request.with_ttl(SECOND),
                _ => {
                    kept = self.up_to(300);
                    request.with_ttl(SECOND).with_min_hold(kept)
                }
            },
        };
        let off = match self.handoff {
            Handoff::Never => true,
            Handoff::Sometimes => self.random.bool(),
            Handoff::Always => false,
        };
        (if off { request.without_handoff() } else { request }, kept)
    }

    fn up_to(&mut self, most: u32) -> Duration {
        self.random.u32(0..most) * MS
    }
}

/// Runs one seed from the beginning of time.
fn simulate<B: LockBackend>(seed: u64, mode: Mode, flaw: Option<Flaw>, make: impl Fn(MemoryStore) -> B) -> Outcome {
    // The jitter of the machinery comes from here.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let memory = MemoryStore::new();
    runtime.block_on(run(seed, mode, memory.clone(), make(memory), flaw))
}

/// Checks what must hold in every run.
fn check(seed: u64, mode: Mode, outcome: &Outcome) {
    let (most_idle, most_bypass) = mode.bounds();
    if !outcome.violations.is_empty() || outcome.left > 0 || outcome.idle > most_idle {
        println!("{}", outcome.trace.join("\n"));
    }
    assert_eq!(outcome.violations, [], "LOCK_TEST_SEED={seed}");
    assert_eq!(outcome.left, 0, "keys or entries left, LOCK_TEST_SEED={seed}");
    assert!(
        outcome.idle <= most_idle,
        "a key was free for {:?} while somebody waited, LOCK_TEST_SEED={seed}",
        outcome.idle
    );
    assert!(outcome.bypass <= most_bypass, "{} bypassed one, LOCK_TEST_SEED={seed}", outcome.bypass);
}

fn run_all(mode: Mode) {
    let (mut grants, mut idle, mut bypass) = (0, Duration::ZERO, 0);
    for seed in seeds() {
        let outcome = simulate(seed, mode, None, |memory| memory);
        check(seed, mode, &outcome);
        grants += outcome.grants;
        idle = idle.max(outcome.idle);
        bypass = bypass.max(outcome.bypass);
    }
    println!("figure: simulated, {mode:?}: {grants} grants, free at most {idle:?} while waited for, bypass {bypass}");
}

#[test]
#[limit(300)]
fn leases_never_overlap_tokens_grow_and_every_acquire_ends() {
    run_all(Mode::Short);
}

#[test]
#[limit(300)]
fn nothing_is_left_to_run_out_by_itself() {
    run_all(Mode::Long);
}

#[test]
#[limit(300)]
fn nobody_waits_in_vain_while_nothing_fails() {
    run_all(Mode::Calm);
}

/// Names each token by its rank: tokens come from the time of day, which no seed decides.
fn by_rank(trace: &[String]) -> Vec<String> {
    let token = |word: &str| word.parse::<u64>().ok().filter(|number| *number > 1 << 60);
    let tokens: BTreeSet<u64> = trace.iter().flat_map(|line| line.split(' ')).filter_map(token).collect();
    let named =
        |word: &str| token(word).map_or_else(|| word.to_owned(), |it| format!("t{}", tokens.range(..it).count()));
    trace.iter().map(|line| line.split(' ').map(named).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
#[limit(300)]
fn the_same_seed_gives_the_same_trace() {
    for seed in seeds().take(12) {
        for mode in [Mode::Short, Mode::Long, Mode::Calm] {
            let [first, second] = [(); 2].map(|()| by_rank(&simulate(seed, mode, None, |memory| memory).trace));
            let differs = first.iter().zip(&second).position(|(one, other)| one != other);
            assert_eq!((differs, first.len()), (None, second.len()), "{mode:?}, LOCK_TEST_SEED={seed}");
        }
    }
}
