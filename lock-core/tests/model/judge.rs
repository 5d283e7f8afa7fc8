//! What must hold in every state, and where every state must lead.

use crate::scenario::{Scenario, TTL, Wrong};
use crate::state::{At, Claim, Command, Owner, Place, Process, Reply, Stage, State};
use crate::steps::Step;

/// How many ticks a course may take on which nothing fails any more.
const TICKS: u16 = 40;

impl State {
    pub(crate) fn judge(&self, scenario: &Scenario) -> Option<Wrong> {
        if self.clock_runs() {
            return Some(Wrong::ClockRuns);
        }
        (0..scenario.keys).find_map(|key| self.judge_lock(scenario, key))
    }

    fn judge_lock(&self, scenario: &Scenario, key: usize) -> Option<Wrong> {
        let mut believers = u16::from(self.is_held_by(key, Owner::Stranger));
        for process in self.processes.iter().filter(|process| process.alive) {
            let gate = &process.gates[key];
            let inside = gate.callers.iter().filter(|caller| caller.place == Place::Inside).count();
            if inside > 1 {
                return Some(Wrong::Exclusion);
            }
            believers += u16::from(gate.stage == Stage::Holding && self.now < gate.deadline);
        }
        if believers > 1 && !self.excused {
            return Some(Wrong::Exclusion);
        }
        let orphaned = match self.store.locks[key].owner {
            Some(Owner::Claim(claim)) => !self.is_free(key) && !self.failed_over && self.is_orphan(claim),
            _ => false,
        };
        if orphaned {
            return Some(Wrong::OrphanKey);
        }
        let quiet = |process: &Process| {
            process.gates[key].stage != Stage::Holding
                && process.requests.is_empty()
                && process.replies.is_empty()
                && process.inbox.is_empty()
                && process.stray.is_empty()
        };
        let waits = |process: &Process| {
            let gate = &process.gates[key];
            process.alive && process.hears && gate.stage == Stage::Waiting && gate.confirmed.is_some() && !gate.asking
        };
        let stalled =
            scenario.finds_stalls && self.store.locks[key].owner.is_none() && self.processes.iter().all(quiet);
        (stalled && self.processes.iter().any(waits)).then_some(Wrong::Stall)
    }

    /// Whether a live process has nothing more to do with the claim that holds the lock.
    fn is_orphan(&self, claim: Claim) -> bool {
        let process = &self.processes[claim.at.process];
        let gate = &process.gates[claim.at.key];
        let ends = |command: &Command| matches!(command, Command::Release { claim: other, .. } if *other == claim);
        let grants = |reply: &Reply| matches!(reply, Reply::Granted { claim: other, .. } if *other == claim);
        process.alive
            && gate.claim != Some(claim)
            && !gate.ending.iter().any(|(other, _)| *other == claim)
            && !gate.ambiguous.iter().any(|(other, _)| *other == claim)
            && !process.requests.iter().chain(&process.stray).any(ends)
            && !process.inbox.iter().any(|grant| grant.claim == claim)
            && !process.replies.iter().any(grants)
    }

    fn everybody_is_served(&self) -> bool {
        let served = |process: &Process| {
            let mut callers = process.gates.iter().flat_map(|gate| gate.callers);
            callers.all(|caller| caller.asleep || matches!(caller.place, Place::Away | Place::Done))
        };
        self.processes.iter().all(|process| !process.alive || served(process))
    }

    /// Whether everybody is served once nothing fails any more, on a fair course. Whoever sleeps, sleeps on.
    pub(crate) fn completes(&self, scenario: &Scenario) -> bool {
        let scenario =
            Scenario { attempts: u16::MAX, claims: u16::MAX, horizon: u16::MAX, finds_stalls: false, ..*scenario };
        let mut state = Self { faults: Default::default(), wrong: None, ..self.clone() };
        let started = state.now;
        while state.now - started <= TICKS {
            if state.everybody_is_served() {
                return true;
            }
            let waits_for_others = |step: &Step| {
                matches!(
                    step,
                    Step::Tick
                        | Step::Start(..)
                        | Step::Wake(..)
                        | Step::ExecuteStray(_)
                        | Step::Backstop(_)
                        | Step::Renew(..)
                )
            };
            if let Some(step) = state.steps(&scenario).into_iter().find(|step| !waits_for_others(step)) {
                state.apply(&scenario, step);
                continue;
            }
            state.apply(&scenario, Step::Tick);
            state.ask_and_renew(&scenario);
        }
        false
    }

    /// What the keeper of each process does at every tick.
    fn ask_and_renew(&mut self, scenario: &Scenario) {
        for process in (0..self.processes.len()).filter(|&process| self.processes[process].alive).collect::<Vec<_>>() {
            for key in 0..scenario.keys {
                let at = At { process, key };
                let backstop = self.steps(scenario).iter().any(|step| matches!(step, Step::Backstop(of) if *of == at));
                let gate = self.gate(at);
                if gate.stage == Stage::Holding {
                    self.renew(scenario, at, TTL);
                } else if backstop {
                    self.ask(scenario, at);
                }
            }
        }
    }
}
