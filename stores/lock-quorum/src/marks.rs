//! Marks of what is done: written by a majority, and read from one.

use std::sync::Arc;
use std::time::Duration;

use crate::queries::{asked, collect, named};
use crate::round::decided;
use crate::run::Rest;
use crate::shared::Shared;
use lock_store::contract::backend::{Claim, DoneMark, JobVersion};
use lock_store::types::error::{LockError, Result};
use lock_store::types::key::LockKey;

/// How long members may take to answer.
const WITHIN: Duration = Duration::from_secs(1);

/// How much longer those may take that are not waited for.
const LATE: Duration = Duration::from_secs(1);

/// Asks the members for a mark. One member that has it is enough, because only a successful run leaves it. A majority must say that
/// the mark is missing, because every written mark is at one of its members at least.
pub(super) async fn done(shared: Arc<Shared>, key: LockKey, version: JobVersion) -> (Result<Option<DoneMark>>, Rest) {
    let majority = shared.list.majority;
    let ask = |member: usize| Some(shared.members[member].backend().done(key.clone(), version.clone()));
    let (answers, _) = asked(&shared, WITHIN, ask, |answers| read(answers, majority).is_some()).await;
    let mark =
        read(&answers, majority).unwrap_or_else(|| Err(undecided(&shared, &key, "say whether it is done", answers)));
    (mark, Rest::nothing())
}

/// Says what the answers amount to: `None` while more of them may decide.
fn read(answers: &[Option<Result<Option<DoneMark>>>], majority: usize) -> Option<Result<Option<DoneMark>>> {
    let known = || answers.iter().flatten().flatten();
    if let Some(mark) = known().flatten().max_by_key(|mark| mark.ago) {
        return Some(Ok(Some(mark.clone())));
    }
    (known().count() >= majority).then_some(Ok(None))
}

/// Has the members write a mark, each if the claim has its lock there.
pub(super) async fn mark(
    shared: Arc<Shared>,
    claim: Claim,
    version: JobVersion,
    keep: Option<Duration>,
) -> (Result<bool>, Rest) {
    let majority = shared.list.majority;
    let ask = |member: usize| Some(shared.members[member].backend().mark_done(claim.clone(), version.clone(), keep));
    let (answers, late) = asked(&shared, WITHIN, ask, |answers| written(answers, majority).is_some()).await;
    let marked = written(&answers, majority)
        .ok_or_else(|| undecided(&shared, &claim.key, "have written that it is done", answers.clone()));
    let clock = shared.clock().clone();
    // The other members have it too if they can. A member that loses its data then costs nothing.
    let rest = Rest::new(async move {
        let (mut late, mut answers) = (late, answers);
        collect(&clock, LATE, &mut late, &mut answers, |_| false).await;
    });
    (marked, rest)
}

fn written(answers: &[Option<Result<bool>>], majority: usize) -> Option<bool> {
    decided(answers, majority, [true, false])
}

/// Has every member remove a mark: one that kept it would still say that it is done.
pub(super) async fn forget(shared: Arc<Shared>, key: LockKey, version: JobVersion) -> (Result<bool>, Rest) {
    let ask = |member: usize| Some(shared.members[member].backend().forget_done(key.clone(), version.clone()));
    let (answers, _) = asked(&shared, WITHIN, ask, |_| false).await;
    let all: Option<Vec<bool>> = answers.iter().map(|answer| answer.as_ref()?.as_ref().ok().copied()).collect();
    let forgotten = match all {
        Some(all) => Ok(all.contains(&true)),
        None => Err(undecided(&shared, &key, "have forgotten that it is done, and all must", answers)),
    };
    (forgotten, Rest::nothing())
}

/// The error of a round in which too few members answered.
fn undecided<T>(shared: &Shared, key: &LockKey, what: &str, answers: Vec<Option<Result<T>>>) -> LockError {
    let (all, majority) = (answers.len(), shared.list.majority);
    let says = format!("too few of {all} members {what}, of which {majority} are a majority; bring them back");
    named(shared, answers).undecided(&says).with_key(key)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_testing::limit;

    use super::{read, written};
    use lock_store::contract::backend::{DoneMark, JobVersion};
    use lock_store::types::error::LockError;
    use lock_store::types::owner::HolderInfo;

    #[test]
    #[limit]
    fn one_mark_is_done_and_only_a_majority_without_is_not() {
        let mark = || DoneMark::new(JobVersion::new("v").unwrap(), HolderInfo::new("h", 1, "s"), Duration::ZERO);
        let (yes, no) = (|| Some(Ok(Some(mark()))), || Some(Ok(None)));
        let error = || Some(Err(LockError::unavailable("away")));
        assert_eq!(read(&[yes(), None, None], 2), Some(Ok(Some(mark()))));
        assert_eq!(read(&[no(), no(), yes()], 2), Some(Ok(Some(mark()))), "it was left by a run that succeeded");
        assert_eq!(read(&[no(), None, no()], 2), Some(Ok(None)));
        assert_eq!(read(&[no(), None, None], 2), None);
        assert_eq!(read(&[no(), error(), error()], 2), None, "an error says nothing");
        let (yes, no) = (|| Some(Ok(true)), || Some(Ok(false)));
        let error = || Some(Err(LockError::unavailable("away")));
        assert_eq!(written(&[yes(), yes(), None], 2), Some(true));
        assert_eq!(written(&[yes(), no(), None], 2), None);
        assert_eq!(written(&[no(), error(), no()], 2), Some(false));
        assert_eq!(written(&[no(), error(), yes()], 2), None);
    }
}
