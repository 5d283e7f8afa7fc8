//! Tokens: what the server draws, and the order that callers must see.

use std::cmp::Ordering;

use crate::scenario::{DRAWS_PER_TICK, Mode, NUMBERS_PER_DRAW, RAISE_LIMIT, Rule, Scenario, Wrong};
use crate::state::{At, Drawn, State};

impl State {
    fn server_time(&self) -> u32 {
        u32::from(self.server_now()) * DRAWS_PER_TICK
    }

    /// Draws the next number: never one that was given, and at least the server's time.
    pub(crate) fn draw(&mut self, scenario: &Scenario) -> u32 {
        let after = if scenario.keeps(Rule::ClockNeverFalls) { self.store.clock + 1 } else { 0 };
        let time = if scenario.keeps(Rule::TokensFollowTime) { self.server_time() } else { 0 };
        self.store.clock = after.max(time);
        self.store.clock
    }

    /// Draws a number above one that is known, if the clock may be raised so far.
    pub(crate) fn draw_above(&mut self, scenario: &Scenario, floor: u32) -> Option<u32> {
        let draw = self.draw(scenario);
        if draw > floor {
            return Some(draw);
        }
        if scenario.keeps(Rule::RaisingIsBounded) && floor >= self.server_time() + RAISE_LIMIT {
            return None;
        }
        self.store.clock = floor + 1;
        Some(floor + 1)
    }

    /// Judges a token that a caller enters with.
    pub(crate) fn use_token(&mut self, scenario: &Scenario, at: At, drawn: Drawn, number: u32) {
        let width = if scenario.keeps(Rule::GrantsOwnTheirNumbers) { NUMBERS_PER_DRAW } else { 1 };
        let token = drawn.draw * width + number;
        let shares = self.mode(scenario, at) != Mode::Exclusive;
        let seen = &mut self.seen[at.key];
        let newest = seen.newest.unwrap_or_default();
        let in_order = match drawn.grant.cmp(&newest.0) {
            Ordering::Equal if shares => token == newest.1,
            Ordering::Less => token < newest.1,
            Ordering::Equal | Ordering::Greater => token > newest.1,
        };
        if drawn.grant >= newest.0 {
            seen.newest = Some((drawn.grant, token));
        }
        if !in_order {
            self.report(Wrong::TokenOrder);
        }
    }

    pub(crate) fn clock_runs(&self) -> bool {
        // A clock that stepped back leaves the tokens where they were.
        self.store.clock > self.server_time() + 2 * RAISE_LIMIT
    }
}
