//! The possible next steps, and their effects.

use crate::scenario::{Mode, Rule, SHORT_TTL, Scenario, TTL};
use crate::state::{At, Command, Gate, Owner, Place, Stage, State};

/// One event. Numbers are those of processes, keys and callers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Tick,
    Start(At, usize),
    Cancel(At, usize),
    Sleep(At, usize),
    Wake(At, usize),
    Poll(At, usize),
    TakeTurn(At, usize),
    TakeBack(At),
    Finish(At),
    Expire(At),
    TimeOut(At),
    Backstop(At),
    Renew(At, u16),
    Downgrade(At),
    Upgrade(At),
    UndoAgain(At),
    Execute(usize),
    ExecuteRefused(usize),
    ExecuteStray(usize),
    LoseStray(usize),
    Receive(usize),
    Hear(usize),
    BreakConnection(usize),
    BreakInbox(usize),
    MendInbox(usize),
    Die(usize),
    HearNonsense(At),
    Force(usize),
    StrangerTakes(usize),
    StrangerFrees(usize),
    Flush,
    FailOver,
    SetClockBack,
}

impl State {
    pub(crate) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        let mut steps = Vec::with_capacity(32);
        let faults = self.faults;
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
            let native = matches!(process.requests.first(), Some(Command::Take { .. }));
            may(faults.refusal > 0 && native, Step::ExecuteRefused(index));
            may(!process.replies.is_empty(), Step::Receive(index));
            may(!process.inbox.is_empty(), Step::Hear(index));
            for (key, gate) in process.gates.iter().enumerate() {
                self.steps_at(scenario, At { process: index, key }, gate, &mut may);
            }
            let carries = !process.requests.is_empty() || !process.replies.is_empty();
            may(faults.connection > 0 && carries, Step::BreakConnection(index));
            may(faults.inbox > 0 && process.hears, Step::BreakInbox(index));
            may(!process.hears, Step::MendInbox(index));
            may(faults.death > 0, Step::Die(index));
        }
        for key in 0..scenario.keys {
            may(faults.force > 0 && self.store.locks[key].owner.is_some(), Step::Force(key));
            may(faults.stranger > 0 && self.is_free(key), Step::StrangerTakes(key));
            may(self.is_held_by(key, Owner::Stranger), Step::StrangerFrees(key));
        }
        may(faults.flush > 0, Step::Flush);
        may(faults.failover > 0 && self.replica.is_some(), Step::FailOver);
        may(faults.step_back > 0, Step::SetClockBack);
        steps
    }

    fn steps_at(&self, scenario: &Scenario, at: At, gate: &Gate, may: &mut impl FnMut(bool, Step)) {
        let faults = self.faults;
        for number in 0..scenario.callers {
            let caller = gate.callers[number];
            let next = caller.place == Place::Away && (number == 0 || gate.callers[number - 1].place != Place::Away);
            let served = gate.stage != Stage::Idle || gate.claims < scenario.claims;
            may(next && served, Step::Start(at, number));
            let waits = matches!(caller.place, Place::Waiting | Place::Offered);
            may(caller.place == Place::Offered && !caller.asleep, Step::TakeTurn(at, number));
            may(faults.sleep > 0 && waits && !caller.asleep, Step::Sleep(at, number));
            may(waits && caller.asleep, Step::Wake(at, number));
            may(waits && caller.passed_over && !caller.asleep, Step::Poll(at, number));
            may(faults.cancel > 0 && caller.place == Place::Waiting, Step::Cancel(at, number));
        }
        let sleeps = gate.asleep_until.is_some_and(|until| self.now < until);
        let asks = self.may_ask(scenario, at) && gate.attempt < scenario.attempts && !sleeps;
        may(asks && scenario.keeps(Rule::Backstop), Step::Backstop(at));
        let waits_too_long = !scenario.kills && gate.stage == Stage::Waiting && self.now > gate.execute_before;
        may(waits_too_long, Step::TimeOut(at));
        if gate.stage == Stage::Holding {
            let over = self.now >= gate.deadline;
            let inside = gate.callers.iter().any(|caller| caller.place == Place::Inside);
            let offered = gate.callers.iter().any(|caller| caller.place == Place::Offered);
            may(over, Step::Expire(at));
            let shares = self.mode(scenario, at) != Mode::Exclusive;
            let waits_for_others = gate.upgrades && self.store.locks[at.key].sharers.len() > 1;
            may(!over && inside && !waits_for_others, Step::Finish(at));
            may(!over && inside && !shares && scenario.downgrades, Step::Downgrade(at));
            may(!over && inside && shares && !gate.upgrades && !scenario.keeps(Rule::NoUpgrades), Step::Upgrade(at));
            let slice_over = offered && !inside && self.now > gate.offered_at;
            may(slice_over && scenario.keeps(Rule::TurnsAreTakenBack), Step::TakeBack(at));
            let most = if scenario.renews_shorter { 2 } else { 1 };
            let renews = !over && scenario.renews && gate.renewals < most;
            may(renews, Step::Renew(at, TTL));
            may(renews && scenario.renews_shorter, Step::Renew(at, SHORT_TTL));
        }
        may(gate.ambiguous.iter().any(|(_, until)| self.now > *until), Step::UndoAgain(at));
        may(faults.nonsense > 0 && gate.stage == Stage::Idle, Step::HearNonsense(at));
    }

    pub(crate) fn after(&self, scenario: &Scenario, step: Step) -> Self {
        let mut state = self.clone();
        state.apply(scenario, step);
        state
    }

    /// Takes a step, and judges where it leads.
    pub(crate) fn apply(&mut self, scenario: &Scenario, step: Step) {
        match step {
            Step::Tick => self.now += 1,
            Step::Start(at, caller) => self.start_caller(scenario, at, caller),
            Step::Cancel(at, caller) => {
                self.faults.cancel -= 1;
                self.cancel(scenario, at, caller);
            }
            Step::Sleep(at, caller) => {
                self.faults.sleep -= 1;
                self.gate(at).callers[caller].asleep = true;
            }
            Step::Wake(at, caller) => self.gate(at).callers[caller].asleep = false,
            Step::Poll(at, caller) => {
                self.gate(at).callers[caller].passed_over = false;
                self.claim_if_idle(scenario, at);
            }
            Step::TakeTurn(at, caller) => self.take_turn(scenario, at, caller),
            Step::TakeBack(at) => self.take_back(scenario, at),
            Step::Finish(at) => self.finish(scenario, at),
            Step::Expire(at) => self.lose(scenario, at),
            Step::TimeOut(at) => self.time_out(scenario, at),
            Step::Backstop(at) => self.ask(scenario, at),
            Step::Renew(at, ttl) => self.renew(at, ttl),
            Step::Downgrade(at) => self.downgrade(at),
            Step::Upgrade(at) => self.gate(at).upgrades = true,
            Step::UndoAgain(at) => self.undo_again(scenario, at),
            Step::Execute(index) => self.execute_next(scenario, index, false),
            Step::ExecuteRefused(index) => {
                self.faults.refusal -= 1;
                self.execute_next(scenario, index, true);
            }
            Step::ExecuteStray(index) => {
                self.replicate(scenario);
                let command = self.processes[index].stray.remove(0);
                self.execute(scenario, index, command);
            }
            Step::LoseStray(index) => self.processes[index].stray.clear(),
            Step::Receive(index) => {
                let reply = self.processes[index].replies.remove(0);
                self.receive(scenario, reply);
            }
            Step::Hear(index) => {
                let grant = self.processes[index].inbox.remove(0);
                self.hear(scenario, grant);
            }
            Step::MendInbox(index) => self.mend_inbox(scenario, index),
            Step::StrangerFrees(key) => self.stranger_frees(key),
            fault => self.strike(scenario, fault),
        }
        self.wrong = self.wrong.or_else(|| self.judge(scenario));
    }

    fn strike(&mut self, scenario: &Scenario, fault: Step) {
        let left = &mut self.faults;
        match fault {
            Step::BreakConnection(index) => {
                left.connection -= 1;
                self.break_connection(scenario, index, true);
            }
            Step::BreakInbox(index) => {
                left.inbox -= 1;
                self.processes[index].hears = false;
                self.processes[index].inbox.clear();
            }
            Step::Die(index) => {
                left.death -= 1;
                self.die(index);
            }
            Step::HearNonsense(at) => {
                left.nonsense -= 1;
                self.hear_nonsense(at);
            }
            Step::Force(key) => {
                left.force -= 1;
                self.force(key);
            }
            Step::StrangerTakes(key) => {
                left.stranger -= 1;
                self.stranger_takes(key);
            }
            Step::Flush => {
                left.flush -= 1;
                self.flush(scenario);
            }
            Step::FailOver => {
                left.failover -= 1;
                self.fail_over(scenario);
            }
            Step::SetClockBack => {
                left.step_back -= 1;
                self.set_clock_back();
            }
            step => unreachable!("{step:?} is no fault"),
        }
    }

    /// Executes what a connection carries next: one command, or a batch of native attempts.
    fn execute_next(&mut self, scenario: &Scenario, index: usize, refused: bool) {
        self.replicate(scenario);
        let requests = &mut self.processes[index].requests;
        let mut batch = Vec::new();
        while let Some(&Command::Take { claim, sent }) = requests.first() {
            batch.push((claim, sent));
            requests.remove(0);
        }
        let replies = if batch.is_empty() {
            let command = requests.remove(0);
            self.execute(scenario, index, command).into_iter().collect()
        } else {
            self.take_batch(scenario, index, batch, refused)
        };
        if self.processes[index].alive {
            self.processes[index].replies.extend(replies);
        }
    }

    /// A replica follows, one write behind.
    fn replicate(&mut self, scenario: &Scenario) {
        if scenario.faults.failover > 0 && !self.failed_over {
            self.replica = Some(Box::new(self.store.clone()));
        }
    }

    pub(crate) fn renew(&mut self, at: At, ttl: u16) {
        let sent = self.now;
        let gate = self.gate(at);
        let Some(claim) = gate.claim else {
            return;
        };
        gate.renewals += 1;
        self.processes[at.process].requests.push(Command::Renew { claim, sent, ttl });
    }
}
