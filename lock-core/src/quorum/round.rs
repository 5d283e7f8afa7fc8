//! The arithmetic of one round: what the answers of the members amount to. Pure.

use std::time::Duration;

use crate::backend::{Freed, Renewal};
use crate::error::{LockError, Result};
use crate::fencing::FencingToken;
use crate::owner::Holder;

/// The vote of one member.
#[derive(Clone, Debug)]
pub(super) enum Ballot {
    /// It granted, and counts.
    Counted(FencingToken),
    /// It granted, but has lost its data so recently that it does not count for this much longer.
    Uncounted(Duration),
    /// Somebody else has the lock there.
    Held(Holder),
    /// It gave no answer, or an error.
    Failed(LockError),
}

/// The votes of all members on one claim.
#[derive(Debug)]
pub(super) struct Round {
    majority: usize,
    ballots: Vec<Option<Ballot>>,
}

/// What the votes amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// More votes may decide.
    Open,
    /// A majority granted. `agreed` if a majority granted this very token, otherwise it is the greatest.
    Won { token: FencingToken, agreed: bool },
    /// No majority can grant any more.
    Lost,
}

impl Round {
    pub(super) fn new(members: usize, majority: usize) -> Self {
        Self { majority, ballots: vec![None; members] }
    }

    pub(super) fn cast(&mut self, member: usize, ballot: Ballot) {
        self.ballots[member] = Some(ballot);
    }

    pub(super) fn ballot(&self, member: usize) -> Option<&Ballot> {
        self.ballots[member].as_ref()
    }

    /// Returns whether every member has voted.
    pub(super) fn is_complete(&self) -> bool {
        self.ballots.iter().all(Option::is_some)
    }

    fn count(&self, of: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().flatten().filter(|ballot| of(ballot)).count()
    }

    pub(super) fn state(&self) -> State {
        let tokens = self.ballots.iter().flatten().filter_map(|ballot| match ballot {
            Ballot::Counted(token) => Some(*token),
            _ => None,
        });
        let tokens: Vec<FencingToken> = tokens.collect();
        let open = self.ballots.iter().filter(|ballot| ballot.is_none()).count();
        if tokens.len() >= self.majority {
            let same = |one: &&FencingToken| tokens.iter().filter(|other| other == one).count() >= self.majority;
            if let Some(token) = tokens.iter().find(same) {
                return State::Won { token: *token, agreed: true };
            }
            return State::Won { token: tokens.into_iter().max().unwrap_or_default(), agreed: false };
        }
        if tokens.len() + open < self.majority { State::Lost } else { State::Open }
    }

    /// Says why a majority did not grant: somebody else has the lock, or an error.
    pub(super) fn refusal(&self, names: &[&str]) -> Result<Holder> {
        let answered = self.count(|ballot| !matches!(ballot, Ballot::Failed(_)));
        let held = self.ballots.iter().flatten().filter_map(|ballot| match ballot {
            Ballot::Held(holder) => Some(holder),
            _ => None,
        });
        // Whom most of the members name.
        let votes = |one: &&Holder| held.clone().filter(|other| other.owner == one.owner).count();
        if let Some(holder) = held.clone().max_by_key(votes).filter(|_| answered >= self.majority) {
            return Ok(holder.clone());
        }
        let mut said = Vec::new();
        let mut refused = Vec::new();
        for (name, ballot) in names.iter().zip(&self.ballots) {
            match ballot {
                Some(Ballot::Failed(error)) => {
                    if !error.is_transient() {
                        refused.push(error.clone());
                    }
                    said.push(format!("{name}: {error}"));
                }
                Some(Ballot::Uncounted(left)) => said.push(format!(
                    "{name} has begun with empty data and does not count for another {left:.0?}, in case it gave a \
                     lock away before",
                )),
                None => said.push(format!("{name} did not answer in time")),
                Some(Ballot::Counted(_) | Ballot::Held(_)) => {}
            }
        }
        let (all, majority) = (names.len(), self.majority);
        // If they are fewer, the others are a majority once they answer.
        if refused.len() > all - majority {
            return Err(refused.swap_remove(0));
        }
        let young = self.count(|ballot| matches!(ballot, Ballot::Uncounted(_)));
        let could = match answered - young {
            0 => "none".to_owned(),
            some => format!("only {some}"),
        };
        let silent = (said.len() > young).then_some("bring those back that do not answer, or correct their addresses");
        let young = (young > 0).then_some("wait, or run `lockctl quorum init` once if the quorum is new");
        let advice: Vec<&str> = silent.into_iter().chain(young).collect();
        Err(LockError::not_executed(format!(
            "of {all} members {majority} must grant the lock, and {could} can; {} ({})",
            advice.join("; "),
            said.join("; "),
        )))
    }
}

/// Says what the answers to a renewal amount to: `None` while more answers may decide.
pub(super) fn renewal(answers: &[Option<Result<Renewal>>], majority: usize) -> Option<Renewal> {
    let count = |of: Renewal| answers.iter().flatten().filter(|answer| **answer == Ok(of)).count();
    if count(Renewal::Renewed) >= majority {
        return Some(Renewal::Renewed);
    }
    (count(Renewal::Lost) > answers.len() - majority).then_some(Renewal::Lost)
}

/// Says the same of a release.
pub(super) fn release(answers: &[Option<Result<Freed>>], majority: usize) -> Option<Freed> {
    let count = |of: Freed| answers.iter().flatten().filter(|answer| **answer == Ok(of)).count();
    if count(Freed::Released) >= majority {
        return Some(Freed::Released);
    }
    (count(Freed::NotHeld) > answers.len() - majority).then_some(Freed::NotHeld)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::testing::limit;

    use super::{Ballot, Round, State, release, renewal};
    use crate::backend::{Freed, Renewal};
    use crate::error::{LockError, LockErrorKind};
    use crate::fencing::FencingToken;
    use crate::owner::Holder;

    fn round(members: usize, ballots: &[Ballot]) -> Round {
        let mut round = Round::new(members, members / 2 + 1);
        for (member, ballot) in ballots.iter().enumerate() {
            round.cast(member, ballot.clone());
        }
        round
    }

    fn counted(token: u64) -> Ballot {
        Ballot::Counted(FencingToken::new(token))
    }

    fn held() -> Ballot {
        Ballot::Held(Holder::foreign(None))
    }

    fn failed() -> Ballot {
        Ballot::Failed(LockError::unavailable("away"))
    }

    fn won(token: u64, agreed: bool) -> State {
        State::Won { token: FencingToken::new(token), agreed }
    }

    #[test]
    #[limit]
    fn a_majority_of_all_members_decides() {
        for (members, ballots, state) in [
            (3, vec![counted(7)], State::Open),
            (3, vec![counted(7), counted(7)], won(7, true)),
            (3, vec![counted(7), counted(8)], won(8, false)),
            (5, vec![counted(7), counted(9), counted(7), counted(7)], won(7, true)),
            (3, vec![counted(7), held()], State::Open),
            (3, vec![counted(7), held(), failed()], State::Lost),
            (4, vec![counted(7), counted(7), held()], State::Open),
            (4, vec![counted(7), counted(7), held(), held()], State::Lost),
            (3, vec![counted(7), Ballot::Uncounted(Duration::ZERO), failed()], State::Lost),
            (5, vec![failed(), failed(), failed()], State::Lost),
        ] {
            assert_eq!(round(members, &ballots).state(), state, "{members} {ballots:?}");
        }
    }

    #[test]
    #[limit]
    fn a_refusal_names_the_holder_or_what_the_members_said() {
        let names = ["a", "b", "c"];
        assert!(round(3, &[counted(7), held(), failed()]).refusal(&names).is_ok());
        for (ballots, says) in [
            (vec![held(), failed(), failed()], "b: away; c: away"),
            (vec![held(), failed()], "b: away; c did not answer in time"),
            (
                vec![counted(7), Ballot::Uncounted(Duration::from_secs(9)), failed()],
                "only 1 can; bring those back that do not answer, or correct their addresses; wait, or run",
            ),
            (vec![Ballot::Uncounted(Duration::from_secs(9)); 3], "none can; wait, or run `lockctl quorum init` once"),
        ] {
            let error = round(3, &ballots).refusal(&names).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.kind(), LockErrorKind::Unavailable);
        }
        let wrong = || Ballot::Failed(LockError::misconfigured("asks for a password"));
        // Once the third answers, the lock is granted without the second.
        let error = round(3, &[counted(7), wrong(), failed()]).refusal(&names).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable);
        assert!(error.to_string().contains("b: asks for a password; c: away"), "{error}");
        let error = round(3, &[counted(7), wrong(), wrong()]).refusal(&names).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (LockErrorKind::Misconfigured, "asks for a password"));
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
