//! Callers of every kind that compete for the same few keys, in a process that meets every kind of fault.

mod call;
mod executor;
mod role;
mod section;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{LockEvent, LockEventKind, LockManager, LockObserver};

use crate::caller::resource::Resource;
use crate::caller::{Args, connect, orders, say};
use crate::record::{Record, Recorder, Told, now};
use executor::{Executor, block_on};

const MS: Duration = Duration::from_millis(1);

/// The state that all callers of this process share.
struct Shared {
    locks: LockManager,
    recorder: Recorder,
    /// Whether there are readers and permits.
    shares: bool,
    resource: Resource,
    keys: u64,
    over: AtomicBool,
    /// How often each event happened.
    tally: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    fn count(&self, what: &str) {
        *self.tally.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Writes down when acquires begin and end, and which jobs were reported to the store. The sections write down the holds.
struct Endings(Recorder);

impl LockObserver for Endings {
    fn on_event(&self, event: &LockEvent<'_>) {
        let (process, attempt, at) = (std::process::id(), event.attempt, now());
        if matches!(event.kind, LockEventKind::WaitStarted) {
            self.0.record(&Record::Start { process, attempt, at });
        } else if event.kind.is_terminal() {
            self.0.record(&Record::Over { process, attempt, at });
        }
        if matches!(event.kind, LockEventKind::Released { .. }) && event.key.as_str().starts_with("soak:job:plain@") {
            let name = event.key.to_string();
            self.0.record(&Record::Job { what: Told::Told, name, within: None, asked: at, at });
        }
    }
}

pub(crate) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let history = Path::new(args.text("history"));
    let locks = connect(args);
    locks.observe(Endings(Recorder::append_to(history)));
    let shared = Arc::new(Shared {
        locks,
        recorder: Recorder::append_to(history),
        shares: !args.text("url").starts_with("quorum"),
        resource: Resource::at(args.text("resource")),
        keys: args.number("keys"),
        over: AtomicBool::new(false),
        tally: Mutex::default(),
    });
    let mut seeds = fastrand::Rng::with_seed(args.number("seed"));
    let mut tasks: Vec<_> = (0..args.number("tasks"))
        .map(|_| runtime.spawn(call::call(Arc::clone(&shared), Executor::Tokio, seeds.fork())))
        .collect();
    tasks.push(runtime.spawn(role::schedule(Arc::clone(&shared), seeds.fork())));
    tasks.push(runtime.spawn(role::stand(Arc::clone(&shared), seeds.fork())));
    let mut threads = Vec::new();
    for _ in 0..args.number("threads") {
        let caller = call::call(Arc::clone(&shared), Executor::Own, seeds.fork());
        threads.push(std::thread::spawn(move || block_on(caller)));
        let (shared, random) = (Arc::clone(&shared), seeds.fork());
        threads.push(std::thread::spawn(move || call::call_blocking(&shared, random)));
    }
    say("ready");
    let mut orders = orders();
    while let Some(order) = orders.blocking_recv() {
        match order.as_str() {
            "stop" => break,
            "served" => {
                let tally = shared.tally.lock().unwrap();
                let kinds = if shared.shares { &["sections", "terms", "shared"][..] } else { &["sections", "terms"] };
                let counts = kinds.iter().map(|kind| tally.get(*kind).copied().unwrap_or_default().to_string());
                say(&counts.collect::<Vec<_>>().join(" "));
            }
            other => panic!("unknown order {other:?}"),
        }
    }
    shared.over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        let report = shared.locks.shutdown(Duration::from_secs(10)).await;
        assert!(report.is_clean(), "{report:?}");
    });
    let tally = shared.tally.lock().unwrap().iter().map(|(what, count)| format!("{what}={count}")).collect::<Vec<_>>();
    say(&format!("stopped {}", tally.join(" ")));
}
