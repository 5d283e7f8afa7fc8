//! What can happen next, and what it does.

use crate::state::{
    BLOCK, Caller, Command, EXECUTE_WITHIN, GRANT_TTL, LEAVE, Process, Reply, Rule, SHORT_TTL, STRANGER, Scenario,
    Stage, State, Store, TTL, Wrong, process_of,
};

/// One event. Numbers are those of processes and callers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Tick,
    Start(usize, usize),
    Execute(usize),
    ExecuteStray(usize),
    LoseStray(usize),
    Receive(usize),
    Hear(usize),
    Backstop(usize),
    Renew(usize, u16),
    Finish(usize),
    Cancel(usize, usize),
    Expire(usize),
    BreakConnection(usize),
    BreakInbox(usize),
    MendInbox(usize),
    Die(usize),
    Flush,
    FailOver,
    StrangerTakes,
    StrangerFrees,
    ReleaseAgain(usize),
}

impl State {
    pub(crate) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let (mut steps, faults) = (Vec::new(), self.faults);
        let mut may = |possible: bool, step: Step| {
            if possible {
                steps.push(step);
            }
        };
        may(self.now < scenario.horizon, Step::Tick);
        for (index, process) in self.processes.iter().enumerate() {
            may(!process.stray.is_empty(), Step::ExecuteStray(index));
            may(!process.stray.is_empty(), Step::LoseStray(index));
            may(!process.requests.is_empty(), Step::Execute(index));
            if !process.alive {
                continue;
            }
            for caller in 0..scenario.callers {
                let next = process.callers[caller] == Caller::Away
                    && (caller == 0 || process.callers[caller - 1] != Caller::Away);
                may(
                    next && (process.stage != Stage::Idle || process.claims < scenario.claims),
                    Step::Start(index, caller),
                );
                may(faults.cancel > 0 && process.callers[caller] == Caller::Waiting, Step::Cancel(index, caller));
            }
            may(!process.replies.is_empty(), Step::Receive(index));
            may(!process.inbox.is_empty(), Step::Hear(index));
            let waiting = process.stage == Stage::Waiting && !process.asking;
            let asks = waiting && process.attempt < scenario.attempts && scenario.keeps(Rule::Backstop);
            may(asks, Step::Backstop(index));
            if process.stage == Stage::Holding {
                let over = self.now >= process.deadline;
                may(over, Step::Expire(index));
                may(!over, Step::Finish(index));
                let most = if scenario.renews_shorter { 2 } else { 1 };
                let renews = !over && scenario.renews && process.renewals < most;
                may(renews, Step::Renew(index, TTL));
                may(renews && scenario.renews_shorter, Step::Renew(index, SHORT_TTL));
            }
            let carries = !process.requests.is_empty() || !process.replies.is_empty();
            may(faults.connection > 0 && carries, Step::BreakConnection(index));
            may(faults.inbox > 0 && process.hears, Step::BreakInbox(index));
            may(!process.hears, Step::MendInbox(index));
            may(faults.death > 0, Step::Die(index));
            may(process.ambiguous.iter().any(|(_, until)| self.now > *until), Step::ReleaseAgain(index));
        }
        may(faults.flush > 0, Step::Flush);
        may(faults.failover > 0 && self.replica.is_some(), Step::FailOver);
        may(faults.stranger > 0 && self.is_free(), Step::StrangerTakes);
        may(self.is_held_by(STRANGER), Step::StrangerFrees);
        steps
    }

    pub(crate) fn after(&self, scenario: &Scenario, step: Step) -> Self {
        let mut state = self.clone();
        state.apply(scenario, step);
        state.wrong = state.wrong.or_else(|| state.judge(scenario));
        state
    }

    fn apply(&mut self, scenario: &Scenario, step: Step) {
        match step {
            Step::Tick => self.now += 1,
            Step::Start(index, caller) => {
                self.processes[index].callers[caller] = Caller::Waiting;
                if self.processes[index].stage == Stage::Idle {
                    self.new_claim(scenario, index);
                    self.ask(index);
                }
            }
            Step::Execute(index) => {
                let command = self.processes[index].requests.remove(0);
                let reply = self.execute(scenario, index, command);
                if self.processes[index].alive {
                    self.processes[index].replies.push(reply);
                }
            }
            Step::ExecuteStray(index) => {
                let command = self.processes[index].stray.remove(0);
                self.execute(scenario, index, command);
            }
            Step::LoseStray(index) => self.processes[index].stray.clear(),
            Step::Receive(index) => {
                let reply = self.processes[index].replies.remove(0);
                self.receive(scenario, index, reply);
            }
            Step::Hear(index) => {
                let grant = self.processes[index].inbox.remove(0);
                let current = self.processes[index].claim == grant.claim;
                match self.processes[index].stage {
                    Stage::Waiting if current => self.consider(scenario, index, grant),
                    Stage::Holding if current && scenario.keeps(Rule::HeldGrantIgnored) => {}
                    _ => self.release_claim(index, grant.claim, 0),
                }
            }
            Step::Backstop(index) => self.ask(index),
            Step::Renew(index, ttl) => {
                let (sent, process) = (self.now, &mut self.processes[index]);
                process.renewals += 1;
                process.requests.push(Command::Renew { claim: process.claim, sent, ttl });
            }
            Step::Finish(index) => self.finish(scenario, index),
            Step::Cancel(index, caller) => self.cancel(scenario, index, caller),
            Step::Expire(index) => self.lose(scenario, index),
            Step::BreakConnection(index) => {
                self.faults.connection -= 1;
                self.break_connection(scenario, index, true);
            }
            Step::BreakInbox(index) => {
                self.faults.inbox -= 1;
                self.processes[index].hears = false;
                self.processes[index].inbox.clear();
            }
            Step::MendInbox(index) => self.processes[index].hears = true,
            Step::Die(index) => {
                self.faults.death -= 1;
                let process = &mut self.processes[index];
                // What it has sent is still executed.
                let stray = process.stray.iter().chain(&process.requests).copied().collect();
                *process = Process { stray, claims: process.claims, callers: [Caller::Done; 2], ..Process::default() };
            }
            Step::Flush => {
                self.faults.flush -= 1;
                self.now += 1;
                self.store = Store::default();
                self.lost_data = true;
            }
            Step::FailOver => self.fail_over(scenario),
            Step::StrangerTakes => {
                self.faults.stranger -= 1;
                (self.store.owner, self.store.expires, self.store.token) = (STRANGER, self.now + GRANT_TTL, 0);
            }
            Step::StrangerFrees => (self.store.owner, self.store.expires) = (0, 0),
            Step::ReleaseAgain(index) => {
                let now = self.now;
                let ambiguous = std::mem::take(&mut self.processes[index].ambiguous);
                let (due, later) = ambiguous.into_iter().partition(|(_, until)| now > *until);
                self.processes[index].ambiguous = later;
                let due: Vec<(u16, u16)> = due;
                for (claim, _) in due {
                    if self.processes[index].claim != claim || self.processes[index].stage == Stage::Idle {
                        self.release_claim(index, claim, 0);
                    }
                }
            }
        }
    }

    /// A caller is done: the next of the process follows it, by itself or through the server.
    fn finish(&mut self, scenario: &Scenario, index: usize) {
        let process = &mut self.processes[index];
        process.finish();
        let (claim, next) = (process.claim, process.caller(Caller::Waiting));
        match next {
            Some(caller) if process.passes + 1 < BLOCK && !scenario.never_passes => {
                process.passes += 1;
                let token = process.token + process.passes;
                self.begin(index, caller, token);
            }
            Some(_) if process.claims < scenario.claims => {
                let sent = self.now;
                let next = self.new_claim(scenario, index);
                let process = &mut self.processes[index];
                (process.attempt, process.asking, process.last_sent) = (1, true, sent);
                self.release_claim(index, claim, next);
            }
            _ => {
                process.give_up();
                process.reset();
                self.release_claim(index, claim, 0);
            }
        }
    }

    fn cancel(&mut self, scenario: &Scenario, index: usize, caller: usize) {
        self.faults.cancel -= 1;
        let process = &mut self.processes[index];
        process.callers[caller] = Caller::Done;
        if process.stage != Stage::Waiting || process.caller(Caller::Waiting).is_some() {
            return;
        }
        let claim = process.claim;
        process.reset();
        if scenario.keeps(Rule::WithdrawFrees) {
            self.release_claim(index, claim, 0);
        } else {
            process.releasing.push((claim, LEAVE));
            process.requests.push(Command::Leave { claim });
        }
    }

    /// Everything on its way is lost, or executed later. Releases are sent again.
    fn break_connection(&mut self, scenario: &Scenario, index: usize, executed_later: bool) {
        let (sent, process) = (self.now, &mut self.processes[index]);
        if scenario.keeps(Rule::AmbiguousReleasedTwice) {
            for command in &process.requests {
                let ambiguous = match *command {
                    Command::Acquire { claim, sent, .. } => (claim, sent + EXECUTE_WITHIN),
                    Command::Release { next, sent, .. } if next != 0 => (next, sent + EXECUTE_WITHIN),
                    _ => continue,
                };
                if !process.ambiguous.contains(&ambiguous) {
                    process.ambiguous.push(ambiguous);
                }
            }
        }
        let requests = std::mem::take(&mut process.requests);
        if executed_later {
            process.stray.extend(requests);
        }
        process.replies.clear();
        match process.stage {
            Stage::Waiting => (process.asking, process.pending) = (false, None),
            Stage::Holding => process.renewals = 0,
            Stage::Idle => {}
        }
        if !scenario.keeps(Rule::ReleasesAreRepeated) {
            process.releasing.clear();
        }
        for (claim, next) in process.releasing.clone() {
            if next == LEAVE {
                process.requests.push(Command::Leave { claim });
                continue;
            }
            let wanted = next != 0 && process.claim == next && process.stage == Stage::Waiting;
            if wanted {
                (process.asking, process.last_sent) = (true, sent);
            }
            let again = if wanted { next } else { 0 };
            for release in process.releasing.iter_mut().filter(|release| **release == (claim, next)) {
                release.1 = again;
            }
            process.requests.push(Command::Release { claim, next: again, sent, floor: 0 });
        }
    }

    fn fail_over(&mut self, scenario: &Scenario) {
        self.faults.failover -= 1;
        self.now += 1;
        if let Some(replica) = self.replica.take() {
            self.store = *replica;
        }
        (self.lost_data, self.failed_over) = (true, true);
        for index in 0..self.processes.len() {
            if self.processes[index].alive {
                self.break_connection(scenario, index, false);
                self.processes[index].hears = false;
                self.processes[index].inbox.clear();
            } else {
                self.processes[index].requests.clear();
                self.processes[index].stray.clear();
            }
        }
    }

    fn judge(&self, scenario: &Scenario) -> Option<Wrong> {
        let believers = self
            .processes
            .iter()
            .filter(|process| process.alive && process.stage == Stage::Holding && self.now < process.deadline);
        if !self.lost_data && believers.count() + usize::from(self.is_held_by(STRANGER)) > 1 {
            return Some(Wrong::Exclusion);
        }
        let owner = self.store.owner;
        if self.is_held_by(owner) && owner != 0 && owner != STRANGER && !self.failed_over && self.is_orphan(owner) {
            return Some(Wrong::OrphanKey);
        }
        let quiet = |process: &Process| {
            process.stage != Stage::Holding
                && process.requests.is_empty()
                && process.replies.is_empty()
                && process.inbox.is_empty()
                && process.stray.is_empty()
        };
        let waits = |process: &Process| {
            process.alive
                && process.stage == Stage::Waiting
                && process.hears
                && process.confirmed.is_some()
                && !process.asking
        };
        let stalled = scenario.finds_stalls && owner == 0 && self.processes.iter().all(quiet);
        (stalled && self.processes.iter().any(waits)).then_some(Wrong::Stall)
    }

    /// Whether a live process has nothing more to do with the claim that holds the lock.
    fn is_orphan(&self, owner: u16) -> bool {
        let process = &self.processes[process_of(owner)];
        let releases = |command: &Command| match command {
            Command::Release { claim, .. } | Command::Leave { claim } => *claim == owner,
            _ => false,
        };
        process.alive
            && process.claim != owner
            && !process.releasing.iter().any(|(claim, next)| *claim == owner && *next != LEAVE)
            && !process.ambiguous.iter().any(|(claim, _)| *claim == owner)
            && !process.requests.iter().any(|command| !matches!(command, Command::Leave { .. }) && releases(command))
            && !process.stray.iter().any(releases)
            && !process.inbox.iter().any(|grant| grant.claim == owner)
            && !process.replies.iter().any(|reply| matches!(reply, Reply::Granted { claim, .. } if *claim == owner))
    }

    /// Whether everybody is served once nothing fails any more, on a fair course.
    pub(crate) fn completes(&self, scenario: &Scenario) -> bool {
        let scenario = Scenario { attempts: 250, claims: 15, horizon: u16::MAX, finds_stalls: false, ..*scenario };
        let mut state = Self { faults: Default::default(), wrong: None, ..self.clone() };
        let started = state.now;
        while state.now - started <= 40 {
            let served = |process: &Process| {
                process.caller(Caller::Waiting).is_none() && process.caller(Caller::Inside).is_none()
            };
            if state.processes.iter().all(|process| !process.alive || served(process)) {
                return true;
            }
            let next = state.steps(&scenario).into_iter().find(|step| {
                !matches!(
                    step,
                    Step::Tick
                        | Step::Start(..)
                        | Step::ExecuteStray(_)
                        | Step::Backstop(_)
                        | Step::Renew(..)
                        | Step::Cancel(..)
                )
            });
            if let Some(step) = next {
                state = state.after(&scenario, step);
                continue;
            }
            state = state.after(&scenario, Step::Tick);
            for index in 0..state.processes.len() {
                let process = &state.processes[index];
                let waiting = process.alive && process.stage == Stage::Waiting && !process.asking;
                if waiting && scenario.keeps(Rule::Backstop) {
                    state.ask(index);
                }
            }
        }
        false
    }
}
