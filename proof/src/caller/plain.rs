//! One caller that takes a lock, works, writes and gives the lock up, again and again: what everybody's lock can do, so
//! that ours and those of others do the same.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use lock_core::{LockGuard, LockManager};

use crate::caller::adapter::Adapter;
use crate::caller::resource::Resource;
use crate::caller::{Args, connect, orders, say};
use crate::record::recorder::{Recorder, now};
use crate::record::{Grant, Mode, Record};

const WAIT: Duration = Duration::from_secs(5);
const MS: Duration = Duration::from_millis(1);

/// Our locks, or somebody else's.
enum Locks {
    Ours(LockManager),
    Theirs(Box<Adapter>),
}

/// A lock of ours, or that the adapter holds one.
enum Held {
    Ours(Box<LockGuard>),
    Theirs(Option<u64>),
}

impl Locks {
    fn acquire(&mut self, key: &str) -> Option<Held> {
        match self {
            Self::Ours(locks) => {
                locks.lock(key).with_wait(WAIT).acquire_blocking().ok().map(|guard| Held::Ours(Box::new(guard)))
            }
            Self::Theirs(adapter) => adapter.acquire(key, WAIT).map(Held::Theirs),
        }
    }

    fn is_held(&mut self, held: &Held) -> bool {
        match (self, held) {
            (Self::Theirs(adapter), _) => adapter.is_held(),
            (_, Held::Ours(guard)) => guard.ensure_held().is_ok(),
            _ => false,
        }
    }

    fn release(&mut self, held: Held) {
        match (self, held) {
            (Self::Theirs(adapter), _) => adapter.release(),
            (_, Held::Ours(guard)) => _ = guard.release_blocking(),
            _ => {}
        }
    }
}

impl Held {
    fn token(&self) -> Option<u64> {
        match self {
            Self::Ours(guard) => Some(guard.token().get()),
            Self::Theirs(token) => *token,
        }
    }
}

struct Caller {
    locks: Locks,
    recorder: Recorder,
    resource: Resource,
    keys: u64,
    /// Whether it looks that it still holds the lock before it writes.
    looks: bool,
    /// The longest time between the look and the write.
    gap_ms: u32,
    random: Rng,
    served: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Caller {
    fn call(mut self) {
        let mut count = 0;
        while !self.over.load(Ordering::SeqCst) {
            let (asked, key) = (now(), format!("proof:{}", self.random.u64(0..self.keys)));
            if let Some(held) = self.locks.acquire(&key) {
                count += 1;
                self.work(held, &key, asked, count);
            }
            std::thread::sleep(self.random.u32(0..10) * MS);
        }
        if let Locks::Ours(locks) = self.locks {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(locks.shutdown(Duration::from_secs(10)));
        }
    }

    fn work(&mut self, held: Held, key: &str, asked: u64, hold: u64) {
        let (process, at, token) = (std::process::id(), now(), held.token());
        let (deadline, mut last) = (self.deadline(&held, at), at);
        if self.looks && !self.locks.is_held(&held) {
            return self.locks.release(held);
        }
        let site = format!("{}:{}", file!(), line!());
        let (mode, name, units, limit) = (Mode::Write, key.to_owned(), 0, 0);
        let grant = Grant { process, hold, key: name, mode, units, limit, token, asked, at, deadline, site };
        self.recorder.record(&Record::Grant(grant));
        self.served.fetch_add(1, Ordering::SeqCst);
        for _ in 0..self.random.u8(1..4) {
            std::thread::sleep(self.random.u32(0..15) * MS);
            let before = now();
            if self.looks && !self.locks.is_held(&held) {
                break;
            }
            last = before;
            // Between the look and the write a process may stand still, which nobody can rule out.
            std::thread::sleep(self.random.u32(0..self.gap_ms) * MS);
            self.resource.write(hold, token, key);
            let after = now();
            if !self.looks || self.locks.is_held(&held) {
                last = after;
            }
        }
        self.recorder.record(&Record::End { process, hold, at: last, downgraded: false });
        self.locks.release(held);
    }

    fn deadline(&self, held: &Held, at: u64) -> Option<u64> {
        let Held::Ours(guard) = held else { return None };
        self.looks.then(|| at + u64::try_from(guard.remaining().as_nanos()).unwrap())
    }
}

pub(super) fn run(args: &Args) {
    let (served, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let adapter = args.text("adapter");
    let locks = if adapter.is_empty() {
        Locks::Ours(connect(args))
    } else {
        Locks::Theirs(Box::new(Adapter::start(adapter, args.text("url"), args.text("ttl_ms"))))
    };
    let caller = Caller {
        locks,
        recorder: Recorder::append_to(Path::new(args.text("history"))).unwrap(),
        resource: Resource::at(args.text("resource")),
        keys: args.number("keys"),
        looks: args.text("looks") == "true",
        gap_ms: u32::try_from(args.number("gap_ms")).unwrap(),
        random: Rng::with_seed(args.number("seed")),
        served: Arc::clone(&served),
        over: Arc::clone(&over),
    };
    let work = std::thread::spawn(move || caller.call());
    say("ready");
    let mut orders = orders();
    while let Some(order) = orders.blocking_recv() {
        match order.as_str() {
            "served" => say(&served.load(Ordering::SeqCst).to_string()),
            _ => break,
        }
    }
    over.store(true, Ordering::SeqCst);
    // An adapter that hangs ends with this process.
    for _ in 0..1_000 {
        if work.is_finished() {
            work.join().unwrap();
            return say("stopped");
        }
        std::thread::sleep(10 * MS);
    }
    say("stopped hung=1");
    std::process::exit(0);
}
