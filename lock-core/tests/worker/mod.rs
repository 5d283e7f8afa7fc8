//! Another process for the tests: it takes locks as it is told, and is killed and stopped.
//!
//! The process is this test program with the one test `worker::process` and the variable `LOCK_WORKER`, which has the
//! words `MODE name=value …`. It answers on standard output, a line for each thing that happened, and takes orders on
//! standard input. Each of its lines begins with [`ANSWER`], because the test runner prints lines too.

mod compete;
mod mix;
mod nest;
mod resource;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockError, LockGuard, LockManager, LockOptions, ReleaseOutcome};
use lock_testing::{Recorder, Stopwatch, limit};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use resource::Resource;

/// The `name=value` arguments.
struct Args(HashMap<String, String>);

impl Args {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("the argument {name}=… is missing"))
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn options(&self) -> LockOptions {
        let mut options = LockOptions::default();
        options.ttl = Duration::from_millis(self.number("ttl_ms"));
        options.wait = Duration::from_secs(600).into();
        options
    }
}

/// The variable that has the words of a worker, with [`BETWEEN`] between them.
pub(crate) const WORDS: &str = "LOCK_WORKER";
pub(crate) const BETWEEN: char = '\x1f';

/// How each line of a worker begins.
pub(crate) const ANSWER: &str = "> ";

/// What a worker runs. It does nothing in a run of all tests.
#[test]
#[limit(3600)]
fn process() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let mut words = words.split(BETWEEN);
    let mode = words.next().unwrap_or_default();
    let split = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let args = Args(words.filter_map(split).collect());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match mode {
        "contend" => runtime.block_on(contend(&args)),
        "compete" => runtime.block_on(compete::compete(&args)),
        "mix" => runtime.block_on(mix::mix(&args)),
        "hold" => runtime.block_on(hold(&args)),
        "connect" => say(&match runtime.block_on(LockManager::connect(args.text("url"))) {
            Ok(_) => "connected".to_owned(),
            Err(error) => format!("{:?} {error}", error.kind()),
        }),
        "lead" => runtime.block_on(lead(&args)),
        "nest" => runtime.block_on(nest::nest(&args)),
        "body" => runtime.block_on(body(&args)),
        "exit" => exit(&args, &runtime),
        other => panic!("unknown mode {other:?}; use contend, compete, mix, hold, connect, lead, nest, body or exit"),
    }
}

/// Tells the test.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ANSWER}{line}").unwrap();
    out.flush().unwrap();
}

/// Passes on what the test orders, line by line.
fn orders() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Connects, with a recorder if a history is wanted.
async fn connect(args: &Args) -> (LockManager, Option<Arc<Recorder>>) {
    let recorder = args.0.get("history").map(|path| Arc::new(Recorder::append_to(Path::new(path))));
    let locks = LockManager::builder_for(args.text("url")).unwrap().options(args.options()).build().unwrap();
    if let Some(path) = args.0.get("history") {
        locks.observe(Recorder::append_to(Path::new(path)));
    }
    locks.ping().await.unwrap();
    (locks, recorder)
}

/// Many tasks on a handful of keys, each writing under its lock.
async fn contend(args: &Args) {
    let (locks, recorder) = connect(args).await;
    let recorder = recorder.unwrap();
    let resource = Arc::new(Resource::at(args.text("resource")));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..args.number("tasks") {
        let (locks, recorder, resource) = (locks.clone(), Arc::clone(&recorder), Arc::clone(&resource));
        let (keys, rounds) = (args.number("keys"), args.number("rounds"));
        let mut random = fastrand::Rng::with_seed(args.number("seed").wrapping_add(task));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let key = format!("contend:{}", random.u64(0..keys));
                let guard = locks.lock(key.as_str()).await.unwrap();
                assert!(resource.write(&key, guard.token().get()), "a holder was refused");
                if random.bool() {
                    tokio::time::sleep(Duration::from_micros(random.u64(0..2_000))).await;
                }
                recorder.release(guard.key(), guard.token());
                if random.u8(0..4) == 0 {
                    drop(guard);
                } else {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let report = locks.shutdown(Duration::from_secs(5)).await;
    assert!(report.is_clean(), "{report:?}");
    say("done");
}

/// Holds one lock and does as ordered.
async fn hold(args: &Args) {
    let (locks, recorder) = connect(args).await;
    let mut orders = orders();
    say("ready");
    let mut held: Option<LockGuard> = None;
    while let Some(order) = orders.recv().await {
        let (order, key) = order.split_once(' ').unwrap_or((&order, ""));
        match (order, &held) {
            ("acquire", _) => match locks.lock(key).await {
                Ok(guard) => {
                    say(&format!("held {}", guard.token()));
                    held = Some(guard);
                }
                Err(error) => say(&format!("failed {:?} {error}", error.kind())),
            },
            ("check", Some(guard)) => say(&state(guard.ensure_held())),
            ("write", Some(guard)) => {
                let written = Resource::at(args.text("resource")).write(guard.key().as_str(), guard.token().get());
                say(if written { "written" } else { "refused" });
            }
            ("release", _) => {
                let guard = held.take().unwrap();
                if let Some(recorder) = &recorder {
                    recorder.release(guard.key(), guard.token());
                }
                say(&format!("{:?}", guard.release().await.unwrap()));
            }
            _ => panic!("cannot {order} now"),
        }
    }
}

fn state(held: Result<(), LockError>) -> String {
    match held {
        Ok(()) => "held".to_owned(),
        Err(error) => format!("lost {}", error.loss_reason().unwrap().as_str()),
    }
}

/// Writes again and again under one lock, checking before each write, until the body is dropped.
async fn body(args: &Args) {
    let (locks, _) = connect(args).await;
    let resource = Resource::at(args.text("resource"));
    let outcome: Result<(), LockError> = locks
        .lock(args.text("key"))
        .run(async |guard| {
            say(&format!("held {}", guard.token()));
            loop {
                guard.ensure_held()?;
                let written = resource.write(guard.key().as_str(), guard.token().get());
                say(if written { "written" } else { "refused" });
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    say(&state(outcome));
}

/// Stands for election, and writes under its term for as long as it leads.
async fn lead(args: &Args) {
    let (locks, _recorder) = connect(args).await;
    let resource = Resource::at(args.text("resource"));
    let election = locks.elect(args.text("key")).announcing(args.text("name"));
    let never: Result<(), LockError> = election
        .run(async |term| {
            loop {
                let Some(lock) = lock_core::current_lock() else { return };
                if lock.ensure_held().is_ok() && !resource.write(lock.key().as_str(), term.get()) {
                    say("refused");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    panic!("the work has ended: {never:?}");
}

/// Takes a lock and returns from `main` at once, in the way that is asked for. Says whether the machine
/// let it work meanwhile.
fn exit(args: &Args, runtime: &tokio::runtime::Runtime) {
    let locks = runtime.block_on(connect(args)).0;
    let key = args.text("key");
    let take = || runtime.block_on(locks.lock(key).acquire()).unwrap();
    let started = match args.text("how") {
        "guard-then-manager" => {
            let guard = take();
            let started = Stopwatch::start();
            drop(guard);
            drop(locks);
            started
        }
        "manager-then-guard" => {
            let guard = take();
            let started = Stopwatch::start();
            drop(locks);
            drop(guard);
            started
        }
        "inside" => runtime.block_on(async move {
            let _guard = locks.lock(key).acquire().await.unwrap();
            Stopwatch::start()
        }),
        "blocking" => {
            let guard = locks.lock(key).acquire_blocking().unwrap();
            let started = Stopwatch::start();
            drop((guard, locks));
            started
        }
        "cancelled" => runtime.block_on(async move {
            let mut acquire = std::pin::pin!(locks.lock(key).acquire());
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx))).await;
            assert!(polled.is_pending(), "granted without a round trip");
            Stopwatch::start()
        }),
        "released-behind" => runtime.block_on(async move {
            let guard = locks.lock(key).release_in_background().acquire().await.unwrap();
            let started = Stopwatch::start();
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::InBackground));
            started
        }),
        // No destructor runs, and none has to.
        "released-and-gone" => {
            let guard = take();
            assert_eq!(runtime.block_on(guard.release()), Ok(ReleaseOutcome::Released));
            say("undisturbed");
            std::process::exit(0);
        }
        "job-and-gone" | "failed-job-and-gone" => {
            let job = locks.lock(key).at_most_every(Duration::from_secs(3600)).retry_failed();
            let body = async |_: &LockGuard| match args.text("how") {
                "job-and-gone" => Ok(()),
                _ => Err(LockError::unavailable("the report failed")),
            };
            say(match runtime.block_on(job.run(body)) {
                Ok(Some(())) => "ran",
                Ok(None) => "skipped",
                Err(_) => "failed",
            });
            std::process::exit(0);
        }
        "led-and-gone" => {
            runtime.block_on(locks.elect(key).run(async |_| ())).unwrap();
            say("undisturbed");
            std::process::exit(0);
        }
        "leading" => runtime.block_on(async move {
            let _leadership = locks.elect(key).campaign().await.unwrap();
            Stopwatch::start()
        }),
        other => panic!("unknown way to exit {other:?}"),
    };
    // The last handle waits for at most 250 ms, even if this process or the server is slow. The task that answers
    // a cancelled acquire stands still with this runtime, so in that case the handle waits for the whole time.
    let in_time = started.elapsed() < Duration::from_millis(200) || args.text("how") == "cancelled";
    let in_time = in_time && started.stalled() < Duration::from_millis(50);
    say(if in_time { "undisturbed" } else { "disturbed" });
}
