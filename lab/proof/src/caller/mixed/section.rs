//! A critical section as its holder sees it: from the first to the last moment at which the guard said that the lock was held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{CurrentLock, FencingToken, Leadership, LockGuard, LockKey, Mode, Result};

use crate::caller::mixed::Shared;
use crate::record::{self, Grant, Record, now};

/// A guard, or whatever else proves a hold.
pub(crate) trait Proof {
    fn ensure_held(&self) -> Result<()>;
    fn locks(&self) -> Vec<(LockKey, FencingToken)>;
    fn mode(&self) -> Mode {
        Mode::Exclusive
    }
    /// How much longer the lock stays held if the process is killed now; zero where the proof does not say.
    fn remaining(&self) -> Duration {
        Duration::ZERO
    }
}

impl Proof for LockGuard {
    fn ensure_held(&self) -> Result<()> {
        self.ensure_held()
    }

    fn locks(&self) -> Vec<(LockKey, FencingToken)> {
        self.keys().map(|key| (key.clone(), self.token_of(key).unwrap())).collect()
    }

    fn mode(&self) -> Mode {
        self.mode()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }
}

impl Proof for CurrentLock {
    fn ensure_held(&self) -> Result<()> {
        self.ensure_held()
    }

    fn locks(&self) -> Vec<(LockKey, FencingToken)> {
        vec![(self.key().clone(), self.token())]
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }
}

/// A leadership knows its term but not its key, so the key stands beside it.
impl Proof for (LockKey, Leadership) {
    fn ensure_held(&self) -> Result<()> {
        self.1.ensure_held()
    }

    fn locks(&self) -> Vec<(LockKey, FencingToken)> {
        vec![(self.0.clone(), self.1.term())]
    }
}

pub(crate) struct Section<'a> {
    shared: &'a Shared,
    mode: Mode,
    /// Each key with its token and the number of its hold.
    locks: Vec<(LockKey, FencingToken, u64)>,
    /// The last moment at which the guard was known to be held.
    last: u64,
    /// Whether the holder became a reader. The readers' phase keeps the same token.
    downgraded: bool,
}

impl<'a> Section<'a> {
    /// Begins the section, unless the lock is already lost.
    pub(crate) fn begin(shared: &'a Shared, proof: &impl Proof, asked: u64) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (at, mode) = (now(), proof.mode());
        let deadline = Some(at + u64::try_from(proof.remaining().as_nanos()).unwrap());
        proof.ensure_held().ok()?;
        let (kind, units, limit) = match mode {
            Mode::Shared { units, limit } if mode.as_str() == "permit" => {
                (record::Mode::Permit, units.into(), limit.into())
            }
            Mode::Shared { .. } => (record::Mode::Read, 1, 0),
            _ => (record::Mode::Write, 0, 0),
        };
        let mut locks = Vec::new();
        for (key, token) in proof.locks() {
            let (process, hold, name) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed), key.to_string());
            let (token_now, site) = (Some(token.get()), format!("mixed:{}", mode.as_str()));
            let grant = Grant {
                process,
                hold,
                key: name,
                mode: kind,
                units,
                limit,
                token: token_now,
                asked,
                at,
                deadline,
                site,
            };
            shared.recorder.record(&Record::Grant(grant));
            locks.push((key, token, hold));
        }
        shared.count(if mode.is_shared() { "shared" } else { "sections" });
        Some(Self { shared, mode, locks, last: at, downgraded: false })
    }

    /// Checks that the lock is still held. Writes to the resource if the hold is exclusive.
    pub(crate) fn write(&mut self, proof: &impl Proof) {
        if !self.holds(proof) {
            return;
        }
        for (key, token, hold) in self.locks.iter().filter(|_| !self.mode.is_shared()) {
            let written = self.shared.resource.write(*hold, Some(token.get()), key.as_str());
            self.shared.count(if written { "writes" } else { "refused-writes" });
        }
        self.holds(proof);
    }

    fn holds(&mut self, proof: &impl Proof) -> bool {
        // The time is read before the check: if the lock is held afterwards, it was held at this time.
        let now = now();
        let held = proof.ensure_held().is_ok();
        if held {
            self.last = now;
        }
        held
    }

    /// Ends the section. Called before the lock is released.
    pub(crate) fn end(mut self, proof: &impl Proof) {
        if !self.holds(proof) {
            self.shared.count("lost");
        }
    }

    /// Ends the section. Called before the holder downgrades and lets readers in.
    pub(crate) fn end_for_readers(mut self, proof: &impl Proof) {
        self.downgraded = true;
        self.end(proof);
    }
}

impl Drop for Section<'_> {
    /// Also runs where the body is dropped because the lock is lost.
    fn drop(&mut self) {
        for (_, _, hold) in &self.locks {
            let (process, downgraded) = (std::process::id(), self.downgraded);
            self.shared.recorder.record(&Record::End { process, hold: *hold, at: self.last, downgraded });
        }
    }
}
