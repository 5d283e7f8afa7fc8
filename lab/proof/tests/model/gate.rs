//! The claims of a process: what it sends, and what it believes.

use crate::scenario::{BUDGET, GRANT_TTL, Mode, Rule, Scenario};
use crate::state::{Ask, At, Claim, Command, Drawn, Gate, Grant, Place, Stage, State};

impl Gate {
    /// Forgets the claim of now.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            claims: self.claims,
            floor: self.floor,
            callers: self.callers,
            ending: std::mem::take(&mut self.ending),
            ambiguous: std::mem::take(&mut self.ambiguous),
            ..Self::default()
        };
    }

    /// Returns the first caller that waits and may be given a turn.
    pub(crate) fn waiter(&self) -> Option<usize> {
        self.callers.iter().position(|caller| caller.place == Place::Waiting && !caller.passed_over)
    }

    pub(crate) fn turn(&mut self, from: Place, to: Place) {
        for caller in self.callers.iter_mut().filter(|caller| caller.place == from) {
            caller.place = to;
        }
    }

    pub(crate) fn is_waiting_for(&self, claim: Claim) -> bool {
        self.stage == Stage::Waiting && self.claim == Some(claim)
    }
}

impl State {
    /// Begins a claim for those who wait.
    pub(crate) fn new_claim(&mut self, scenario: &Scenario, at: At) -> Claim {
        let now = self.now;
        let gate = self.gate(at);
        gate.reset();
        gate.claims += 1;
        let claim = Claim { at, number: if scenario.keeps(Rule::FreshOwners) { gate.claims } else { 0 } };
        (gate.stage, gate.claim, gate.execute_before) = (Stage::Waiting, Some(claim), now + BUDGET);
        claim
    }

    /// Sends the first attempt of a new claim.
    pub(crate) fn begin_claim(&mut self, scenario: &Scenario, at: At) {
        let claim = self.new_claim(scenario, at);
        if !scenario.native || scenario.mode(claim) != Mode::Exclusive {
            return self.ask(scenario, at);
        }
        let sent = self.now;
        let gate = self.gate(at);
        (gate.asking, gate.last_sent) = (true, sent);
        self.processes[at.process].requests.push(Command::Take { claim, sent });
    }

    /// Counts one more send to the script.
    pub(crate) fn next_ask(&mut self, scenario: &Scenario, at: At) -> Option<Ask> {
        let sent = self.now;
        let gate = self.gate(at);
        let claim = gate.claim?;
        gate.attempt += 1;
        (gate.asking, gate.last_sent) = (true, sent);
        (gate.asleep_until, gate.woken) = (None, false);
        let execute_before = if scenario.keeps(Rule::OneDeadline) { gate.execute_before } else { sent + BUDGET };
        let floor = if scenario.keeps(Rule::FloorsAreKept) { gate.floor } else { 0 };
        Some(Ask { claim, attempt: gate.attempt, sent, execute_before, floor })
    }

    pub(crate) fn ask(&mut self, scenario: &Scenario, at: At) {
        if let Some(ask) = self.next_ask(scenario, at) {
            self.processes[at.process].requests.push(Command::Acquire(ask));
        }
    }

    pub(crate) fn may_ask(&self, scenario: &Scenario, at: At) -> bool {
        let gate = &self.processes[at.process].gates[at.key];
        gate.stage == Stage::Waiting && !gate.asking && (scenario.kills || self.now <= gate.execute_before)
    }

    pub(crate) fn ask_again(&mut self, scenario: &Scenario, at: At) {
        if self.may_ask(scenario, at) && self.gate(at).attempt <= scenario.attempts {
            self.ask(scenario, at);
        }
    }

    /// Sends what ends a claim, behind everything that was sent for it.
    pub(crate) fn end(&mut self, scenario: &Scenario, claim: Claim, next: Option<Ask>) {
        self.gate(claim.at).ending.push((claim, next.map(|ask| ask.claim)));
        let requests = &mut self.processes[claim.at.process].requests;
        let overtaken = |command: &Command| match command {
            Command::Take { .. } | Command::Acquire(_) | Command::Release { next: Some(_), .. } => {
                !scenario.keeps(Rule::EndingsGoBehind)
            }
            _ => false,
        };
        let place = requests.iter().position(overtaken).unwrap_or(requests.len());
        requests.insert(place, Command::Release { claim, next });
    }

    /// Ends the claim of a gate, and forgets it.
    pub(crate) fn end_claim(&mut self, scenario: &Scenario, at: At) {
        let gate = self.gate(at);
        if let Some(claim) = gate.claim {
            gate.reset();
            self.end(scenario, claim, None);
        }
    }

    /// Believes that the lock is held until a deadline, if the token will do.
    pub(crate) fn hold(&mut self, scenario: &Scenario, at: At, drawn: Drawn, deadline: u16) {
        let late = self.now >= deadline;
        // A claim that joins others has their token, which it may know.
        let joins = self.mode(scenario, at) != Mode::Exclusive;
        let gate = self.gate(at);
        let known = if scenario.keeps(Rule::FloorsAreKept) { gate.floor } else { 0 };
        (gate.asking, gate.pending) = (false, None);
        if late || drawn.draw <= known && !joins {
            return self.ask_again(scenario, at);
        }
        (gate.stage, gate.deadline, gate.drawn, gate.entered) = (Stage::Holding, deadline, drawn, 0);
        (gate.renewals, gate.confirmed, gate.last_sent) = (0, None, 0);
        if gate.waiter().is_some() {
            self.offer(scenario, at);
        } else {
            self.end_claim(scenario, at);
        }
    }

    /// Judges a grant that arrived for the claim that waits.
    pub(crate) fn consider(&mut self, scenario: &Scenario, at: At, grant: Grant) {
        let now = self.now;
        let gate = self.gate(at);
        let (confirmed_at, confirmed_attempt) = gate.confirmed.unwrap_or_default();
        let (void, counted_from) = if !scenario.keeps(Rule::GrantsEchoStamps) {
            (false, if gate.confirmed.is_some() { confirmed_at } else { gate.last_sent })
        } else if !scenario.keeps(Rule::CountedFromConfirmation) {
            (false, gate.last_sent)
        } else {
            (grant.attempt < confirmed_attempt, grant.stamp)
        };
        if void {
            return;
        }
        let asleep = gate.asleep_until.is_some();
        let confirms = scenario.keeps(Rule::SleepersConfirm);
        let deadline = if asleep && !confirms { now + GRANT_TTL } else { counted_from + GRANT_TTL };
        if now < deadline {
            self.hold(scenario, at, grant.drawn, deadline);
        } else if gate.asking {
            gate.pending = Some(grant);
        } else {
            self.ask_again(scenario, at);
        }
    }

    pub(crate) fn consider_pending(&mut self, scenario: &Scenario, at: At) {
        if let Some(grant) = self.gate(at).pending.take() {
            self.consider(scenario, at, grant);
        }
    }

    /// Ends a claim that is held no more, and goes on with another if somebody waits.
    pub(crate) fn lose(&mut self, scenario: &Scenario, at: At) {
        let gate = self.gate(at);
        let claim = gate.claim;
        gate.turn(Place::Inside, Place::Done);
        gate.turn(Place::Offered, Place::Waiting);
        gate.reset();
        if let Some(claim) = claim.filter(|_| scenario.keeps(Rule::ReleaseAfterLoss)) {
            self.end(scenario, claim, None);
        }
        let gate = self.gate(at);
        if gate.claims >= scenario.claims {
            gate.turn(Place::Waiting, Place::Done);
        } else if gate.waiter().is_some() {
            self.begin_claim(scenario, at);
        }
    }
}
