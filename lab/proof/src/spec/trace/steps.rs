//! The steps of one key in the store. `TRACE.md` says how a log is read.

use std::collections::{BTreeMap, BTreeSet};

/// A claim: the number of its process, and its number there.
pub(super) type Claim = (usize, usize);

/// One step of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: Kind,
    /// The number of the store's step, or of the step that this one follows.
    pub(super) line: usize,
    /// Milliseconds since the log began.
    pub(super) now: i64,
    /// The claims that may have taken the step.
    pub(super) claims: BTreeSet<Claim>,
    /// The actions that the step may be.
    pub(super) acts: Vec<&'static str>,
    /// The state of the store afterwards: the holder of K with its draw and its expiry, and the queue.
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

/// The length of a lease, and how far apart two readings of the clock in one step may be, in ms.
pub(super) struct Times {
    pub(super) ttl: i64,
    pub(super) slack: i64,
    /// How long one step may take, in ms. Its token may be that much older than its lease.
    pub(super) longest: i64,
    /// How far the wall clock is ahead of the callers' clock, in ns.
    pub(super) ahead: i64,
}

/// The state of a key while its log is read.
#[derive(Default)]
pub(super) struct Key {
    pub(super) names: BTreeMap<String, Claim>,
    pub(super) counts: BTreeMap<usize, usize>,
    pub(super) last: BTreeMap<usize, String>,
    pub(super) held: Option<String>,
    pub(super) draw: i64,
    pub(super) ends: i64,
    /// Waiting owners in their order, each with the time of its last confirmation.
    pub(super) queue: Vec<(String, i64)>,
    /// Whether K is left free for a moment.
    pub(super) window: bool,
    /// Claims whose lease expired and that are not released yet.
    pub(super) lost: BTreeSet<String>,
    pub(super) steps: Vec<Step>,
    pub(super) now: i64,
    pub(super) line: usize,
}

/// The effect of one step on one key.
#[derive(Debug, Default)]
pub(super) struct Effect {
    pub(super) freed: bool,
    pub(super) set: Option<(String, i64, i64)>,
    pub(super) native: bool,
    pub(super) raised: Option<(i64, Option<i64>)>,
    /// The expiry of the queue.
    pub(super) kept: Option<i64>,
    pub(super) entered: Option<(String, i64, i64)>,
    pub(super) left: Vec<String>,
    /// Whether a message of a grant did not reach a waiter, which keeps its place.
    pub(super) passed_over: bool,
    /// When K was left free for a moment.
    pub(super) window: Option<i64>,
}

/// Tokens of one millisecond, as in docs/protocol.md.
pub(super) const DRAWS: i64 = 8192;
pub(super) const NUMBERS: u64 = 128;
/// How long K is left free, in ms: usually, and where a client of another library is expected.
pub(super) const WINDOW: i64 = 10;
pub(super) const LONGEST_WINDOW: i64 = 20;

impl Key {
    /// Whether the store has forgotten the claim.
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
                // A second confirmation within the same tick changes nothing.
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
            // The step may be the grant to a new caller. It may also be the end of an old claim, which moved the queue on.
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

/// A token relative to the start of the log. A script reads the clock several times, and for its token first.
pub(super) fn relative(draw: i64, base: i64, times: &Times) -> i64 {
    draw - (base - times.longest) * DRAWS
}

/// The owner in a value of K, and its process.
pub(super) fn owner_of(value: &str) -> Option<(&str, u32)> {
    let mut fields = value.split('|');
    let owner = fields.next().filter(|owner| owner.len() == 32)?;
    Some((owner, fields.nth(3)?.parse().ok()?))
}
