//! Inserts the records of the callers between the steps of the store.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Grant, Record};
use crate::spec::trace::reader::Reader;
use crate::spec::trace::steps::{Key, Kind, NUMBERS, Step, Times, relative};

impl Key {
    /// A repeated attempt that drew a token for the current holder, and raised nothing.
    fn repeated(&mut self, line: usize, draw: i64) {
        let place = self.steps.iter().position(|step| step.line > line).unwrap_or(self.steps.len());
        let before = self.steps[..place].iter().rev().find(|step| matches!(step.kind, Kind::Store | Kind::Expire));
        let Some((step, claim)) = before.and_then(|step| Some((step.clone(), step.held?))) else { return };
        let stored = self.steps[place..].iter_mut().filter(|other| matches!(other.kind, Kind::Store | Kind::Expire));
        for other in stored.take_while(|other| other.held == Some(claim) && other.draw == step.draw) {
            other.draw = draw;
        }
        let repeat =
            Step { line, draw, claims: BTreeSet::from([claim]), acts: vec!["Repeat"], kind: Kind::Store, ..step };
        self.steps.insert(place, repeat);
    }

    /// Inserts when a caller believed that it held the lock.
    fn entered(
        &mut self,
        grant: &Grant,
        ended: Option<u64>,
        base: i64,
        times: &Times,
        alone: &BTreeMap<i64, usize>,
    ) -> Result<(), String> {
        let token = grant.token.ok_or("a hold without a token")?;
        let clock = |at: u64| (i64::try_from(at).unwrap_or(i64::MAX) + times.ahead) / 1_000_000 - base;
        let draw = relative(i64::try_from(token / NUMBERS).unwrap_or(0), base, times);
        let is = |step: &Step| step.kind == Kind::Store && step.held.is_some() && step.draw == draw;
        if !self.steps.iter().any(is)
            && let Some(line) = alone.get(&i64::try_from(token / NUMBERS).unwrap_or(0))
        {
            self.repeated(*line, draw);
        }
        let Some(granted) = self.steps.iter().position(is) else {
            return Err(format!(
                "process {} had {} with the token {token}, which the store did not give",
                grant.process, grant.key
            ));
        };
        let claim = self.steps[granted].held.ok_or("a hold of nobody")?;
        let over = self.steps[granted..]
            .iter()
            .position(|step| step.kind != Kind::Enter && step.held != Some(claim) && step.kind != Kind::Leave);
        let over = over.map_or(self.steps.len(), |place| granted + place);
        // Ordered by time, but after the grant and before the end of the hold: clocks are read in whole milliseconds.
        let place = |from: usize, at: i64| {
            let later = self.steps[from..over].iter().position(|step| step.now > at);
            later.map_or(over, |place| from + place)
        };
        let caller = |kind: Kind, line: usize, now: i64, ends: i64| Step {
            kind,
            line,
            now,
            claims: BTreeSet::from([claim]),
            acts: Vec::new(),
            held: None,
            draw,
            ends,
            queue: Vec::new(),
        };
        let from = granted + 1;
        let (at, until) = (clock(grant.at), grant.deadline.map_or(0, clock));
        let enters = place(from, at);
        let leaves = ended.map(|end| (place(enters, clock(end)), clock(end)));
        if let Some((place, at)) = leaves {
            let line = self.steps[place - 1].line;
            self.steps.insert(place, caller(Kind::Leave, line, at, 0));
        }
        let line = self.steps[enters - 1].line;
        self.steps.insert(enters, caller(Kind::Enter, line, at, until));
        Ok(())
    }
}

impl Reader {
    /// Inserts the records of the callers. Returns the steps of each key.
    pub(super) fn with_callers(mut self, records: &[Record]) -> Result<BTreeMap<String, Vec<Step>>, String> {
        let base = self.base.ok_or("the store logged nothing")?;
        let ends: BTreeMap<(u32, u64), u64> = records
            .iter()
            .filter_map(|record| match record {
                Record::End { process, hold, at, .. } => Some(((*process, *hold), *at)),
                _ => None,
            })
            .collect();
        let mut grants: Vec<&Grant> = records
            .iter()
            .filter_map(|record| if let Record::Grant(grant) = record { Some(grant) } else { None })
            .collect();
        grants.sort_by_key(|grant| grant.at);
        for grant in grants {
            let Some(key) = self.keys.get_mut(&grant.key) else {
                return Err(format!("the store logged nothing of {}", grant.key));
            };
            key.entered(grant, ends.get(&(grant.process, grant.hold)).copied(), base, &self.times, &self.alone)?;
        }
        Ok(self.keys.into_iter().map(|(name, key)| (name, in_order(key.steps))).collect())
    }
}

/// Raises times so that the clock never falls.
fn in_order(mut steps: Vec<Step>) -> Vec<Step> {
    let mut now = 0;
    for step in &mut steps {
        now = now.max(step.now);
        step.now = now;
    }
    steps
}
