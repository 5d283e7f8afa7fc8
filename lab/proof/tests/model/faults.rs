//! The faults of the world.

use crate::scenario::{AHEAD, GRANT_TTL, NONSENSE, Rule, Scenario};
use crate::state::{Ask, At, Caller, Claim, Command, Gate, Lock, Owner, Place, Process, Stage, State, Store};

impl State {
    /// Everything on its way is lost, or executed later. Endings are sent again.
    pub(crate) fn break_connection(&mut self, scenario: &Scenario, index: usize, executed_later: bool) {
        let requests = std::mem::take(&mut self.processes[index].requests);
        if !scenario.kills && scenario.keeps(Rule::UndoneAfterDeadline) {
            self.remember_ambiguous(&requests);
        }
        let process = &mut self.processes[index];
        process.replies.clear();
        if executed_later {
            process.stray.extend(requests);
        }
        if executed_later && scenario.kills && scenario.keeps(Rule::KilledBeforeUndo) {
            process.requests.push(Command::Kill);
        }
        for key in 0..scenario.keys {
            let at = At { process: index, key };
            let gate = self.gate(at);
            match gate.stage {
                Stage::Waiting => (gate.asking, gate.pending) = (false, None),
                Stage::Holding => gate.renewals = 0,
                Stage::Idle => {}
            }
            let endings = std::mem::take(&mut gate.ending);
            if scenario.keeps(Rule::ReleasesAreRepeated) {
                self.repeat_endings(scenario, at, endings);
            }
        }
    }

    fn remember_ambiguous(&mut self, requests: &[Command]) {
        for command in requests {
            let (Command::Acquire(ask) | Command::Release { next: Some(ask), .. }) = command else {
                continue;
            };
            let gate = self.gate(ask.claim.at);
            // A claim has one deadline, and who ended it knows no other.
            let until = if gate.claim == Some(ask.claim) { gate.execute_before } else { ask.execute_before };
            if !gate.ambiguous.contains(&(ask.claim, until)) {
                gate.ambiguous.push((ask.claim, until));
            }
        }
    }

    fn repeat_endings(&mut self, scenario: &Scenario, at: At, endings: Vec<(Claim, Option<Claim>)>) {
        for (claim, next) in endings {
            let wanted = next.filter(|next| self.gate(at).is_waiting_for(*next));
            let again = wanted.map(|next| {
                let sent = self.now;
                let gate = self.gate(at);
                (gate.asking, gate.last_sent) = (true, sent);
                let (attempt, execute_before) = (gate.attempt, gate.execute_before);
                Ask { claim: next, attempt, sent, execute_before, floor: gate.floor }
            });
            self.end(scenario, claim, again);
        }
    }

    pub(crate) fn die(&mut self, index: usize) {
        let process = &mut self.processes[index];
        // Its sent commands are still executed.
        let stray = process.stray.iter().chain(&process.requests).copied().collect();
        let done = Caller { place: Place::Done, ..Caller::default() };
        let gates =
            process.gates.iter().map(|gate| Gate { claims: gate.claims, callers: [done; 2], ..Gate::default() });
        *process = Process { stray, gates: gates.collect(), ..Process::default() };
    }

    pub(crate) fn flush(&mut self, scenario: &Scenario) {
        self.now += 1;
        self.store = Store { locks: vec![Lock::default(); scenario.keys], clock: 0 };
        self.forgive();
    }

    pub(crate) fn fail_over(&mut self, scenario: &Scenario) {
        self.now += 1;
        if let Some(replica) = self.replica.take() {
            self.store = *replica;
        }
        self.failed_over = true;
        self.forgive();
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

    /// From here on two may believe, and newcomers find what they find.
    fn forgive(&mut self) {
        self.excused = true;
        for seen in &mut self.seen {
            seen.passes = 0;
        }
    }

    pub(crate) fn force(&mut self, key: usize) {
        self.store.locks[key].owner = None;
        self.forgive();
    }

    pub(crate) fn set_clock_back(&mut self) {
        self.ahead -= AHEAD;
    }

    pub(crate) fn stranger_takes(&mut self, key: usize) {
        let expires = self.server_now() + GRANT_TTL;
        let lock = &mut self.store.locks[key];
        (lock.owner, lock.expires, lock.passing) = (Some(Owner::Stranger), expires, None);
    }

    pub(crate) fn stranger_frees(&mut self, key: usize) {
        self.store.locks[key].owner = None;
        self.seen[key].passes = 0;
    }

    pub(crate) fn hear_nonsense(&mut self, at: At) {
        self.gate(at).floor = NONSENSE;
    }

    /// Undoes once more what can no longer be executed.
    pub(crate) fn undo_again(&mut self, scenario: &Scenario, at: At) {
        let now = self.now;
        let gate = self.gate(at);
        let (due, later) = std::mem::take(&mut gate.ambiguous).into_iter().partition(|(_, until)| now > *until);
        gate.ambiguous = later;
        let due: Vec<(Claim, u16)> = due;
        for (claim, _) in due {
            let gate = self.gate(at);
            if gate.claim != Some(claim) || gate.stage == Stage::Idle {
                self.end(scenario, claim, None);
            }
        }
    }
}
