//! Callers of every kind that want the same few keys, in a process that meets every kind of fault.

mod caller;
mod executor;
mod section;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::testing::{Record, Recorder};
use lock_core::{LockEvent, LockEventKind, LockManager, LockObserver, RedisStore};

use crate::resource::Resource;
use crate::{Args, orders, say};
use executor::{Executor, block_on};

/// What the callers of this process share.
struct Shared {
    locks: LockManager,
    recorder: Recorder,
    resource: Resource,
    keys: u64,
    over: AtomicBool,
    /// How often each thing happened.
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

/// Writes down how acquires begin and end. What is held from when to when, the sections say.
struct Endings(Recorder);

impl LockObserver for Endings {
    fn on_event(&self, event: &LockEvent<'_>) {
        let (process, attempt, at) = (std::process::id(), event.attempt, self.0.now());
        if matches!(event.kind, LockEventKind::WaitStarted) {
            self.0.record(&Record::Start { process, attempt, at });
        } else if event.kind.is_terminal() {
            self.0.record(&Record::End { process, attempt, at, how: "told".to_owned() });
        }
    }
}

pub(crate) fn soak(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let history = Path::new(args.text("history"));
    let store = RedisStore::new(args.text("url")).unwrap();
    let locks = LockManager::builder(store).options(args.options()).build().unwrap();
    locks.observe(Endings(Recorder::append_to(history)));
    let shared = Arc::new(Shared {
        locks,
        recorder: Recorder::append_to(history),
        resource: Resource::at(args.text("resource")),
        keys: args.number("keys"),
        over: AtomicBool::new(false),
        tally: Mutex::default(),
    });
    let mut seeds = fastrand::Rng::with_seed(args.number("seed"));
    let tasks: Vec<_> = (0..args.number("tasks"))
        .map(|_| runtime.spawn(caller::call(Arc::clone(&shared), Executor::Tokio, seeds.fork())))
        .collect();
    let mut threads = Vec::new();
    for _ in 0..args.number("threads") {
        let caller = caller::call(Arc::clone(&shared), Executor::Own, seeds.fork());
        threads.push(std::thread::spawn(move || block_on(caller)));
        let (shared, random) = (Arc::clone(&shared), seeds.fork());
        threads.push(std::thread::spawn(move || caller::call_blocking(&shared, random)));
    }
    say("ready");
    let mut orders = orders();
    while let Some(order) = orders.blocking_recv() {
        match order.as_str() {
            "stop" => break,
            "sections" => {
                let sections = shared.tally.lock().unwrap().get("sections").copied().unwrap_or_default();
                say(&sections.to_string());
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
