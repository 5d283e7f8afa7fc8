//! One caller that takes a lock, works, writes and releases, again and again. Every library can do this, so this
//! library and the others run the same loop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use crate::caller::locks::{Held, Locks, WAIT};
use crate::caller::resource::Resource;
use crate::caller::{Args, serve};
use crate::record::{Grant, Mode, Record, Recorder, now};

const MS: Duration = Duration::from_millis(1);

/// How long an acquire waits in a crowd whose members all want the same lock.
const LONG_WAIT: Duration = Duration::from_secs(600);

struct Caller {
    locks: Locks,
    recorder: Recorder,
    resource: Resource,
    keys: u64,
    /// Whether this caller waits for the one crowded lock until its turn, and then holds it for longer.
    long: bool,
    /// Whether the caller checks that it still holds the lock before it writes.
    looks: bool,
    /// The longest pause between the check and the write.
    gap_ms: u32,
    random: Rng,
    served: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Caller {
    fn call(mut self) {
        let mut count = 0;
        while !self.over.load(Ordering::SeqCst) {
            let (key, wait) = if self.long {
                ("proof:long".to_owned(), LONG_WAIT)
            } else {
                (format!("proof:{}", self.random.u64(0..self.keys)), WAIT)
            };
            let asked = now();
            if let Some(held) = self.locks.acquire(&key, wait) {
                count += 1;
                self.work(held, &key, asked, count);
            }
            std::thread::sleep(self.random.u32(0..10) * MS);
        }
        self.locks.leave();
    }

    fn work(&mut self, held: Held, key: &str, asked: u64, hold: u64) {
        let (process, at, token) = (std::process::id(), now(), held.token());
        let (deadline, mut last) = (held.deadline(at).filter(|_| self.looks), at);
        if self.looks && !self.locks.is_held(&held) {
            return self.locks.release(held);
        }
        let site = format!("{}:{}", file!(), line!());
        let (mode, name, units, limit) = (Mode::Write, key.to_owned(), 0, 0);
        let grant = Grant { process, hold, key: name, mode, units, limit, token, asked, at, deadline, site };
        self.recorder.record(&Record::Grant(grant));
        self.served.fetch_add(1, Ordering::SeqCst);
        for _ in 0..self.random.u8(1..4) {
            std::thread::sleep(self.random.u32(0..if self.long { 60 } else { 15 }) * MS);
            let before = now();
            if self.looks && !self.locks.is_held(&held) {
                break;
            }
            last = before;
            // A process may be stopped between the check and the write. No lock can rule that out.
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
}

pub(super) fn run(args: &Args) {
    let (served, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let caller = Caller {
        locks: Locks::of(args),
        recorder: Recorder::append_to(Path::new(args.text("history"))),
        resource: Resource::at(args.text("resource")),
        keys: args.number("keys"),
        long: args.text("long") == "true",
        looks: args.text("looks") == "true",
        gap_ms: u32::try_from(args.number("gap_ms")).unwrap(),
        random: Rng::with_seed(args.number("seed")),
        served: Arc::clone(&served),
        over: Arc::clone(&over),
    };
    serve(std::thread::spawn(move || caller.call()), &served, &over);
}
