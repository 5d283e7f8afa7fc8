//! A member of the quorum: one lock, one fence, and the moment since which it has kept both.

use crate::quorum::TTL;

/// How many tokens a tick has.
pub(super) const PER_TICK: i64 = 4;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The claim that has the lock, and until when.
    lock: Option<(u64, i64)>,
    /// The last token it gave.
    pub(super) fence: i64,
    /// How far its clock is ahead.
    pub(super) skew: i64,
    pub(super) born: i64,
    pub(super) down_until: i64,
}

/// A request to a member. The second round and a repair are votes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Vote { floor: i64 },
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted { token: i64, born: i64 },
    Held,
    Renewed,
    Lost,
    Freed,
}

impl Node {
    pub(super) fn new(skew: i64, born: i64) -> Self {
        Self { lock: None, fence: 0, skew, born, down_until: born }
    }

    pub(super) fn answer(&mut self, claim: u64, question: Question, now: i64) -> Answer {
        self.lock = self.lock.filter(|(_, expires)| *expires > now);
        let holder = self.lock.map(|(holder, _)| holder);
        let expires = self.lock.map_or(0, |(_, expires)| expires).max(now + TTL);
        match question {
            Question::Vote { .. } if holder.is_some_and(|holder| holder != claim) => Answer::Held,
            Question::Vote { floor } => {
                self.lock = Some((claim, expires));
                self.fence = (self.fence + 1).max((now + self.skew) * PER_TICK).max(floor + 1);
                Answer::Granted { token: self.fence, born: self.born }
            }
            Question::Renew if holder == Some(claim) => {
                self.lock = Some((claim, expires));
                Answer::Renewed
            }
            Question::Renew => Answer::Lost,
            Question::Release => {
                self.lock = self.lock.filter(|_| holder != Some(claim));
                Answer::Freed
            }
        }
    }
}
