//! A process that takes the lock of a quorum, renews it, and releases it or dies.

use crate::quorum::node::{Answer, PER_TICK, Question};
use crate::quorum::{Found, MAX_DELAY, Rules, TTL, World};

/// How long a round may take.
const PATIENCE: i64 = 14;

/// For how long a member that lost its data does not count.
const EXCLUDED: i64 = TTL + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle { until: i64 },
    Voting { raised: Option<i64> },
    Holding { until: i64 },
    Dead { until: i64 },
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    stage: Stage,
    pub(super) claim: u64,
    /// Distinguishes the questions of one round from those of another.
    round: u64,
    sent: i64,
    pub(super) deadline: i64,
    votes: Vec<(usize, i64)>,
    renewed: Vec<usize>,
    renew_at: i64,
    token: i64,
    /// The greatest token it has seen.
    newest: i64,
    members: Vec<usize>,
    new_list_at: i64,
}

impl Client {
    pub(super) fn new(members: usize, new_list_at: i64) -> Self {
        Self {
            stage: Stage::Idle { until: 0 },
            claim: 0,
            round: 0,
            sent: 0,
            deadline: 0,
            votes: Vec::new(),
            renewed: Vec::new(),
            renew_at: 0,
            token: 0,
            newest: 0,
            members: (0..members).collect(),
            new_list_at,
        }
    }

    pub(super) fn holds(&self, now: i64, rules: &Rules) -> bool {
        matches!(self.stage, Stage::Holding { .. }) && (now < self.deadline || rules.enters_late)
    }

    fn majority(&self, rules: &Rules) -> usize {
        if rules.half_is_enough { self.members.len().div_ceil(2) } else { self.members.len() / 2 + 1 }
    }

    fn ask(&self, me: usize, world: &mut World, question: Question) {
        for node in self.members.clone() {
            world.ask(me, node, self.claim, self.round, question);
        }
    }

    /// Reads an answer.
    pub(super) fn hear(&mut self, me: usize, world: &mut World, from: (usize, u64), answer: Answer) -> Option<Found> {
        let ((node, round), now, rules) = (from, world.now, world.rules);
        if round != self.round {
            return None;
        }
        match (self.stage, answer) {
            (Stage::Voting { raised }, Answer::Granted { token, born }) => {
                self.newest = self.newest.max(token);
                if rules.reborn_counts || now - born >= EXCLUDED {
                    self.votes.push((node, token));
                }
                if self.votes.len() >= self.majority(&rules) {
                    return self.decide(me, world, raised);
                }
            }
            // A repair counts as a renewal.
            (Stage::Holding { .. }, Answer::Renewed | Answer::Granted { .. }) if !self.renewed.contains(&node) => {
                self.renewed.push(node);
                if self.renewed.len() >= self.majority(&rules) && now < self.deadline {
                    self.deadline = self.deadline.max(self.sent + TTL);
                    world.tally.renewals += 1;
                }
            }
            (Stage::Holding { .. }, Answer::Lost) if !rules.no_repair && now < self.deadline => {
                world.tally.repairs += 1;
                world.ask(me, node, self.claim, self.round, Question::Vote { floor: self.token - 1 });
            }
            _ => {}
        }
        None
    }

    /// A majority has granted.
    fn decide(&mut self, me: usize, world: &mut World, raised: Option<i64>) -> Option<Found> {
        let (now, rules) = (world.now, world.rules);
        let greatest = self.votes.iter().map(|(_, token)| *token).max().unwrap();
        let agreed = self.votes.iter().all(|(_, token)| *token == greatest) && !rules.never_agrees;
        if raised.is_none() && !agreed && !rules.one_round {
            self.stage = Stage::Voting { raised: Some(greatest) };
            self.votes.clear();
            self.round += 1;
            self.ask(me, world, Question::Vote { floor: greatest });
            return None;
        }
        if now >= self.deadline && !rules.enters_late {
            self.end(me, world, true);
            return None;
        }
        self.token = raised.unwrap_or(greatest);
        self.stage = Stage::Holding { until: now + world.below(40) };
        self.renew_at = now + TTL / 3;
        world.tally.grants += 1;
        world.tally.in_one_round += u64::from(raised.is_none());
        let before = world.entered;
        world.entered = before.max(self.token);
        (self.token <= before).then_some(Found::Token)
    }

    fn end(&mut self, me: usize, world: &mut World, retries: bool) {
        self.ask(me, world, Question::Release);
        if !(retries && world.rules.reuses_claims) {
            self.claim = 0;
        }
        self.stage = Stage::Idle { until: world.now + 1 + world.below(20) };
    }

    /// Its own action at this moment.
    pub(super) fn step(&mut self, me: usize, world: &mut World) {
        let (now, rules) = (world.now, world.rules);
        if now >= self.new_list_at && !matches!(self.stage, Stage::Holding { .. }) {
            self.new_list_at = i64::MAX;
            match (rules.replaces_member, rules.adds_member) {
                (true, _) => self.members = vec![0, 1, 3],
                (_, true) => self.members = vec![0, 1, 2, 3],
                _ => {}
            }
        }
        match self.stage {
            Stage::Idle { until } if now >= until => {
                if self.claim == 0 {
                    self.claim = world.new_claim();
                }
                self.round += 1;
                (self.sent, self.deadline) = (now, now + TTL);
                self.votes.clear();
                self.stage = Stage::Voting { raised: None };
                let ahead = (now + 4) * PER_TICK + i64::try_from(me).unwrap();
                let floor = if rules.no_proposal { self.newest } else { self.newest.max(ahead) - 1 };
                self.ask(me, world, Question::Vote { floor });
            }
            Stage::Voting { .. } if now >= self.sent + if rules.enters_late { MAX_DELAY } else { PATIENCE } => {
                self.end(me, world, true);
            }
            Stage::Holding { until } if (now >= self.deadline && !rules.enters_late) || now >= until => {
                self.end(me, world, false);
            }
            Stage::Holding { .. } if world.chance(5) => self.stage = Stage::Dead { until: self.deadline.max(now) + 30 },
            Stage::Holding { .. } if now >= self.renew_at => {
                (self.renew_at, self.sent) = (now + TTL / 3, now);
                self.renewed.clear();
                self.round += 1;
                self.ask(me, world, Question::Renew);
            }
            Stage::Dead { until } if now >= until => {
                self.claim = 0;
                self.stage = Stage::Idle { until: now };
            }
            _ => {}
        }
    }
}
