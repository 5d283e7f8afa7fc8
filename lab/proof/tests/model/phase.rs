//! The server's steps with a lock that several claims share.

use crate::scenario::{Mode, READ, Rule, Scenario, TTL, Wrong};
use crate::state::{Claim, Drawn, Owner, Reach, Reply, Sharer, State};

impl State {
    /// Returns how many units are in use of a lock that is shared, and the token of those who do.
    fn phase(&self, key: usize) -> Option<(u16, Drawn)> {
        match self.store.locks[key].owner {
            Some(Owner::Phase { used, drawn }) if !self.is_free(key) => Some((used, drawn)),
            _ => None,
        }
    }

    pub(crate) fn is_shared(&self, key: usize) -> bool {
        self.phase(key).is_some()
    }

    fn sharer(&self, claim: Claim) -> Option<usize> {
        let place = self.store.locks[claim.at.key].sharers.iter().position(|sharer| sharer.claim == claim);
        place.filter(|_| self.is_shared(claim.at.key))
    }

    /// Whether a claim can have the lock now.
    pub(crate) fn fits(&self, scenario: &Scenario, claim: Claim) -> bool {
        let key = claim.at.key;
        match (scenario.mode(claim), self.phase(key)) {
            (_, None) => self.is_free(key),
            (Mode::Exclusive, Some(_)) => !scenario.keeps(Rule::WritersAreAlone),
            (Mode::Shared { units, limit }, Some((used, _))) => used + counted(scenario, units) <= limit,
        }
    }

    /// Whether an entry that does not fit makes those behind it wait.
    pub(crate) fn makes_others_wait(&mut self, scenario: &Scenario, key: usize, index: usize) -> bool {
        let now = self.now;
        let entry = &mut self.store.locks[key].queue[index];
        let deaf = entry.reach == Reach::Unknown && !self.processes[entry.claim.at.process].hears;
        if deaf && now > entry.confirmed && scenario.keeps(Rule::DeafMakeNobodyWait) {
            entry.reach = Reach::PassedOver;
        }
        entry.reach != Reach::PassedOver && scenario.keeps(Rule::NobodyIsPassed)
    }

    /// Takes out the claims whose leases are over. Returns whether the queue must move on.
    pub(crate) fn look(&mut self, scenario: &Scenario, key: usize) -> bool {
        let now = self.server_now();
        if !self.is_shared(key) || !scenario.keeps(Rule::EndedLeasesAreTakenOut) {
            return false;
        }
        let ended: Vec<_> = self.store.locks[key].sharers.extract_if(.., |sharer| sharer.expires <= now).collect();
        if scenario.keeps(Rule::EndedLeasesGiveBack) {
            self.give_back(key, ended.iter().map(|sharer| sharer.units).sum());
        }
        !ended.is_empty() && scenario.keeps(Rule::EndedLeasesMoveOn)
    }

    /// Frees units, and the lock with the last of them.
    fn give_back(&mut self, key: usize, units: u16) {
        let lock = &mut self.store.locks[key];
        if let Some(Owner::Phase { used, drawn }) = lock.owner {
            lock.owner = (used > units).then(|| Owner::Phase { used: used - units, drawn });
        }
    }

    /// Only where the rule is removed that a limit is that of the claim that comes.
    pub(crate) fn bind_all(&mut self, scenario: &Scenario, claim: Claim) {
        let Mode::Shared { limit, .. } = scenario.mode(claim) else {
            return;
        };
        while let Some((used, _)) = self.phase(claim.at.key)
            && used > limit
            && !scenario.keeps(Rule::LimitsBindNewcomers)
            && let Some(sharer) = self.store.locks[claim.at.key].sharers.pop()
        {
            self.give_back(claim.at.key, sharer.units);
        }
    }

    /// Lets a claim share the lock, if the clock allows a token above one that is known.
    pub(crate) fn join(&mut self, scenario: &Scenario, claim: Claim, ttl: u16, floor: u32) -> Option<Drawn> {
        let (key, expires) = (claim.at.key, self.server_now() + ttl);
        let Mode::Shared { units, limit } = scenario.mode(claim) else { unreachable!("{claim:?} shares nothing") };
        if !self.excused && self.believed(scenario, key).units + units > limit {
            self.report(Wrong::OverLimit);
        }
        let units = counted(scenario, units);
        let (used, drawn) = match self.phase(key) {
            Some((used, drawn)) if scenario.keeps(Rule::SharersHaveOneToken) => (used, drawn),
            Some((used, drawn)) => (used, Drawn { draw: self.draw(scenario), ..drawn }),
            None => (0, self.open_phase(scenario, key, floor)?),
        };
        let lock = &mut self.store.locks[key];
        lock.owner = Some(Owner::Phase { used: used + units, drawn });
        lock.sharers.push(Sharer { claim, units, expires });
        if used == 0 || scenario.keeps(Rule::JoinsRaiseTheLock) && lock.expires < expires {
            lock.expires = expires;
        }
        Some(drawn)
    }

    fn open_phase(&mut self, scenario: &Scenario, key: usize, floor: u32) -> Option<Drawn> {
        let newest = self.store.clock.max(1);
        let draw = if scenario.keeps(Rule::FirstSharerDraws) { self.draw_above(scenario, floor)? } else { newest };
        if scenario.keeps(Rule::LeftoversDoNotCount) {
            self.store.locks[key].sharers.clear();
        }
        let seen = &mut self.seen[key];
        seen.grants += 1;
        Some(Drawn { draw, grant: seen.grants })
    }

    /// Raises the lease of a claim that shares the lock already. Returns its token.
    pub(crate) fn repeat(&mut self, scenario: &Scenario, claim: Claim) -> Option<Drawn> {
        let ((_, drawn), place) = (self.phase(claim.at.key)?, self.sharer(claim)?);
        if !scenario.keeps(Rule::RepeatsTakeNothing) {
            return self.join(scenario, claim, TTL, 0);
        }
        self.raise_lease(scenario, claim, place, TTL);
        Some(drawn)
    }

    fn raise_lease(&mut self, scenario: &Scenario, claim: Claim, place: usize, ttl: u16) {
        let expires = self.server_now() + ttl;
        let lock = &mut self.store.locks[claim.at.key];
        let sharer = &mut lock.sharers[place];
        sharer.expires = sharer.expires.max(expires);
        if scenario.keeps(Rule::RenewalsRaiseTheLock) {
            lock.expires = lock.expires.max(expires);
        }
    }

    pub(crate) fn renew_shared(&mut self, scenario: &Scenario, claim: Claim, sent: u16, ttl: u16) -> Reply {
        let key = claim.at.key;
        let ended = self.look(scenario, key);
        let place = self.sharer(claim);
        if let Some(place) = place {
            self.raise_lease(scenario, claim, place, ttl);
        }
        if ended {
            self.move_on(scenario, key, None);
        }
        if self.is_shared(key) {
            self.judge_queue(scenario, key);
        }
        if place.is_some() { Reply::Renewed { claim, sent, ttl } } else { Reply::Lost { claim } }
    }

    /// Takes a claim out of those who share the lock. Returns whether it was one of them.
    pub(crate) fn leave_others(&mut self, scenario: &Scenario, claim: Claim) -> bool {
        let (key, now) = (claim.at.key, self.server_now());
        let Some(place) = self.sharer(claim) else {
            if let Mode::Shared { units, .. } = scenario.mode(claim)
                && !scenario.keeps(Rule::LeaversGiveBackTheirOwn)
                && self.is_shared(key)
            {
                self.give_back(key, units);
            }
            return false;
        };
        let lock = &mut self.store.locks[key];
        let units = lock.sharers.remove(place).units;
        let longest = lock.sharers.iter().map(|sharer| sharer.expires).max();
        let ends = longest.filter(|_| scenario.keeps(Rule::LeaversKeepTheLock));
        lock.expires = ends.unwrap_or(now + 1);
        self.give_back(key, units);
        true
    }

    /// Makes a lock that a claim has for itself one that it shares, with the same token.
    pub(crate) fn make_shared(&mut self, scenario: &Scenario, claim: Claim, sent: u16, drawn: Drawn) -> Reply {
        let (key, until) = (claim.at.key, self.server_now() + TTL);
        if !self.is_held_by(key, Owner::Claim(claim)) {
            return self.renew_shared(scenario, claim, sent, TTL);
        }
        let lock = &mut self.store.locks[key];
        if !scenario.keeps(Rule::DowngradesInOneStep) {
            lock.owner = None;
            self.move_on(scenario, key, None);
            return Reply::Lost { claim };
        }
        let Mode::Shared { units, .. } = READ else { unreachable!("a reader shares") };
        lock.expires = lock.expires.max(until);
        lock.owner = Some(Owner::Phase { used: units, drawn });
        lock.sharers = vec![Sharer { claim, units, expires: lock.expires }];
        if scenario.keeps(Rule::DowngradesMoveOn) {
            self.move_on(scenario, key, None);
        }
        self.judge_queue(scenario, key);
        Reply::Renewed { claim, sent, ttl: TTL }
    }
}

/// Returns how many units a claim uses.
fn counted(scenario: &Scenario, units: u16) -> u16 {
    if scenario.keeps(Rule::UnitsAreCounted) { units } else { 1 }
}
