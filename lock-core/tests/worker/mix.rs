//! Tasks that read, write and take permits of a few keys for as long as they are let, in a process that may be
//! killed or stopped. Each certain hold is written down in a line: key, mode, units, limit, and
//! from when to when.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{LockErrorKind, LockGuard, LockManager, Mode};
use lock_testing::Recorder;

use crate::worker::{Args, connect, orders, say};

struct Mix {
    locks: LockManager,
    holds: File,
    clock: Arc<Recorder>,
    /// The permits of the semaphore.
    permits: AtomicU32,
    wait: Duration,
}

impl Mix {
    /// Writes a hold down, if it lasted until now.
    fn held(&self, guard: &LockGuard, mode: Mode, from: u64) {
        let until = self.clock.now();
        if guard.ensure_held().is_ok() {
            let (units, limit) = match mode {
                Mode::Shared { units, limit } => (units, limit),
                _ => (0, 0),
            };
            let line = format!("{} {} {units} {limit} {from} {until}\n", guard.key(), mode.as_str());
            (&self.holds).write_all(line.as_bytes()).unwrap();
        }
    }

    async fn visit(&self, random: &mut fastrand::Rng) -> bool {
        let permits = self.permits.load(Ordering::SeqCst);
        let request = match random.u8(0..10) {
            0..3 => self.locks.read("mix:rw"),
            3 => self.locks.write("mix:rw"),
            4..7 => self.locks.semaphore("mix:sem", permits).with_weight(random.u32(1..=2)),
            7 => self.locks.read("mix:any"),
            8 => self.locks.write("mix:any"),
            _ => self.locks.semaphore("mix:any", 3),
        };
        let wait = if random.u8(0..8) == 0 { Duration::ZERO } else { self.wait };
        let guard = match request.with_wait(wait).await {
            Ok(guard) => guard,
            Err(error) => {
                let expected = [LockErrorKind::Timeout, LockErrorKind::Busy, LockErrorKind::Unavailable];
                assert!(expected.contains(&error.kind()), "{error}");
                return false;
            }
        };
        let (from, mode) = (self.clock.now(), guard.mode());
        tokio::time::sleep(Duration::from_micros(random.u64(0..3_000))).await;
        self.held(&guard, mode, from);
        if mode == Mode::Exclusive && random.u8(0..3) == 0 && guard.downgrade().await.is_ok() {
            let from = self.clock.now();
            tokio::time::sleep(Duration::from_micros(random.u64(0..3_000))).await;
            self.held(&guard, Mode::READ, from);
        }
        if random.bool() {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
        true
    }
}

pub(crate) async fn mix(args: &Args) {
    let (locks, clock) = connect(args).await;
    let mix = Arc::new(Mix {
        locks,
        holds: OpenOptions::new().create(true).append(true).open(args.text("holds")).unwrap(),
        clock: clock.unwrap(),
        permits: AtomicU32::new(16),
        wait: Duration::from_millis(args.number("wait_ms")),
    });
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..args.number("tasks") {
        let (mix, over) = (Arc::clone(&mix), Arc::clone(&over));
        let mut random = fastrand::Rng::with_seed(args.number("seed").wrapping_mul(31).wrapping_add(task));
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                mix.visit(&mut random).await;
                tokio::task::yield_now().await;
            }
        });
    }
    say("ready");
    let mut orders = orders();
    while let Some(order) = orders.recv().await {
        match order.split_once(' ') {
            Some(("permits", number)) => mix.permits.store(number.parse().unwrap(), Ordering::SeqCst),
            _ => break,
        }
    }
    over.store(true, Ordering::SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(mix.locks.clone().shutdown(Duration::from_secs(5)).await.is_clean());
    say("done");
}
