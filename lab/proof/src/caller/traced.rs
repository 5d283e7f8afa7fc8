//! A caller for each of many keys. It takes the lock, works for a moment and releases it; the log of such a run is
//! checked against the specification. The caller writes down the token of each hold, and from when to when it believed
//! in the hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use lock_core::LockManager;

use crate::caller::{Args, connect, orders, say};
use crate::record::{Grant, Mode, Record, Recorder, now};

struct Caller {
    locks: LockManager,
    recorder: Arc<Recorder>,
    key: String,
    random: Rng,
    over: Arc<AtomicBool>,
}

impl Caller {
    async fn call(mut self) {
        let mut hold = 0;
        while !self.over.load(Ordering::SeqCst) {
            self.rest(90).await;
            let asked = now();
            let Ok(guard) = self.locks.lock(&self.key).acquire().await else { continue };
            let (process, key) = (std::process::id(), self.key.clone());
            if guard.ensure_held().is_err() {
                continue;
            }
            hold += 1;
            // The entry is recorded after the deadline is read. Any renewal that the deadline includes was answered
            // before the entry.
            let read = now();
            let deadline = Some(read + u64::try_from(guard.remaining().as_nanos()).unwrap());
            let at = now();
            let (token, site) = (Some(guard.token().get()), format!("{}:{}", file!(), line!()));
            let numbered = Self::number(&key, hold);
            let grant = Grant {
                process,
                hold: numbered,
                key,
                mode: Mode::Write,
                units: 0,
                limit: 0,
                token,
                asked,
                at,
                deadline,
                site,
            };
            self.recorder.record(&Record::Grant(grant));
            // Some holds last longer than a third of the lease, so that the watchdog renews them.
            let long = self.random.u8(0..12) == 0;
            self.rest(if long { 900 } else { 15 }).await;
            let before = now();
            let last = if guard.ensure_held().is_ok() { before } else { at };
            self.recorder.record(&Record::End { process, hold: numbered, at: last, downgraded: false });
            let _ = guard.release().await;
        }
    }

    /// Holds are numbered within their process. Each key has a range of a million numbers.
    fn number(key: &str, hold: u64) -> u64 {
        let key: u64 = key.rsplit(':').next().and_then(|number| number.parse().ok()).unwrap();
        key * 1_000_000 + hold
    }

    async fn rest(&mut self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(1..most_ms))).await;
    }
}

pub(super) fn run(args: &Args) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let recorder = Arc::new(Recorder::append_to(Path::new(args.text("history"))));
    let mut seeds = Rng::with_seed(args.number("seed"));
    let locks = connect(args);
    let callers: Vec<_> = (0..args.number("keys"))
        .map(|key| Caller {
            locks: locks.clone(),
            recorder: Arc::clone(&recorder),
            key: format!("trace:{key}"),
            random: seeds.fork(),
            over: Arc::clone(&over),
        })
        .map(|caller| runtime.spawn(caller.call()))
        .collect();
    say("ready");
    let mut orders = orders();
    let _ = orders.blocking_recv();
    over.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for caller in callers {
            caller.await.unwrap();
        }
        locks.shutdown(Duration::from_secs(10)).await;
    });
    say("stopped");
}
