//! Measures what metrics add to a lock, in nanoseconds per acquire and release, and what a scrape and the
//! live view take with 200 lock names and 100,000 holds.
//!
//! ```text
//! cargo run --release -p lock-metrics --example cost
//! ```
//!
//! The observer is called as the core calls it, through `dyn LockObserver` and `catch_unwind`, with
//! events built anew each time. The loop without an observer is measured and shown beside it; it is
//! not subtracted. Five rounds, interleaved; each line shows the median. On Linux the time is
//! processor time, so that other work on the machine does not count.
//!
//! With a number as argument it runs only that many cycles of the first line, with metrics, to count
//! instructions: the difference between two runs, divided by the difference of their cycles, is the
//! cost of a cycle, and the same on every machine.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/cost 10000
//! ```

use std::hint::black_box;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use lock_core::{
    FencingToken, GrantPath, Holder, HolderInfo, LockEvent, LockEventKind, LockKey, LockLabel, LockObserver, OwnerId,
};

const CYCLES: u64 = 400_000;
const ROUNDS: usize = 5;

struct Nobody;

impl LockObserver for Nobody {
    fn on_event(&self, event: &LockEvent<'_>) {
        black_box(event);
    }
}

#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    threads: u64,
    names: usize,
    contended: bool,
    /// Locks held during the whole measurement.
    held: u64,
}

const PLAIN: Work = Work { name: "uncontended", threads: 1, names: 1, contended: false, held: 0 };

fn main() -> Result<(), lock_metrics::InstallError> {
    if let Some(wanted) = std::env::args().nth(1).and_then(|wanted| wanted.parse().ok()) {
        let (metrics, label) = (lock_metrics::builder().build()?, [LockLabel::new("lock:user:<user_id>:0")]);
        cycles(PLAIN, 0, wanted, &metrics.observer(), &label);
        return Ok(());
    }
    let lines = [
        PLAIN,
        Work { name: "uncontended, 2 threads", threads: 2, ..PLAIN },
        Work { name: "100 lock names in turn", names: 100, ..PLAIN },
        Work { name: "10,000 other locks held", held: 10_000, ..PLAIN },
        Work { name: "contended (one event more, wait charged)", contended: true, ..PLAIN },
    ];
    let mut results = vec![(Vec::new(), Vec::new()); lines.len()];
    for _ in 0..ROUNDS {
        for (work, (with, without)) in lines.iter().zip(&mut results) {
            let metrics = lock_metrics::builder().build()?;
            without.push(measure(*work, &Nobody));
            with.push(measure(*work, &metrics.observer()));
        }
    }
    println!("{:<42} {:>12} {:>14}", "ns per acquire and release, each thread", "with metrics", "nobody listens");
    for (work, (mut with, mut without)) in lines.iter().zip(results) {
        println!("{:<42} {:>12} {:>14}", work.name, median(&mut with), median(&mut without));
    }
    looks()
}

fn measure(work: Work, observer: &dyn LockObserver) -> u64 {
    let labels: Vec<LockLabel> = (0..work.names).map(|n| LockLabel::new(format!("lock:user:<user_id>:{n}"))).collect();
    for attempt in 0..work.held {
        let key = LockKey::new(format!("held:{attempt}")).expect("valid");
        tell(observer, u64::MAX / 2 + attempt, &labels[0], &key, LockEventKind::WaitStarted);
        tell(observer, u64::MAX / 2 + attempt, &labels[0], &key, acquired(None));
    }
    let labels = &labels;
    let spent: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..work.threads)
            .map(|thread| scope.spawn(move || cycles(work, thread, CYCLES, observer, labels)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mean = spent.iter().sum::<Duration>() / u32::try_from(spent.len()).unwrap_or(1);
    u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX) / CYCLES
}

fn cycles(work: Work, thread: u64, wanted: u64, observer: &dyn LockObserver, labels: &[LockLabel]) -> Duration {
    let key = LockKey::new(format!("lock:user:42:{thread}")).expect("valid");
    let holder = Holder::new(HolderInfo::new("host", 1, "shop::charge"), OwnerId::random(), FencingToken::new(1), None);
    let kept = acquired(work.contended.then_some(&holder));
    let start = spent();
    for (cycle, label) in (0..wanted).zip(labels.iter().cycle()) {
        // Numbered as in a process: interleaved.
        let attempt = cycle * work.threads + thread;
        tell(observer, attempt, label, &key, LockEventKind::WaitStarted);
        if work.contended {
            tell(observer, attempt, label, &key, LockEventKind::Contended { holder: Some(&holder) });
        }
        tell(observer, attempt, label, &key, kept.clone());
        let held = Duration::from_millis(3);
        tell(observer, attempt, label, &key, LockEventKind::Released { held, dropped: false, confirmed: true });
    }
    spent().saturating_sub(start)
}

/// Returns how long this thread has run.
#[cfg(target_os = "linux")]
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns how long this program has run.
#[cfg(not(target_os = "linux"))]
fn spent() -> Duration {
    static START: std::sync::OnceLock<(lock_core::Clock, lock_core::Timestamp)> = std::sync::OnceLock::new();
    let (clock, start) = START.get_or_init(|| {
        let clock = lock_core::Clock::system();
        let now = clock.now();
        (clock, now)
    });
    clock.now().since(*start)
}

/// Measures a process that holds very many locks, and how long looking at them takes.
fn looks() -> Result<(), lock_metrics::InstallError> {
    let metrics = lock_metrics::builder().build()?;
    let observer = metrics.observer();
    let labels: Vec<LockLabel> = (0..200).map(|n| LockLabel::new(format!("lock:family-{n}:<user_id>"))).collect();
    for (attempt, label) in (0..100_000).zip(labels.iter().cycle()) {
        let key = LockKey::new(format!("lock:held:{attempt}")).expect("valid");
        tell(&observer, attempt, label, &key, LockEventKind::WaitStarted);
        tell(&observer, attempt, label, &key, acquired(None));
    }
    println!("\n{:<42} {:>12} {:>14}", "200 lock names, 100,000 holds", "ms", "bytes");
    let looks: [(&str, &dyn Fn() -> Vec<u8>); 4] = [
        ("/metrics", &|| metrics.render().into_bytes()),
        ("/metrics, gzip", &|| gzip(metrics.render().as_bytes())),
        ("/locks", &|| metrics.locks_html().into_bytes()),
        ("/locks.json", &|| metrics.locks_json().into_bytes()),
    ];
    for (name, look) in looks {
        let mut times = [0; ROUNDS];
        let mut bytes = 0;
        for time in &mut times {
            let start = spent();
            bytes = black_box(look()).len();
            *time = u64::try_from(spent().saturating_sub(start).as_micros()).unwrap_or(u64::MAX);
        }
        let median = median(&mut times);
        println!("{name:<42} {:>12} {bytes:>14}", format!("{}.{}", median / 1000, median / 100 % 10));
    }
    let series = metrics.render().lines().filter(|line| line.contains("lock=\"lock:family-7:<user_id>\"")).count();
    println!("{:<42} {series:>12}", "series of a lock name with one call site");
    Ok(())
}

/// Packs a scrape as the listener does for Prometheus.
fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text).and_then(|()| packed.finish()).expect("memory takes everything")
}

fn acquired(waited_for: Option<&Holder>) -> LockEventKind<'_> {
    LockEventKind::Acquired {
        waited: Duration::from_micros(80),
        token: FencingToken::new(7),
        owner: OwnerId::from_hex("000102030405060708090a0b0c0d0e0f").expect("valid"),
        path: if waited_for.is_some() { GrantPath::Granted } else { GrantPath::Uncontended },
        lease_left: Duration::from_secs(30),
        waited_for,
    }
}

fn tell(observer: &dyn LockObserver, attempt: u64, label: &LockLabel, key: &LockKey, kind: LockEventKind<'_>) {
    let event = LockEvent::new(attempt, label, key, "shop::orders::charge", kind);
    let _ = catch_unwind(AssertUnwindSafe(|| observer.on_event(black_box(&event))));
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}
