//! The claims that must hold in every state, and the end to which every state must lead.

use crate::scenario::{Mode, Scenario, TTL, Wrong};
use crate::state::{At, Claim, Command, Entry, Owner, Place, Process, Reach, Reply, Stage, State};
use crate::steps::Step;

/// How many ticks a course may take on which nothing fails any more.
const TICKS: u16 = 40;

/// The processes that believe to have a lock.
pub(crate) struct Believed {
    alone: u16,
    pub(crate) units: u16,
    /// The greatest limit of those who share it.
    limit: u16,
}

impl State {
    pub(crate) fn judge(&self, scenario: &Scenario) -> Option<Wrong> {
        if self.clock_runs() {
            return Some(Wrong::ClockRuns);
        }
        (0..scenario.keys).find_map(|key| self.judge_lock(scenario, key))
    }

    fn judge_lock(&self, scenario: &Scenario, key: usize) -> Option<Wrong> {
        let inside = |process: &Process| {
            process.gates[key].callers.iter().filter(|caller| caller.place == Place::Inside).count()
        };
        if self.processes.iter().any(|process| inside(process) > 1) {
            return Some(Wrong::Exclusion);
        }
        let believed = self.believed(scenario, key);
        if !self.excused && (believed.alone > 1 || believed.alone == 1 && believed.units > 0) {
            return Some(Wrong::Exclusion);
        }
        if !self.excused && believed.units > believed.limit {
            return Some(Wrong::OverLimit);
        }
        let lock = &self.store.locks[key];
        let orphaned = match lock.owner {
            Some(Owner::Claim(claim)) => self.is_orphan(claim),
            Some(Owner::Phase { .. }) => {
                let mut live = lock.sharers.iter().filter(|sharer| sharer.expires > self.server_now());
                live.any(|sharer| self.is_orphan(sharer.claim))
            }
            _ => false,
        };
        if orphaned && !self.is_free(key) && !self.failed_over {
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

    /// Counts who believes to have the lock.
    pub(crate) fn believed(&self, scenario: &Scenario, key: usize) -> Believed {
        let mut believed = Believed { alone: u16::from(self.is_held_by(key, Owner::Stranger)), units: 0, limit: 0 };
        for (index, process) in self.processes.iter().enumerate().filter(|(_, process)| process.alive) {
            let gate = &process.gates[key];
            if gate.stage != Stage::Holding || self.now >= gate.deadline {
                continue;
            }
            match self.mode(scenario, At { process: index, key }) {
                Mode::Exclusive => believed.alone += 1,
                Mode::Shared { units, limit } => {
                    believed.units += units;
                    believed.limit = believed.limit.max(limit);
                }
            }
        }
        believed
    }

    /// Judges whom a grant passes: nobody who waits and can be told.
    pub(crate) fn judge_order(&mut self, claim: Claim) {
        let queue = &self.store.locks[claim.at.key].queue;
        let mut ahead = queue.iter().take_while(|entry| entry.claim != claim);
        if ahead.any(|entry| self.is_told(entry)) {
            self.report(Wrong::Overtaken);
        }
    }

    fn is_told(&self, entry: &Entry) -> bool {
        self.processes[entry.claim.at.process].hears && entry.reach != Reach::PassedOver
    }

    /// Judges what a step leaves behind that moves the queue on: nobody who fits beside the leases that run.
    pub(crate) fn judge_queue(&mut self, scenario: &Scenario, key: usize) {
        let (now, lock) = (self.server_now(), &self.store.locks[key]);
        let used = match lock.owner.filter(|_| !self.is_free(key)) {
            None => 0,
            Some(Owner::Phase { .. }) => {
                lock.sharers.iter().filter(|sharer| sharer.expires > now).map(|sharer| sharer.units).sum()
            }
            Some(_) => return,
        };
        let left_out = lock.queue.iter().find_map(|entry| {
            let fits = match scenario.mode(entry.claim) {
                Mode::Exclusive => used == 0,
                Mode::Shared { units, limit } => used + units <= limit,
            };
            let told = self.is_told(entry) || entry.reach == Reach::Polling;
            let missed = entry.reach == Reach::PassedOver || self.now > entry.confirmed;
            (told || !missed).then_some(fits && told)
        });
        if scenario.has_sharers() && left_out == Some(true) {
            self.report(Wrong::LeftOut);
        }
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

    /// Whether every waiter is served after the last fault, on a fair course. A sleeper continues to sleep.
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
                        | Step::Upgrade(_)
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

    /// The work of each process's keeper at every tick.
    fn ask_and_renew(&mut self, scenario: &Scenario) {
        for process in (0..self.processes.len()).filter(|&process| self.processes[process].alive).collect::<Vec<_>>() {
            for key in 0..scenario.keys {
                let at = At { process, key };
                let backstop = self.steps(scenario).iter().any(|step| matches!(step, Step::Backstop(of) if *of == at));
                let gate = self.gate(at);
                if gate.stage == Stage::Holding {
                    self.renew(at, TTL);
                } else if backstop {
                    self.ask(scenario, at);
                }
            }
        }
    }
}
