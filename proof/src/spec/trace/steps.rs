//! What happened to one key in the store, step by step. `TRACE.md` says how a log is read.

use std::collections::{BTreeMap, BTreeSet};

/// A claim: the number of its process, and the number that it has there.
pub(super) type Claim = (usize, usize);

/// One step of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: Kind,
    /// Which step of the store it was, or follows.
    pub(super) line: usize,
    /// Milliseconds since the log began.
    pub(super) now: i64,
    /// Whose step it may be.
    pub(super) claims: BTreeSet<Claim>,
    /// Which actions it may be.
    pub(super) acts: Vec<&'static str>,
    /// What lies in the store afterwards: who holds K, with which draw, until when; and who waits.
    pub(super) held: Option<Claim>,
    pub(super) draw: i64,
    pub(super) ends: i64,
    pub(super) queue: Vec<Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Store,
    Expire,
    Enter,
    Leave,
}

/// How long a lease is, and by how much what one step reads of the clock may differ, ms.
pub(super) struct Times {
    pub(super) ttl: i64,
    pub(super) slack: i64,
    /// How long one step may take, so that its token is so much older than its lease, ms.
    pub(super) longest: i64,
    /// What the wall clock is ahead of that of the callers, ns.
    pub(super) ahead: i64,
}

/// The store's side of a key while its log is read.
#[derive(Default)]
pub(super) struct Key {
    pub(super) names: BTreeMap<String, Claim>,
    pub(super) counts: BTreeMap<usize, usize>,
    pub(super) last: BTreeMap<usize, String>,
    pub(super) held: Option<String>,
    pub(super) draw: i64,
    pub(super) ends: i64,
    /// Owners with their scores and when they were confirmed.
    pub(super) queue: Vec<(String, i64)>,
    /// Whether K is left free.
    pub(super) window: bool,
    /// Claims whose lease ended, and that were not released since.
    pub(super) lost: BTreeSet<String>,
    pub(super) steps: Vec<Step>,
    pub(super) now: i64,
    pub(super) line: usize,
}

/// What one step did to one key.
#[derive(Debug, Default)]
pub(super) struct Effect {
    pub(super) freed: bool,
    pub(super) set: Option<(String, i64, i64)>,
    pub(super) native: bool,
    pub(super) raised: Option<(i64, Option<i64>)>,
    /// Until when the queue is kept.
    pub(super) kept: Option<i64>,
    pub(super) entered: Option<(String, i64, i64)>,
    pub(super) left: Vec<String>,
    /// Whether somebody was not reached by the message of a grant, and keeps its place.
    pub(super) passed_over: bool,
    /// When K was left free.
    pub(super) window: Option<i64>,
}

/// Tokens of one millisecond, as in docs/protocol.md.
pub(super) const DRAWS: i64 = 8192;
pub(super) const NUMBERS: u64 = 128;
/// For how long K is left free, and at most, where a client of another library is expected, ms.
pub(super) const WINDOW: i64 = 10;
pub(super) const LONGEST_WINDOW: i64 = 20;

impl Key {
    /// Whether the store keeps nothing of a claim any more.
    pub(super) fn is_over(&self, owner: &str) -> bool {
        self.held.as_deref() != Some(owner) && !self.queue.iter().any(|(waiter, _)| waiter == owner)
    }

    fn claims<'a>(&self, owners: impl IntoIterator<Item = &'a String>) -> BTreeSet<Claim> {
        owners.into_iter().filter_map(|owner| self.names.get(owner)).copied().collect()
    }

    pub(super) fn push(&mut self, kind: Kind, claims: BTreeSet<Claim>, acts: Vec<&'static str>) {
        let held = self.held.as_ref().map(|owner| self.names[owner]);
        let queue = self.queue.iter().map(|(owner, _)| self.names[owner]).collect();
        let (draw, ends) = if held.is_some() { (self.draw, self.ends) } else { (0, 0) };
        self.steps.push(Step { kind, line: self.line, now: self.now, claims, acts, held, draw, ends, queue });
    }

    pub(super) fn happened(&mut self, effect: &Effect, base: i64, times: &Times) {
        let was = self.held.clone();
        let waited = !self.queue.is_empty();
        self.queue.retain(|(owner, _)| !effect.left.contains(owner));
        let mut now = None;
        let mut again = false;
        if let Some((owner, confirmed, _)) = &effect.entered {
            let confirmed = confirmed / 1000 - base;
            now = Some(confirmed);
            match self.queue.iter_mut().find(|(known, _)| known == owner) {
                // A second confirmation within a tick is none.
                Some((_, before)) => again = std::mem::replace(before, confirmed) == confirmed,
                None => self.queue.push((owner.clone(), confirmed)),
            }
        }
        if let Some(began) = effect.window {
            now = Some(began - base);
        }
        let freed = effect.freed && was.is_some();
        if freed {
            self.held = None;
        }
        let mut granted = None;
        if let Some((value, ends, draw)) = &effect.set {
            let owner = value[..32].to_owned();
            (self.ends, self.draw) = (ends - base, relative(*draw, base, times));
            now = Some(ends - base - times.ttl);
            granted = Some(owner.clone());
            self.held = Some(owner);
        }
        if let Some((ends, draw)) = effect.raised {
            self.ends = self.ends.max(ends - base);
            now = Some(ends - base - times.ttl);
            self.draw = draw.map_or(self.draw, |draw| relative(draw, base, times));
        }
        self.now = self.now.max(now.unwrap_or(self.now));
        let passed_on = was.is_some() && granted.is_some();
        if let Some((owner, ..)) = &effect.entered {
            let act = if self.held.is_none() && self.window { "QueueMeanwhile" } else { "Queue" };
            if !again || granted.is_some() {
                self.push(Kind::Store, self.claims([owner]), vec![act]);
            }
        } else if let Some((_, draw)) = effect.raised {
            let act = if draw.is_some() { "Repeat" } else { "Renew" };
            self.push(Kind::Store, self.claims(&was), vec![act]);
        } else if passed_on {
            self.push(Kind::Store, self.claims(&was), vec!["HandOff"]);
        } else if let Some(owner) = granted {
            // Who came may have been granted, or the end of a claim that is over has moved the queue on.
            let (mut claims, mut acts) = (self.claims([&owner]), vec!["Grant"]);
            if effect.native {
                acts.push("Native");
            } else if waited {
                claims.extend(self.claims(self.lost.iter().chain(&effect.left)));
                acts.push("HandOff");
            }
            self.push(Kind::Store, claims, acts);
        } else if freed {
            let act = if effect.window.is_some() { "LeaveFree" } else { "Free" };
            self.push(Kind::Store, self.claims(&was), vec![act]);
        } else if waited && !effect.left.is_empty() {
            let claims = self.claims(self.lost.iter().chain(&effect.left));
            self.push(Kind::Store, claims, vec!["Free"]);
        }
        if let Some(step) = self.steps.last_mut().filter(|step| effect.passed_over && step.line == self.line) {
            step.acts.push("PassOver");
        }
        if effect.window.is_some() {
            self.window = true;
        }
    }
}

/// A draw since the log began. A script reads the clock several times, for its token first.
pub(super) fn relative(draw: i64, base: i64, times: &Times) -> i64 {
    draw - (base - times.longest) * DRAWS
}

/// The owner in a value of K, and the process.
pub(super) fn owner_of(value: &str) -> Option<(&str, u32)> {
    let mut fields = value.split('|');
    let owner = fields.next().filter(|owner| owner.len() == 32)?;
    Some((owner, fields.nth(3)?.parse().ok()?))
}
