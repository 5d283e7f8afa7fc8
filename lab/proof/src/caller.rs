//! A process that takes locks. The harness kills it, stops it and cuts its connections; the process writes down what it held.
//!
//! `lock-proof caller WORKLOAD name=value …`. Orders arrive on standard input; the answers go to standard output.

mod adapter;
mod locks;
mod mixed;
mod plain;
mod race;
mod resource;
mod set;
mod traced;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lock_core::{AnyBackend, LockManager, LockOptions, Quorum, RedisStore};
use lock_kubernetes::Kubernetes;
use lock_postgres::PostgresStore;
use lock_zookeeper::ZooKeeper;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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

pub(crate) fn main(workload: &str, words: &[String]) {
    let split = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let args = Args(words.iter().filter_map(split).collect());
    match workload {
        "mixed" => mixed::run(&args),
        "race" => race::run(&args),
        "set" => set::run(&args),
        "traced" => traced::run(&args),
        _ => plain::run(&args),
    }
}

/// Prints a line for the harness.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Forwards the orders of the harness, line by line.
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

/// Obeys the harness while another thread works, until the harness ends the work.
fn serve(work: JoinHandle<()>, served: &AtomicU64, over: &AtomicBool) {
    say("ready");
    let mut orders = orders();
    while let Some(order) = orders.blocking_recv() {
        match order.as_str() {
            "served" => say(&served.load(Ordering::SeqCst).to_string()),
            _ => break,
        }
    }
    over.store(true, Ordering::SeqCst);
    // An adapter may hang. This process then exits after ten seconds, and the adapter ends with it.
    for _ in 0..1_000 {
        if work.is_finished() {
            work.join().unwrap();
            return say("stopped");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    say("stopped hung=1");
    std::process::exit(0);
}

/// Connects to one store, or to a quorum whose members each process reaches through proxies of its own.
fn connect(args: &Args) -> LockManager {
    let url = args.text("url");
    if url.starts_with("postgres://") {
        return LockManager::builder(PostgresStore::new(url).unwrap()).options(args.options()).build().unwrap();
    }
    if url.starts_with("zookeeper://") {
        return LockManager::builder(ZooKeeper::new(url).unwrap()).options(args.options()).build().unwrap();
    }
    if url.starts_with("kubernetes://") {
        return LockManager::builder(Kubernetes::new(url).unwrap()).options(args.options()).build().unwrap();
    }
    let Some(members) = url.strip_prefix("quorum://") else {
        return LockManager::builder(RedisStore::new(url).unwrap()).options(args.options()).build().unwrap();
    };
    let member = |(place, host): (usize, &str)| {
        AnyBackend::new(RedisStore::new(&format!("redis://{host}")).unwrap()).named(format!("member-{place}"))
    };
    let quorum = Quorum::of(members.split(',').enumerate().map(member)).unwrap();
    let quorum = quorum.with_max_ttl(Duration::from_millis(args.number("max_ttl_ms"))).unwrap();
    LockManager::builder(quorum).options(args.options()).build().unwrap()
}
