//! The server's execution of commands and scripts.

use crate::scenario::{GRANT_TTL, Mode, PASSING, REMNANT, Rule, Scenario, TTL, UNCONFIRMED, WINDOW, Wrong};
use crate::state::{Ask, Claim, Command, Drawn, Entry, Grant, Outcome, Owner, Reach, Reply, State};

impl State {
    /// Executes a command of a process. The native attempts of a batch go to `take_batch`.
    pub(crate) fn execute(&mut self, scenario: &Scenario, process: usize, command: Command) -> Option<Reply> {
        match command {
            Command::Take { claim, sent } => self.take_batch(scenario, process, vec![(claim, sent)], false).pop(),
            Command::Draw { claim, sent, grant } => {
                let draw = self.draw(scenario);
                Some(Reply::Granted { claim, sent, drawn: Drawn { draw, grant } })
            }
            Command::Acquire(ask) => {
                let reply = self.acquire(scenario, ask, false);
                if reply != (Reply::Stale { claim: ask.claim }) {
                    self.judge_queue(scenario, ask.claim.at.key);
                }
                Some(reply)
            }
            Command::Release { claim, next } => {
                let outcome = self.release(scenario, claim, next);
                self.judge_queue(scenario, claim.at.key);
                Some(Reply::Released { claim, next, outcome })
            }
            Command::Leave { claim } => {
                self.leave(claim);
                Some(Reply::Left { claim })
            }
            Command::Renew { claim, sent, ttl } => {
                if scenario.keeps(Rule::RenewalsLookFirst) && !self.is_held_by(claim.at.key, Owner::Claim(claim)) {
                    return Some(self.renew_shared(scenario, claim, sent, ttl));
                }
                self.raise(scenario, claim, ttl);
                Some(Reply::Renewed { claim, sent, ttl })
            }
            Command::Downgrade { claim, sent, drawn } => Some(self.make_shared(scenario, claim, sent, drawn)),
            Command::Kill => {
                self.processes[process].stray.clear();
                None
            }
        }
    }

    /// MULTI, a SET NX for each claim, one draw for all of them, EXEC. Refused in the middle, it has set
    /// and not drawn.
    pub(crate) fn take_batch(
        &mut self,
        scenario: &Scenario,
        process: usize,
        batch: Vec<(Claim, u16)>,
        refused: bool,
    ) -> Vec<Reply> {
        let mut taken: Vec<_> = batch.into_iter().map(|(claim, sent)| (claim, sent, self.take(claim))).collect();
        if refused {
            return taken.into_iter().map(|(claim, sent, taken)| Reply::Undecided { claim, sent, taken }).collect();
        }
        if !scenario.keeps(Rule::DrawnWithTheLock) {
            let granted = taken.extract_if(.., |(_, _, grant)| grant.is_some());
            let draws: Vec<_> = granted
                .map(|(claim, sent, grant)| Command::Draw { claim, sent, grant: grant.unwrap_or_default() })
                .collect();
            self.processes[process].requests.splice(0..0, draws);
        }
        let mut drawn = None;
        if taken.iter().any(|(_, _, grant)| grant.is_some()) {
            drawn = match self.processes[process].kept_draw {
                Some(draw) => Some(draw),
                None => Some(self.draw(scenario)),
            };
        }
        if !scenario.keeps(Rule::DrawServesItsBatch) {
            self.processes[process].kept_draw = drawn;
        }
        let reply = |(claim, sent, grant)| match (grant, drawn) {
            (Some(grant), Some(draw)) => Reply::Granted { claim, sent, drawn: Drawn { draw, grant } },
            _ => Reply::Busy { claim },
        };
        taken.into_iter().map(reply).collect()
    }

    /// SET NX. Returns the number of the grant if it took the lock.
    fn take(&mut self, claim: Claim) -> Option<u16> {
        let key = claim.at.key;
        if !self.is_free(key) {
            return None;
        }
        let told = |entry: &Entry| self.processes[entry.claim.at.process].hears;
        let (lock, seen) = (&mut self.store.locks[key], &mut self.seen[key]);
        if lock.owner.is_some() {
            seen.passes = 0;
        }
        if lock.queue.iter().any(told) {
            seen.passes += 1;
        }
        lock.passing = None;
        if seen.passes > 1 {
            self.report(Wrong::Overtaken);
        }
        Some(self.give(claim, TTL))
    }

    /// Sets the owner and returns the number of the grant.
    fn give(&mut self, claim: Claim, ttl: u16) -> u16 {
        let expires = self.server_now() + ttl;
        let key = claim.at.key;
        let (lock, seen) = (&mut self.store.locks[key], &mut self.seen[key]);
        (lock.owner, lock.expires) = (Some(Owner::Claim(claim)), expires);
        seen.grants += 1;
        seen.grants
    }

    fn leave(&mut self, claim: Claim) {
        self.store.locks[claim.at.key].queue.retain(|entry| entry.claim != claim);
    }

    fn acquire(&mut self, scenario: &Scenario, ask: Ask, freed: bool) -> Reply {
        let Ask { claim, attempt, sent, .. } = ask;
        let key = claim.at.key;
        if !scenario.kills && scenario.keeps(Rule::SendsHaveDeadlines) && self.now > ask.execute_before {
            return Reply::Stale { claim };
        }
        if self.is_held_by(key, Owner::Claim(claim)) {
            self.leave(claim);
            return self.grant_in_reply(scenario, ask);
        }
        let moves = self.look(scenario, key) || freed;
        if let Some(drawn) = self.repeat(scenario, claim) {
            if moves {
                self.move_on(scenario, key, None);
            }
            return Reply::Granted { claim, sent, drawn };
        }
        let first = self.store.locks[key].queue.first().is_none_or(|entry| entry.claim == claim);
        if self.is_free(key) && self.left_free(scenario, key, freed) {
            self.enter(ask);
            return Reply::Queued { claim, sent, attempt, sleep: None };
        }
        self.bind_all(scenario, claim);
        if self.fits(scenario, claim) && (first || scenario.keeps(Rule::AskingMovesOn)) {
            if !scenario.keeps(Rule::NewcomersGoBehind) && scenario.mode(claim) != Mode::Exclusive {
                return self.grant_in_reply(scenario, ask);
            }
            self.enter(ask);
            if let Some(reply) = self.move_on(scenario, key, Some(ask)) {
                return reply;
            }
        } else if moves && self.is_shared(key) {
            self.move_on(scenario, key, None);
        }
        let known = self.store.locks[key].queue.iter().any(|entry| entry.claim == claim);
        self.enter(ask);
        let sleep = if scenario.sleeps && known { self.fall_asleep(scenario, claim) } else { None };
        Reply::Queued { claim, sent, attempt, sleep }
    }

    /// Gives the lock to the process that asks, or says that its clock will not do.
    fn grant_in_reply(&mut self, scenario: &Scenario, Ask { claim, sent, floor, .. }: Ask) -> Reply {
        let held = self.is_held_by(claim.at.key, Owner::Claim(claim));
        if !held {
            self.judge_order(claim);
        }
        if scenario.mode(claim) != Mode::Exclusive {
            let drawn = self.join(scenario, claim, TTL, floor);
            return drawn.map_or(Reply::Refused { claim }, |drawn| Reply::Granted { claim, sent, drawn });
        }
        let expires = self.store.locks[claim.at.key].expires;
        let Some(draw) = self.draw_above(scenario, floor) else {
            return Reply::Refused { claim };
        };
        let grant = self.give(claim, TTL);
        let lock = &mut self.store.locks[claim.at.key];
        if held {
            let raised = if scenario.keeps(Rule::RepeatRaises) { lock.expires } else { 0 };
            lock.expires = raised.max(expires);
        }
        Reply::Granted { claim, sent, drawn: Drawn { draw, grant } }
    }

    fn release(&mut self, scenario: &Scenario, claim: Claim, next: Option<Ask>) -> Outcome {
        let key = claim.at.key;
        let own = self.is_held_by(key, Owner::Claim(claim));
        let ended = self.look(scenario, key);
        let left = self.leave_others(scenario, claim);
        let waited = self.store.locks[key].queue.iter().any(|entry| entry.claim == claim);
        if scenario.keeps(Rule::WithdrawFrees) {
            self.leave(claim);
        }
        if waited {
            self.wake_watcher(scenario, key);
        }
        if own {
            self.store.locks[key].owner = None;
        }
        if own && scenario.keeps_remnant {
            let expires = self.server_now() + REMNANT;
            (self.store.locks[key].owner, self.store.locks[key].expires) = (Some(Owner::Remnant(claim)), expires);
        }
        let moves = match (own, left) {
            (true, _) => scenario.keeps(Rule::OnePass),
            (_, true) => scenario.keeps(Rule::LeaversMoveOn),
            _ => ended || scenario.keeps(Rule::ReleaseAlwaysMovesOn),
        };
        if self.is_free(key) {
            self.store.locks[key].owner = None;
        }
        let late = !scenario.kills && scenario.keeps(Rule::SendsHaveDeadlines);
        let next = next.filter(|ask| !late || self.now <= ask.execute_before);
        let Some(ask) = next.filter(|_| scenario.keeps(Rule::EntersBeforeWalk)) else {
            let may_pass_on = self.is_shared(key) || self.is_free(key) && !self.left_free(scenario, key, own);
            if moves && may_pass_on {
                self.move_on(scenario, key, None);
            }
            return next.map_or(Outcome::None, |ask| {
                self.enter(ask);
                Outcome::Queued
            });
        };
        match self.acquire(scenario, ask, own || left) {
            Reply::Granted { drawn, .. } => Outcome::Granted(drawn),
            Reply::Queued { .. } => Outcome::Queued,
            _ => Outcome::None,
        }
    }

    /// Returns whether a free lock is left free for a while. `freed`: it was freed just now, in order to pass on.
    fn left_free(&mut self, scenario: &Scenario, key: usize, freed: bool) -> bool {
        if !scenario.shares {
            return false;
        }
        let now = self.server_now();
        let lock = &mut self.store.locks[key];
        // Not beyond the time of a window: the clock may have stepped back.
        // A claim that had it meanwhile must pass it on, so that no claim passes the queue twice.
        if !freed && now < lock.window && lock.window - now <= WINDOW {
            return true;
        }
        lock.window = 0;
        let began = lock.passing.take().filter(|_| freed).unwrap_or(now);
        if now.saturating_sub(began) >= PASSING {
            if scenario.keeps(Rule::LeftFreeNowAndThen) {
                lock.window = now + WINDOW;
                return true;
            }
            self.report(Wrong::NeverFree);
        } else if freed {
            lock.passing = Some(began);
        }
        false
    }

    /// Moves the queue of a lock on, and wakes who is to watch the lock from then on.
    pub(crate) fn move_on(&mut self, scenario: &Scenario, key: usize, asker: Option<Ask>) -> Option<Reply> {
        let before = self.store.locks[key].queue.len();
        let answer = self.walk(scenario, key, asker);
        if self.store.locks[key].queue.len() < before {
            self.wake_watcher(scenario, key);
        }
        answer
    }

    /// Walks the queue of a lock, and grants as long as the next one fits. Returns the answer if it reaches the
    /// process that asks.
    fn walk(&mut self, scenario: &Scenario, key: usize, asker: Option<Ask>) -> Option<Reply> {
        if self.is_free(key) {
            self.store.locks[key].owner = None;
        }
        // Every claim that can be reached got its message: a newcomer passes only the others.
        self.seen[key].passes = 0;
        let (mut index, mut answer) = (0, None);
        while let Some(&entry) = self.store.locks[key].queue.get(index) {
            let asks = asker.filter(|ask| ask.claim == entry.claim);
            let hears = self.processes[entry.claim.at.process].hears;
            let keeps = entry.asleep && scenario.keeps(Rule::SleepersKeepPlaces);
            let doubted = !hears || entry.asleep && !keeps;
            if asks.is_none() && doubted && !keeps && self.now - entry.confirmed > UNCONFIRMED {
                self.store.locks[key].queue.remove(index);
                if hears {
                    self.report(Wrong::LeftOut);
                }
                continue;
            }
            let alone = scenario.mode(entry.claim) == Mode::Exclusive;
            if !self.fits(scenario, entry.claim) {
                if asks.is_some() || self.makes_others_wait(scenario, key, index) {
                    return answer;
                }
                index += 1;
                continue;
            }
            if let Some(ask) = asks {
                answer = Some(self.grant_in_reply(scenario, ask));
                self.store.locks[key].queue.remove(index);
                if alone || !scenario.keeps(Rule::AskersBringTheirBatch) {
                    return answer;
                }
                continue;
            }
            if hears || entry.reach == Reach::Polling {
                self.grant(scenario, entry, hears);
                if scenario.keeps(Rule::GrantsLeaveTheQueue) {
                    self.store.locks[key].queue.remove(index);
                } else {
                    index += 1;
                }
                if alone || !scenario.keeps(Rule::BatchesGoOn) {
                    return answer;
                }
                continue;
            }
            if !scenario.keeps(Rule::PassedOverHearNothing) {
                self.grant(scenario, entry, true);
                self.store.locks[key].owner = None;
            }
            self.store.locks[key].queue[index].reach = Reach::PassedOver;
            if scenario.keeps(Rule::PassedOverKeepPlace) {
                index += 1;
            } else {
                self.store.locks[key].queue.remove(index);
            }
        }
        answer
    }

    fn grant(&mut self, scenario: &Scenario, entry: Entry, tells: bool) {
        // The releaser's idea of a lease, where entries do not say.
        let ttl = if scenario.keeps(Rule::EntriesNameTheirLease) { GRANT_TTL } else { 1 };
        let Entry { claim, stamp, attempt, .. } = entry;
        self.judge_order(claim);
        let drawn = match scenario.mode(claim) {
            Mode::Exclusive => Some(Drawn { draw: self.draw(scenario), grant: self.give(claim, ttl) }),
            Mode::Shared { .. } => self.join(scenario, claim, ttl, 0),
        };
        if let Some(drawn) = drawn.filter(|_| tells) {
            self.processes[claim.at.process].inbox.push(Grant { claim, drawn, stamp, attempt });
        }
    }

    fn enter(&mut self, Ask { claim, attempt, sent, .. }: Ask) {
        let confirmed = self.now;
        let queue = &mut self.store.locks[claim.at.key].queue;
        let Some(entry) = queue.iter_mut().find(|entry| entry.claim == claim) else {
            queue.push(Entry { claim, stamp: sent, attempt, reach: Reach::Unknown, confirmed, asleep: false });
            return;
        };
        (entry.confirmed, entry.asleep) = (confirmed, false);
        if entry.reach == Reach::PassedOver {
            entry.reach = Reach::Polling;
        }
        if attempt >= entry.attempt {
            (entry.stamp, entry.attempt) = (sent, attempt);
        }
    }

    /// Raises the expiry of a lock, whoever has it.
    fn raise(&mut self, scenario: &Scenario, claim: Claim, ttl: u16) {
        let (until, key) = (self.server_now() + ttl, claim.at.key);
        if self.is_free(key) {
            return;
        }
        let lock = &mut self.store.locks[key];
        let raises = until > lock.expires;
        if raises || !scenario.keeps(Rule::NeverShortens) {
            lock.expires = until;
        }
        if !raises || lock.owner == Some(Owner::Claim(claim)) {
            return;
        }
        self.report(Wrong::Stretched);
    }
}
