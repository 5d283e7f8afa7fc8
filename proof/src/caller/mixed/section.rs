//! A critical section as its holder knows it: from the first moment to the last at which the guard said
//! that the lock was held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{CurrentLock, FencingToken, Leadership, LockGuard, LockKey, Mode, Result};

use crate::caller::mixed::Shared;
use crate::record::recorder::now;
use crate::record::{self, Grant, Record};

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
    /// Each key with its token and the number of its hold.
    locks: Vec<(LockKey, FencingToken, u64)>,
    /// The last moment at which the guard was held.
    last: u64,
    /// Whether the holder has become a reader, whose phase has the same token.
    downgraded: bool,
}

impl<'a> Section<'a> {
    /// Begins it, unless the lock is lost by now.
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

    /// Looks whether the lock is still held, and writes under it if it is held by nobody else.
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
        // Before it is asked: that it is held afterwards means that it was held then.
        let now = now();
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
        for (_, _, hold) in &self.locks {
            let (process, downgraded) = (std::process::id(), self.downgraded);
            self.shared.recorder.record(&Record::End { process, hold: *hold, at: self.last, downgraded });
        }
    }
}
