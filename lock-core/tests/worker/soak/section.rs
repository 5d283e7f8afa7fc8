//! A critical section as its holder knows it: from the first moment to the last at which the guard said
//! that the lock was held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::testing::Record;
use lock_core::{CurrentLock, FencingToken, Leadership, LockGuard, LockKey, Mode, Result};

use crate::soak::Shared;

/// What proves that something is held.
pub(crate) trait Proof {
    fn ensure_held(&self) -> Result<()>;
    fn locks(&self) -> Vec<(LockKey, FencingToken)>;
    fn mode(&self) -> Mode {
        Mode::Exclusive
    }
    /// For how much longer it would be held by a process that is killed now, if that is known.
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

/// A leadership says its term, and the section what it is of.
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
    locks: Vec<(LockKey, FencingToken, u64)>,
    /// When it was asked for, and the first and the last moment at which the guard was held.
    asked: u64,
    began: u64,
    last: u64,
    /// Whether the holder has become a reader, whose phase has the same token.
    downgraded: bool,
}

impl<'a> Section<'a> {
    /// Begins it, unless the lock is lost by now.
    pub(crate) fn begin(shared: &'a Shared, proof: &impl Proof, asked: u64) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(1 << 48);
        let (at, mode) = (shared.recorder.now(), proof.mode());
        let deadline = at + u64::try_from(proof.remaining().as_nanos()).unwrap();
        proof.ensure_held().ok()?;
        let process = std::process::id();
        let mut locks = Vec::new();
        for (key, token) in proof.locks() {
            let (attempt, name, number) = (COUNT.fetch_add(1, Ordering::Relaxed), key.to_string(), token.get());
            if !mode.is_shared() {
                shared.recorder.record(&Record::Grant { process, attempt, at, key: name, token: number, deadline });
            }
            locks.push((key, token, attempt));
        }
        shared.count(if mode.is_shared() { "shared" } else { "sections" });
        Some(Self { shared, mode, locks, asked, began: at, last: at, downgraded: false })
    }

    /// Looks whether the lock is still held, and writes under it if it is held by nobody else.
    pub(crate) fn write(&mut self, proof: &impl Proof) {
        if !self.holds(proof) {
            return;
        }
        for (key, token, _) in self.locks.iter().filter(|_| !self.mode.is_shared()) {
            let written = self.shared.resource.write(key.as_str(), token.get());
            self.shared.count(if written { "writes" } else { "refused-writes" });
        }
        self.holds(proof);
    }

    fn holds(&mut self, proof: &impl Proof) -> bool {
        // Before it is asked: that it is held afterwards means that it was held then.
        let now = self.shared.recorder.now();
        let held = proof.ensure_held().is_ok();
        if held {
            self.last = now;
        }
        held
    }

    /// Ends it, before the lock is released.
    pub(crate) fn end(mut self, proof: &impl Proof) {
        if !self.holds(proof) {
            self.shared.count("lost");
        }
    }

    /// Ends it, before the holder lets readers in.
    pub(crate) fn end_for_readers(mut self, proof: &impl Proof) {
        self.downgraded = true;
        self.end(proof);
    }
}

impl Drop for Section<'_> {
    /// Also where the body is dropped because the lock is lost.
    fn drop(&mut self) {
        let (process, at) = (std::process::id(), self.last);
        let (mode, units, limit) = match self.mode {
            Mode::Shared { units, limit } => (self.mode.as_str(), units, limit),
            _ if self.downgraded => ("downgraded", 0, 0),
            mode => (mode.as_str(), 0, 0),
        };
        for (key, token, attempt) in &self.locks {
            let (name, token, attempt) = (key.to_string(), token.get(), *attempt);
            let (asked, began) = (self.asked, self.began);
            self.shared.note(&format!("hold {mode} {units} {limit} {token} {asked} {began} {at} {name}"));
            if !self.mode.is_shared() {
                self.shared.recorder.record(&Record::Renew { process, attempt, deadline: at });
                self.shared.recorder.record(&Record::Release { process, at, key: name, token });
                self.shared.recorder.record(&Record::End { process, attempt, at, how: "left".to_owned() });
            }
        }
    }
}
