//! What a process does with what it hears.

use crate::state::{
    Caller, Command, GRANT_TTL, Grant, LEAVE, Outcome, Process, Reply, Rule, Scenario, Stage, State, TTL, Wrong,
};

impl Process {
    /// Forgets the claim of now.
    pub(crate) fn reset(&mut self) {
        (self.stage, self.claim, self.attempt, self.asking) = (Stage::Idle, 0, 0, false);
        (self.confirmed, self.last_sent, self.pending) = (None, 0, None);
        (self.deadline, self.token, self.passes, self.renewals) = (0, 0, 0, 0);
    }

    /// Returns the first caller in a state.
    pub(crate) fn caller(&self, state: Caller) -> Option<usize> {
        self.callers.iter().position(|caller| *caller == state)
    }

    fn turn(&mut self, from: Caller, to: Caller) {
        for caller in &mut self.callers {
            if *caller == from {
                *caller = to;
            }
        }
    }

    /// Those who wait and cannot be given another claim go away.
    pub(crate) fn give_up(&mut self) {
        self.turn(Caller::Waiting, Caller::Done);
    }

    pub(crate) fn finish(&mut self) {
        self.turn(Caller::Inside, Caller::Done);
    }
}

impl State {
    pub(crate) fn ask(&mut self, index: usize) {
        let (sent, process) = (self.now, &mut self.processes[index]);
        process.attempt += 1;
        (process.asking, process.last_sent) = (true, sent);
        let (claim, attempt, floor) = (process.claim, process.attempt, process.floor);
        process.requests.push(Command::Acquire { claim, attempt, sent, floor });
    }

    pub(crate) fn new_claim(&mut self, scenario: &Scenario, index: usize) -> u16 {
        let process = &mut self.processes[index];
        process.reset();
        process.claims += 1;
        let number = if scenario.keeps(Rule::FreshOwners) { process.claims } else { 0 };
        process.claim = (index as u16 + 1) * 4096 + number;
        process.stage = Stage::Waiting;
        process.claim
    }

    pub(crate) fn release_claim(&mut self, index: usize, claim: u16, next: u16) {
        let (sent, process) = (self.now, &mut self.processes[index]);
        process.releasing.push((claim, next));
        process.requests.push(Command::Release { claim, next, sent, floor: process.floor });
    }

    fn ask_again(&mut self, scenario: &Scenario, index: usize) {
        if self.processes[index].attempt <= scenario.attempts {
            self.ask(index);
        }
    }

    /// Lets a caller in.
    pub(crate) fn begin(&mut self, index: usize, caller: usize, token: u16) {
        self.processes[index].callers[caller] = Caller::Inside;
        if token <= self.newest_used && !self.lost_data {
            self.wrong = self.wrong.or(Some(Wrong::TokenOrder));
        }
        self.newest_used = self.newest_used.max(token);
        self.processes[index].floor = self.processes[index].floor.max(token);
    }

    /// Believes that the lock is held until a deadline.
    fn hold(&mut self, scenario: &Scenario, index: usize, token: u16, deadline: u16) {
        let late = self.now >= deadline;
        let process = &mut self.processes[index];
        (process.asking, process.pending) = (false, None);
        if late {
            self.ask_again(scenario, index);
            return;
        }
        (process.stage, process.deadline, process.token, process.passes) = (Stage::Holding, deadline, token, 0);
        (process.renewals, process.confirmed, process.last_sent) = (0, None, 0);
        match process.caller(Caller::Waiting) {
            Some(caller) => self.begin(index, caller, token),
            None => {
                let claim = process.claim;
                process.reset();
                self.release_claim(index, claim, 0);
            }
        }
    }

    /// Judges a grant that arrived for the claim that waits.
    pub(crate) fn consider(&mut self, scenario: &Scenario, index: usize, grant: Grant) {
        let process = &mut self.processes[index];
        let (confirmed_at, confirmed_attempt) = process.confirmed.unwrap_or((0, 0));
        let (void, counted_from) = if !scenario.keeps(Rule::GrantsEchoStamps) {
            (false, if process.confirmed.is_some() { confirmed_at } else { process.last_sent })
        } else if !scenario.keeps(Rule::CountedFromConfirmation) {
            (false, process.last_sent)
        } else {
            (grant.attempt < confirmed_attempt, grant.stamp)
        };
        if void {
            return;
        }
        let deadline = counted_from + GRANT_TTL;
        if self.now < deadline {
            self.hold(scenario, index, grant.token, deadline);
        } else if process.asking {
            process.pending = Some(grant);
        } else {
            self.ask_again(scenario, index);
        }
    }

    fn judge_pending(&mut self, scenario: &Scenario, index: usize) {
        if let Some(grant) = self.processes[index].pending.take() {
            self.consider(scenario, index, grant);
        }
    }

    pub(crate) fn receive(&mut self, scenario: &Scenario, index: usize, reply: Reply) {
        let process = &mut self.processes[index];
        match reply {
            Reply::Granted { claim, .. } | Reply::Queued { claim, .. }
                if process.claim == claim && process.stage == Stage::Holding =>
            {
                process.asking = false;
            }
            Reply::Granted { claim, sent, token } => {
                if process.claim == claim && process.stage == Stage::Waiting {
                    self.hold(scenario, index, token, sent + TTL);
                } else if !process.releasing.iter().any(|(other, _)| *other == claim) {
                    self.release_claim(index, claim, 0);
                }
            }
            Reply::Queued { claim, sent, attempt } => {
                if process.claim == claim && process.stage == Stage::Waiting {
                    (process.asking, process.confirmed) = (false, Some((sent, attempt)));
                    self.judge_pending(scenario, index);
                }
            }
            Reply::Stale { claim } => {
                if process.claim == claim {
                    process.asking = false;
                    if process.stage == Stage::Waiting && process.pending.is_none() {
                        self.ask_again(scenario, index);
                    } else if process.stage == Stage::Waiting {
                        self.judge_pending(scenario, index);
                    }
                }
            }
            Reply::Released { claim, next, sent, outcome } => {
                process.releasing.retain(|release| *release != (claim, next));
                if next == 0 || process.claim != next || process.stage != Stage::Waiting {
                    return;
                }
                process.asking = false;
                match outcome {
                    Outcome::Granted(token) => self.hold(scenario, index, token, sent + TTL),
                    Outcome::Queued => {
                        process.confirmed = Some((sent, 1));
                        self.judge_pending(scenario, index);
                    }
                    Outcome::None => {
                        process.pending = None;
                        self.ask_again(scenario, index);
                    }
                }
            }
            Reply::Renewed { claim, sent, ttl } => {
                if process.claim == claim && process.stage == Stage::Holding {
                    process.renewals = process.renewals.saturating_sub(1);
                    // What is over is never revived.
                    if self.now < process.deadline {
                        process.deadline = process.deadline.max(sent + ttl);
                    }
                }
            }
            Reply::Lost { claim } => {
                if process.claim == claim && process.stage == Stage::Holding {
                    self.lose(scenario, index);
                }
            }
            Reply::Left { claim } => process.releasing.retain(|release| *release != (claim, LEAVE)),
        }
    }

    /// Ends a claim that is held no more, and goes on with another if somebody waits.
    pub(crate) fn lose(&mut self, scenario: &Scenario, index: usize) {
        let process = &mut self.processes[index];
        let claim = process.claim;
        process.finish();
        process.reset();
        if process.caller(Caller::Waiting).is_some() && process.claims < scenario.claims {
            self.new_claim(scenario, index);
            self.ask(index);
        } else {
            process.give_up();
        }
        if scenario.keeps(Rule::ReleaseAfterLoss) {
            self.release_claim(index, claim, 0);
        }
    }
}
