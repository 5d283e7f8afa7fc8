//! The arithmetic of one round: what the answers of the members amount to. Pure.

pub(crate) mod ask;
mod refusal;

use std::time::Duration;

use lock_store::contract::backend::{Freed, Renewal};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::owner::Holder;

/// The vote of one member.
#[derive(Clone, Debug)]
pub(super) enum Ballot {
    /// It granted, and counts. `kept` if the lock belonged to the claim there already.
    Counted { token: FencingToken, kept: bool },
    /// It granted, but has lost its data so recently that it does not count for this much longer.
    Uncounted(Duration),
    /// Another claim has the lock there. For `uncounted` longer the member does not count for any caller.
    Held { holder: Holder, uncounted: Option<Duration> },
    /// It gave no answer, or an error.
    Failed(LockError),
}

/// How far apart the tokens of two members may lie before the round waits for the members that have not voted. Tokens count
/// the time of day, and this is a second of it: of two clocks that differ by more, one is wrong, and a third tells which.
const FAR: u64 = 1000 << 20;

/// The votes of all members on one claim.
#[derive(Debug)]
pub(super) struct Round {
    majority: usize,
    ballots: Vec<Option<Ballot>>,
    /// In a second round: the token to which the members are raised, and which of them counted in the first round.
    raised: Option<(FencingToken, Vec<bool>)>,
    /// Whether the round waits for no further votes.
    closed: bool,
}

/// The result of the votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tally {
    /// More votes may decide.
    Open,
    /// A majority granted. If it `agreed`, the claim has the lock with this token. Otherwise a second round must raise the
    /// members to this token first.
    Won { token: FencingToken, agreed: bool },
    /// No majority can grant any more.
    Lost,
}

impl Round {
    pub(super) fn new(members: usize, majority: usize) -> Self {
        Self { majority, ballots: vec![None; members], raised: None, closed: false }
    }

    /// Begins the second round, in which the members are raised to a token.
    pub(super) fn second(&self, token: FencingToken) -> Self {
        let counted = self.ballots.iter().map(|ballot| matches!(ballot, Some(Ballot::Counted { .. }))).collect();
        Self { raised: Some((token, counted)), ..Self::new(self.ballots.len(), self.majority) }
    }

    pub(super) fn cast(&mut self, member: usize, ballot: Ballot) {
        self.ballots[member] = Some(ballot);
    }

    /// Decides by the votes that are there.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether every member has voted.
    pub(super) fn is_complete(&self) -> bool {
        self.ballots.iter().all(Option::is_some)
    }

    fn count(&self, of: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().flatten().filter(|ballot| of(ballot)).count()
    }

    /// Says what the votes amount to.
    ///
    /// A token must exceed the tokens of all holders before, and a majority must never grant a lower one again. Two
    /// majorities have a member in common, so one majority is enough to know all earlier tokens. The majority with the lowest tokens
    /// is taken among the members that granted, so a clock that is ahead does not decide.
    pub(super) fn tally(&self) -> Tally {
        let tokens = self.ballots.iter().flatten().filter_map(|ballot| match ballot {
            Ballot::Counted { token, .. } => Some(*token),
            _ => None,
        });
        let mut tokens: Vec<FencingToken> = tokens.collect();
        tokens.sort_unstable();
        let open = self.ballots.iter().filter(|ballot| ballot.is_none() && !self.closed).count();
        if tokens.len() < self.majority {
            return if tokens.len() + open < self.majority { Tally::Lost } else { Tally::Open };
        }
        // A majority gave one and the same token, so it grants none below it any more.
        if let Some(same) = tokens.windows(self.majority).find(|same| same.first() == same.last()) {
            return Tally::Won { token: same[0], agreed: true };
        }
        // In the first round: the highest token of the lowest majority, to which a second round raises the others.
        let Some((raised, counted)) = &self.raised else {
            let token = tokens[self.majority - 1];
            let is_far = token.get() - tokens[0].get() > FAR;
            return if is_far && open > 0 { Tally::Open } else { Tally::Won { token, agreed: false } };
        };
        // Another claim that took the lock between the rounds needed a majority, and some member of it would not have kept this
        // claim. So a majority that counted before and kept the claim proves that no other claim came between.
        let kept = |(ballot, counted): (&Option<Ballot>, &bool)| {
            *counted && matches!(ballot, Some(Ballot::Counted { kept: true, .. }))
        };
        if self.ballots.iter().zip(counted).filter(|vote| kept(*vote)).count() >= self.majority {
            return Tally::Won { token: *raised, agreed: true };
        }
        if open == 0 { Tally::Lost } else { Tally::Open }
    }
}

/// Says which of two answers the members gave: the first by a majority, or the second by so many that no majority can give the
/// first. `None` while more answers may decide.
pub(super) fn decided<T: PartialEq>(answers: &[Option<Result<T>>], majority: usize, [yes, no]: [T; 2]) -> Option<T> {
    let count = |of: &T| answers.iter().flatten().flatten().filter(|answer| *answer == of).count();
    if count(&yes) >= majority {
        return Some(yes);
    }
    (count(&no) > answers.len() - majority).then_some(no)
}

/// Says what the answers to a renewal amount to.
pub(super) fn renewal(answers: &[Option<Result<Renewal>>], majority: usize) -> Option<Renewal> {
    decided(answers, majority, [Renewal::Renewed, Renewal::Lost])
}

/// Says the same of a release.
pub(super) fn release(answers: &[Option<Result<Freed>>], majority: usize) -> Option<Freed> {
    decided(answers, majority, [Freed::Released, Freed::NotHeld])
}

/// The holder of a key, by a majority.
pub(super) enum Who {
    Holder(Holder),
    Nobody,
    Unknown,
}

/// Says what the answers to *who holds the key?* amount to: unknown while more answers may decide, or if too few came.
/// It is *nobody* only if the members that have not answered could not complete a majority for any holder that was named.
pub(super) fn holder(answers: &[Option<Result<Option<Holder>>>], majority: usize) -> Who {
    let said: Vec<&Option<Holder>> = answers.iter().flatten().flatten().collect();
    let unknown = answers.len() - said.len();
    let named = |one: &Holder| said.iter().filter(|other| other.as_ref().is_some_and(|h| h.owner == one.owner)).count();
    let most = said.iter().filter_map(|holder| holder.as_ref()).max_by_key(|holder| named(holder));
    let count = most.map_or(0, named);
    if count >= majority {
        return most.cloned().map_or(Who::Nobody, Who::Holder);
    }
    if count + unknown < majority { Who::Nobody } else { Who::Unknown }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_testing::limit;

    use super::{Ballot, Round, Tally, Who, holder, release, renewal};
    use lock_store::contract::backend::{Freed, Renewal};
    use lock_store::types::error::LockError;
    use lock_store::types::fencing::FencingToken;
    use lock_store::types::owner::{Holder, OwnerId};

    pub(super) fn round(members: usize, ballots: &[Ballot]) -> Round {
        let mut round = Round::new(members, members / 2 + 1);
        for (member, ballot) in ballots.iter().enumerate() {
            round.cast(member, ballot.clone());
        }
        round
    }

    pub(super) fn counted(token: u64) -> Ballot {
        Ballot::Counted { token: FencingToken::new(token), kept: false }
    }

    fn somebody() -> Holder {
        let mut holder = Holder::foreign(None);
        holder.owner = Some(OwnerId::random());
        holder
    }

    fn kept(token: u64) -> Ballot {
        Ballot::Counted { token: FencingToken::new(token), kept: true }
    }

    pub(super) fn held() -> Ballot {
        Ballot::Held { holder: Holder::foreign(None), uncounted: None }
    }

    pub(super) fn failed() -> Ballot {
        Ballot::Failed(LockError::unavailable("away"))
    }

    fn won(token: u64, agreed: bool) -> Tally {
        Tally::Won { token: FencingToken::new(token), agreed }
    }

    #[test]
    #[limit]
    fn a_majority_of_all_members_decides() {
        for (members, ballots, state) in [
            (3, vec![counted(7)], Tally::Open),
            (3, vec![counted(7), counted(7)], won(7, true)),
            (3, vec![counted(7), counted(8)], won(8, false)),
            (5, vec![counted(7), counted(9), counted(7), counted(7)], won(7, true)),
            (5, vec![counted(7), counted(9), counted(8), counted(11), counted(10)], won(9, false)),
            (3, vec![counted(7), held()], Tally::Open),
            (3, vec![counted(7), held(), failed()], Tally::Lost),
            (4, vec![counted(7), counted(7), held()], Tally::Open),
            (4, vec![counted(7), counted(7), held(), held()], Tally::Lost),
            (3, vec![counted(7), Ballot::Uncounted(Duration::ZERO), failed()], Tally::Lost),
            (5, vec![failed(), failed(), failed()], Tally::Lost),
        ] {
            assert_eq!(round(members, &ballots).tally(), state, "{members} {ballots:?}");
        }
    }

    #[test]
    #[limit]
    fn a_token_far_ahead_of_the_others_waits_for_those_that_have_not_voted() {
        let hour = 3_600_000 << 20;
        let mut apart = round(3, &[counted(hour), counted(7)]);
        assert_eq!(apart.tally(), Tally::Open);
        apart.close();
        assert_eq!(apart.tally(), won(hour, false), "nobody else answered in time");
        assert_eq!(round(3, &[counted(hour), counted(7), counted(8)]).tally(), won(8, false));
        assert_eq!(round(3, &[counted(hour), counted(7), failed()]).tally(), won(hour, false));
        let two_wrong = [counted(hour), counted(7), counted(hour + 1), counted(9), counted(8)];
        assert_eq!(round(5, &two_wrong[..4]).tally(), Tally::Open);
        assert_eq!(round(5, &two_wrong).tally(), won(9, false));
    }

    #[test]
    #[limit]
    fn a_second_round_is_won_by_members_that_kept_the_claim_or_by_a_token_that_is_the_same() {
        let first = round(5, &[counted(7), counted(8), counted(9), failed()]);
        let second = |ballots: &[Ballot]| {
            let mut round = first.second(FencingToken::new(9));
            for (member, ballot) in ballots.iter().enumerate() {
                round.cast(member, ballot.clone());
            }
            round.tally()
        };
        assert_eq!(second(&[kept(10), kept(11), kept(12)]), won(9, true));
        assert_eq!(second(&[kept(10), kept(11), counted(12)]), Tally::Open, "one lost it between");
        assert_eq!(second(&[kept(10), kept(11), counted(12), kept(13)]), Tally::Open, "one did not count before");
        assert_eq!(second(&[kept(10), kept(11), counted(12), kept(13), kept(14)]), Tally::Lost);
        assert_eq!(second(&[kept(10), counted(20), kept(11), counted(20), counted(20)]), won(20, true));
        assert_eq!(second(&[failed(), held(), kept(10), held()]), Tally::Lost);
    }

    #[test]
    #[limit]
    fn nobody_holds_a_key_only_if_no_answer_could_change_that() {
        let one = somebody();
        let other = somebody();
        let (free, by) = (|| Some(Ok(None)), |holder: &Holder| Some(Ok(Some(holder.clone()))));
        let error = || Some(Err(LockError::unavailable("away")));
        let decided = |answers: &[_]| match holder(answers, 2) {
            Who::Holder(found) if found.owner == one.owner => "one",
            Who::Holder(_) => "another",
            Who::Nobody => "nobody",
            Who::Unknown => "unknown",
        };
        assert_eq!(decided(&[by(&one), None, by(&one)]), "one");
        assert_eq!(decided(&[free(), free(), None]), "nobody");
        assert_eq!(decided(&[by(&one), free(), None]), "unknown");
        assert_eq!(decided(&[by(&one), free(), error()]), "unknown", "an error is never nobody");
        assert_eq!(decided(&[by(&one), free(), by(&other)]), "nobody");
        assert_eq!(decided(&[None, None, None]), "unknown");
    }

    #[test]
    #[limit]
    fn renewals_and_releases_are_unknown_until_a_majority_says_so() {
        let (yes, no) = (|| Some(Ok(Renewal::Renewed)), || Some(Ok(Renewal::Lost)));
        let error = || Some(Err(LockError::unavailable("away")));
        assert_eq!(renewal(&[yes(), yes(), None], 2), Some(Renewal::Renewed));
        assert_eq!(renewal(&[yes(), no(), None], 2), None);
        assert_eq!(renewal(&[no(), no(), None], 2), Some(Renewal::Lost));
        assert_eq!(renewal(&[yes(), no(), error()], 2), None);
        assert_eq!(renewal(&[yes(), yes(), no(), no()], 3), Some(Renewal::Lost));
        let (yes, no) = (|| Some(Ok(Freed::Released)), || Some(Ok(Freed::NotHeld)));
        assert_eq!(release(&[yes(), yes(), None], 2), Some(Freed::Released));
        assert_eq!(release(&[yes(), no(), None], 2), None);
        assert_eq!(release(&[no(), None, no()], 2), Some(Freed::NotHeld));
    }
}
