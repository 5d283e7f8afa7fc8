//! Why a round did not grant the lock.

use crate::round::{Ballot, Round};
use lock_store::types::error::{LockError, Result};
use lock_store::types::owner::{Holder, Standing};

impl Round {
    /// Says why a majority did not grant: another process has the lock, or an error.
    ///
    /// A claim that one member names need not hold the lock: it may be another attempt of this moment, or be left of one. So
    /// a holder is named without a doubt only if a majority names it, and a majority could grant the lock once it is free.
    pub(crate) fn refusal(&self, names: &[&str]) -> Result<Holder> {
        let (all, majority) = (names.len(), self.majority);
        let answered = self.count(|ballot| !matches!(ballot, Ballot::Failed(_)));
        let able = self.count(|ballot| matches!(ballot, Ballot::Counted { .. } | Ballot::Held { uncounted: None, .. }));
        let held = self.ballots.iter().flatten().filter_map(|ballot| match ballot {
            Ballot::Held { holder, .. } => Some(holder),
            _ => None,
        });
        // The holder that most of the members name.
        let votes = |one: &&Holder| held.clone().filter(|other| other.owner == one.owner).count();
        if let Some(holder) = held.clone().max_by_key(votes).filter(|_| answered >= majority) {
            let votes = votes(&holder);
            return Ok(match () {
                () if votes >= majority && able >= majority => holder.clone(),
                // Members that gave no answer, or have lost their data, may have granted the lock to it.
                () if votes + (all - able) >= majority => {
                    let has_it = match (&holder.info, holder.standing()) {
                        (_, Standing::Kept) => holder.in_the_way("held"),
                        (Some(info), _) => format!("{info} has it"),
                        (None, _) => "another client has it".to_owned(),
                    };
                    holder.clone().doubted(format!(
                        "{has_it} at {votes} of {all} members, and {majority} must grant it; {}",
                        self.missing(names)
                    ))
                }
                () => holder.clone().doubted(format!(
                    "several callers asked for it at one time, and the votes of the {all} members are split between them; ask \
                     again",
                )),
            });
        }
        if self.count(|ballot| matches!(ballot, Ballot::Counted { .. })) >= majority {
            return Err(LockError::not_executed(
                "the lock was taken away at its members while it was being granted; ask again",
            ));
        }
        // If fewer refuse for good, the others are still a majority once they answer: then it is not the settings.
        let refused = self.ballots.iter().flatten().filter_map(|ballot| match ballot {
            Ballot::Failed(error) if !error.is_transient() => Some(error),
            _ => None,
        });
        if let Some(error) = refused.clone().next().filter(|_| refused.count() > all - majority) {
            return Err(error.clone());
        }
        let could = match able {
            0 => "none".to_owned(),
            some => format!("only {some}"),
        };
        Err(LockError::not_executed(format!(
            "{majority} of {all} members must grant the lock, and {could} can; {}",
            self.missing(names),
        )))
    }

    /// Says which members cannot grant the lock, and what to do about them.
    fn missing(&self, names: &[&str]) -> String {
        let mut young = 0;
        let said = names.iter().zip(&self.ballots).filter_map(|(name, ballot)| match ballot {
            Some(Ballot::Failed(error)) => Some(format!("{name}: {error}")),
            Some(Ballot::Uncounted(left) | Ballot::Held { uncounted: Some(left), .. }) => {
                young += 1;
                Some(format!(
                    "{name} has begun with empty data and does not count for another {left:.0?}, because it may \
                     have granted a lock before",
                ))
            }
            None => Some(format!("{name} did not answer in time")),
            Some(Ballot::Counted { .. } | Ballot::Held { .. }) => None,
        });
        let said: Vec<String> = said.collect();
        let silent = (said.len() > young).then_some(
            "restart the members that do not answer, or correct their \
            addresses",
        );
        let young = (young > 0).then_some("wait, or run `lockctl quorum init` once if the quorum is new");
        let advice: Vec<&str> = silent.into_iter().chain(young).collect();
        format!("{} ({})", advice.join("; "), said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_testing::limit;

    use crate::round::Ballot;
    use crate::round::tests::{counted, failed, held, round};
    use lock_store::types::error::{LockError, LockErrorKind};
    use lock_store::types::owner::{Holder, OwnerId};

    fn somebody() -> Holder {
        let mut holder = Holder::foreign(None);
        holder.owner = Some(OwnerId::random());
        holder
    }

    #[test]
    #[limit]
    fn a_refusal_names_the_holder_or_what_the_members_said() {
        let names = ["a", "b", "c"];
        let doubt =
            |ballots: &[Ballot]| round(3, ballots).refusal(&names).unwrap().doubt.map(|doubt| doubt.to_string());
        let young = || Ballot::Held { holder: Holder::foreign(None), uncounted: Some(Duration::from_secs(9)) };
        let by = || Ballot::Held { holder: somebody(), uncounted: None };
        for (ballots, says) in [
            ([held(), held(), failed()], None),
            ([held(), held(), young()], None),
            (
                [counted(7), held(), failed()],
                Some("another client has it at 1 of 3 members, and 2 must grant it; restart"),
            ),
            ([held(), young(), young()], Some("has it at 3 of 3 members, and 2 must grant it; wait, or run")),
            ([counted(7), by(), by()], Some("the votes of the 3 members are split")),
            ([by(), by(), by()], Some("the votes of the 3 members are split")),
            ([by(), by(), young()], Some("at 1 of 3 members")),
        ] {
            let doubt = doubt(&ballots);
            let fits = doubt.as_ref().map_or(says.is_none(), |doubt| says.is_some_and(|says| doubt.contains(says)));
            assert!(fits, "{ballots:?}: {doubt:?}");
        }
        for (ballots, says) in [
            (vec![held(), failed(), failed()], "b: away; c: away"),
            (vec![held(), failed()], "b: away; c did not answer in time"),
            (
                vec![counted(7), Ballot::Uncounted(Duration::from_secs(9)), failed()],
                "only 1 can; restart the members that do not answer, or correct their addresses; wait, or run",
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
}
