//! The reaction of a process to messages and answers.

use crate::scenario::{Rule, Scenario, TTL};
use crate::state::{Claim, Command, Grant, Outcome, Place, Reply, Stage, State};

impl State {
    pub(crate) fn receive(&mut self, scenario: &Scenario, reply: Reply) {
        match reply {
            Reply::Granted { claim, sent, drawn } => {
                let gate = self.gate(claim.at);
                if gate.is_waiting_for(claim) {
                    self.hold(scenario, claim.at, drawn, sent + TTL);
                } else if gate.claim == Some(claim) {
                    gate.asking = false;
                } else if !gate.ending.iter().any(|(other, _)| *other == claim) {
                    self.end(scenario, claim, None);
                }
            }
            Reply::Queued { claim, sent, attempt, sleep } => {
                let gate = self.gate(claim.at);
                if gate.is_waiting_for(claim) && !std::mem::take(&mut gate.woken) {
                    gate.asleep_until = sleep;
                }
                self.queued(scenario, claim, sent, attempt);
            }
            Reply::Busy { claim } | Reply::Stale { claim } => self.not_granted(scenario, claim),
            Reply::Undecided { claim, sent, taken } => self.undecided(scenario, claim, sent, taken),
            Reply::Refused { claim } => {
                if self.gate(claim.at).is_waiting_for(claim) {
                    self.time_out(scenario, claim.at);
                }
            }
            Reply::Released { claim, next, outcome } => {
                let gate = self.gate(claim.at);
                gate.ending.retain(|ending| *ending != (claim, next.map(|ask| ask.claim)));
                let Some(ask) = next.filter(|ask| gate.is_waiting_for(ask.claim)) else {
                    return;
                };
                match outcome {
                    Outcome::Granted(drawn) => self.hold(scenario, claim.at, drawn, ask.sent + TTL),
                    Outcome::Queued => self.queued(scenario, ask.claim, ask.sent, ask.attempt),
                    Outcome::None => self.not_granted(scenario, ask.claim),
                }
            }
            Reply::Renewed { claim, sent, ttl } => {
                let now = self.now;
                let gate = self.gate(claim.at);
                if gate.claim == Some(claim) && gate.stage == Stage::Holding {
                    gate.renewals = gate.renewals.saturating_sub(1);
                    // A lease that has ended stays ended.
                    if now < gate.deadline {
                        gate.deadline = gate.deadline.max(sent + ttl);
                    }
                }
            }
            Reply::Lost { claim } => {
                let gate = self.gate(claim.at);
                if gate.claim == Some(claim) && gate.stage == Stage::Holding {
                    self.lose(scenario, claim.at);
                }
            }
            Reply::Left { .. } => {}
        }
    }

    fn queued(&mut self, scenario: &Scenario, claim: Claim, sent: u16, attempt: u16) {
        let gate = self.gate(claim.at);
        if gate.claim == Some(claim) {
            gate.asking = false;
            if gate.stage == Stage::Waiting {
                gate.confirmed = Some((sent, attempt));
                self.consider_pending(scenario, claim.at);
            }
        }
    }

    fn not_granted(&mut self, scenario: &Scenario, claim: Claim) {
        let gate = self.gate(claim.at);
        if !gate.is_waiting_for(claim) {
            return;
        }
        gate.asking = false;
        if gate.pending.is_some() {
            self.consider_pending(scenario, claim.at);
        } else {
            self.ask_again(scenario, claim.at);
        }
    }

    /// The lock may be taken, without a token.
    fn undecided(&mut self, scenario: &Scenario, claim: Claim, sent: u16, taken: Option<u16>) {
        let gate = self.gate(claim.at);
        if !gate.is_waiting_for(claim) {
            return;
        }
        if !scenario.keeps(Rule::ErrorsAreAmbiguous) {
            gate.turn(Place::Waiting, Place::Done);
            return gate.reset();
        }
        match taken.filter(|_| !scenario.keeps(Rule::NeverDrawnBare)) {
            Some(grant) => self.processes[claim.at.process].requests.push(Command::Draw { claim, sent, grant }),
            None => self.not_granted(scenario, claim),
        }
    }

    /// A grant arrives in the inbox of a process.
    pub(crate) fn hear(&mut self, scenario: &Scenario, grant: Grant) {
        let gate = self.gate(grant.claim.at);
        let current = gate.claim == Some(grant.claim);
        match gate.stage {
            Stage::Waiting if current => self.consider(scenario, grant.claim.at, grant),
            Stage::Holding if current && scenario.keeps(Rule::HeldGrantIgnored) => {}
            _ => self.end(scenario, grant.claim, None),
        }
    }
}
