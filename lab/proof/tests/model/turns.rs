//! The turns of a process's callers.

use crate::scenario::{Mode, NUMBERS_PER_DRAW, Rule, Scenario, Wrong};
use crate::state::{At, Command, Place, Stage, State};

impl State {
    pub(crate) fn start_caller(&mut self, scenario: &Scenario, at: At, caller: usize) {
        self.gate(at).callers[caller].place = Place::Waiting;
        self.claim_if_idle(scenario, at);
    }

    pub(crate) fn claim_if_idle(&mut self, scenario: &Scenario, at: At) {
        let gate = self.gate(at);
        if gate.stage == Stage::Idle && gate.waiter().is_some() && gate.claims < scenario.claims {
            self.begin_claim(scenario, at);
        }
    }

    /// Wakes the caller whose turn it is. Where everybody is polled, it takes the turn at once.
    pub(crate) fn offer(&mut self, scenario: &Scenario, at: At) {
        let now = self.now;
        let gate = self.gate(at);
        let Some(next) = gate.waiter() else {
            return;
        };
        (gate.callers[next].place, gate.offered_at) = (Place::Offered, now);
        if scenario.faults.sleep == 0 {
            self.take_turn(scenario, at, next);
        }
    }

    /// A caller is polled and finds that it has the turn.
    pub(crate) fn take_turn(&mut self, scenario: &Scenario, at: At, caller: usize) {
        let now = self.now;
        let gate = self.gate(at);
        if now >= gate.deadline {
            if scenario.keeps(Rule::DeadlineReadAtTake) {
                return self.lose(scenario, at);
            }
            self.report(Wrong::LateEntry);
        }
        // Claims that share a lock have one token.
        let numbered = self.mode(scenario, at) == Mode::Exclusive;
        let gate = self.gate(at);
        gate.callers[caller].place = Place::Inside;
        let (drawn, number) = (gate.drawn, if numbered { gate.entered } else { 0 });
        gate.entered += 1;
        gate.floor = gate.floor.max(drawn.draw);
        self.use_token(scenario, at, drawn, number);
    }

    /// The one whose turn it is has not been polled for a slice.
    pub(crate) fn take_back(&mut self, scenario: &Scenario, at: At) {
        let gate = self.gate(at);
        let Some(sleeper) = gate.callers.iter().position(|caller| caller.place == Place::Offered) else {
            return;
        };
        gate.callers[sleeper].passed_over = scenario.keeps(Rule::PassedOverUntilPolled);
        if scenario.keeps(Rule::TurnsHaveOneTaker) {
            gate.callers[sleeper].place = Place::Waiting;
        }
        self.pass_on(scenario, at);
    }

    /// A caller is done.
    pub(crate) fn finish(&mut self, scenario: &Scenario, at: At) {
        self.gate(at).turn(Place::Inside, Place::Done);
        self.pass_on(scenario, at);
    }

    /// A caller that has the lock for itself goes on as a reader.
    pub(crate) fn downgrade(&mut self, at: At) {
        let sent = self.now;
        let gate = self.gate(at);
        let Some(claim) = gate.claim else {
            return;
        };
        gate.downgraded = true;
        gate.renewals += 1;
        let drawn = gate.drawn;
        self.processes[at.process].requests.push(Command::Downgrade { claim, sent, drawn });
    }

    /// The next of the process follows, by itself or through the server.
    fn pass_on(&mut self, scenario: &Scenario, at: At) {
        let gate = self.gate(at);
        let passes = gate.entered < NUMBERS_PER_DRAW && !scenario.never_passes && !gate.downgraded;
        match (gate.claim, gate.waiter()) {
            (Some(_), Some(_)) if passes => self.offer(scenario, at),
            (Some(claim), Some(_)) if gate.claims < scenario.claims => {
                self.new_claim(scenario, at);
                let next = self.next_ask(scenario, at);
                self.end(scenario, claim, next);
            }
            _ => {
                if gate.claims >= scenario.claims {
                    gate.turn(Place::Waiting, Place::Done);
                }
                self.end_claim(scenario, at);
            }
        }
    }

    /// A caller goes away; the claim goes with the last of them.
    pub(crate) fn cancel(&mut self, scenario: &Scenario, at: At, caller: usize) {
        let gate = self.gate(at);
        gate.callers[caller].place = Place::Done;
        if gate.stage != Stage::Waiting || gate.waiter().is_some() {
            return;
        }
        if scenario.keeps(Rule::WithdrawFrees) {
            return self.end_claim(scenario, at);
        }
        if let Some(claim) = gate.claim {
            gate.reset();
            self.processes[at.process].requests.push(Command::Leave { claim });
        }
    }

    /// The queue is empty now.
    pub(crate) fn time_out(&mut self, scenario: &Scenario, at: At) {
        self.gate(at).turn(Place::Waiting, Place::Done);
        self.end_claim(scenario, at);
    }
}
