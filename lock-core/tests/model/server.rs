//! The scripts of the server.

use crate::state::{
    BLOCK, Command, EXECUTE_WITHIN, Entry, GRANT_TTL, Grant, Outcome, Reach, Reply, Rule, Scenario, State,
    TOKENS_PER_TICK, TTL, UNCONFIRMED, Wrong,
};

impl State {
    pub(crate) fn execute(&mut self, scenario: &Scenario, process: usize, command: Command) -> Reply {
        if scenario.faults.failover > 0 && !self.failed_over {
            self.replica = Some(Box::new(self.store.clone()));
        }
        if self.now >= self.store.expires {
            self.store.owner = 0;
        }
        match command {
            Command::Acquire { claim, attempt, sent, floor } => {
                if scenario.keeps(Rule::SendsHaveDeadlines) && self.now > sent + EXECUTE_WITHIN {
                    return Reply::Stale { claim };
                }
                self.acquire(scenario, process, claim, attempt, sent, floor)
            }
            Command::Release { claim, next, sent, floor } => {
                let outcome = self.release(scenario, process, claim, next, sent, floor);
                Reply::Released { claim, next, sent, outcome }
            }
            Command::Leave { claim } => {
                self.store.queue.retain(|entry| entry.claim != claim);
                Reply::Left { claim }
            }
            Command::Renew { claim, sent, ttl } => {
                if !self.is_held_by(claim) {
                    return Reply::Lost { claim };
                }
                let until = self.now + ttl;
                let kept = if scenario.keeps(Rule::NeverShortens) { self.store.expires } else { 0 };
                self.store.expires = until.max(kept);
                Reply::Renewed { claim, sent, ttl }
            }
        }
    }

    fn acquire(
        &mut self,
        scenario: &Scenario,
        process: usize,
        claim: u16,
        attempt: u16,
        sent: u16,
        floor: u16,
    ) -> Reply {
        if self.is_held_by(claim) {
            self.store.queue.retain(|entry| entry.claim != claim);
            if scenario.keeps(Rule::RepeatRaises) {
                self.store.expires = self.store.expires.max(self.now + TTL);
            }
            return Reply::Granted { claim, sent, token: self.store.token };
        }
        let first = self.store.queue.first().is_none_or(|entry| entry.claim == claim);
        if self.is_free() && (first || scenario.keeps(Rule::AskingMovesOn)) {
            self.enter(claim, process, sent, attempt);
            if let Some(token) = self.move_on(scenario, claim, floor) {
                return Reply::Granted { claim, sent, token };
            }
        }
        self.enter(claim, process, sent, attempt);
        Reply::Queued { claim, sent, attempt }
    }

    fn release(
        &mut self,
        scenario: &Scenario,
        process: usize,
        claim: u16,
        next: u16,
        sent: u16,
        floor: u16,
    ) -> Outcome {
        let own = self.store.owner == claim;
        if scenario.keeps(Rule::WithdrawFrees) {
            self.store.queue.retain(|entry| entry.claim != claim);
        }
        if own {
            (self.store.owner, self.store.expires) = (0, 0);
        }
        let late = scenario.keeps(Rule::SendsHaveDeadlines) && self.now > sent + EXECUTE_WITHIN;
        if next == 0 || late {
            if own || (scenario.keeps(Rule::ReleaseAlwaysMovesOn) && self.is_free()) {
                self.move_on(scenario, 0, floor);
            }
            return Outcome::None;
        }
        if !scenario.keeps(Rule::EntersBeforeWalk) {
            if own {
                self.move_on(scenario, 0, floor);
            }
            if self.is_held_by(next) {
                return Outcome::Granted(self.store.token);
            }
            self.enter(next, process, sent, 1);
            return Outcome::Queued;
        }
        match self.acquire(scenario, process, next, 1, sent, floor) {
            Reply::Granted { token, .. } => Outcome::Granted(token),
            _ => Outcome::Queued,
        }
    }

    /// Walks the queue of a free lock. Returns the token if the caller is granted in the reply.
    fn move_on(&mut self, scenario: &Scenario, caller: u16, floor: u16) -> Option<u16> {
        let mut index = 0;
        while let Some(entry) = self.store.queue.get(index).cloned() {
            if entry.claim == caller {
                self.store.queue.remove(index);
                return Some(self.grant(scenario, caller, TTL, floor));
            }
            let hears = self.processes[entry.process].hears;
            if !hears && self.now - entry.confirmed > UNCONFIRMED {
                self.store.queue.remove(index);
                continue;
            }
            if hears || entry.reach == Reach::Polling {
                self.store.queue.remove(index);
                // The releaser's idea of a lease, where entries do not say.
                let ttl = if scenario.keeps(Rule::EntriesNameTheirLease) { GRANT_TTL } else { 1 };
                let token = self.grant(scenario, entry.claim, ttl, floor);
                if hears {
                    let Entry { claim, stamp, attempt, .. } = entry;
                    self.processes[entry.process].inbox.push(Grant { claim, token, stamp, attempt });
                }
                return None;
            }
            self.store.queue[index].reach = Reach::PassedOver;
            if scenario.keeps(Rule::PassedOverKeepPlace) {
                index += 1;
            } else {
                self.store.queue.remove(index);
            }
        }
        None
    }

    fn grant(&mut self, scenario: &Scenario, claim: u16, ttl: u16, floor: u16) -> u16 {
        let mut token = self.store.fence + 1;
        if scenario.keeps(Rule::TokensFollowTime) {
            token = token.max(self.now * TOKENS_PER_TICK).max(if floor > 0 { floor + 1 } else { 0 });
        }
        (self.store.owner, self.store.expires) = (claim, self.now + ttl);
        let block = if scenario.keeps(Rule::BlocksAreReserved) { BLOCK } else { 1 };
        (self.store.token, self.store.fence) = (token, token + block - 1);
        if token <= self.newest_granted {
            self.wrong = self.wrong.or(Some(Wrong::TokenOrder));
        }
        self.newest_granted = self.newest_granted.max(token + block - 1);
        token
    }

    fn enter(&mut self, claim: u16, process: usize, stamp: u16, attempt: u16) {
        let confirmed = self.now;
        match self.store.queue.iter_mut().find(|entry| entry.claim == claim) {
            Some(entry) => {
                entry.confirmed = confirmed;
                if entry.reach == Reach::PassedOver {
                    entry.reach = Reach::Polling;
                }
                if attempt >= entry.attempt {
                    (entry.stamp, entry.attempt) = (stamp, attempt);
                }
            }
            None => self.store.queue.push(Entry { claim, process, stamp, attempt, reach: Reach::Unknown, confirmed }),
        }
    }
}
