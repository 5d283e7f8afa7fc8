//! The end of a claim: every member that may have it is asked to free it, also members whose votes seemed to fail.

use std::sync::Arc;
use std::time::Duration;

use crate::members::owed::{Debt, Owed};
use crate::round;
use crate::round::ask::PendingAnswers;
use crate::run::Rest;
use crate::session::{Releasing, Votes};
use crate::shared::{Shared, patience};
use lock_store::contract::backend::{Claim, Freed, Release};
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::Timestamp;

/// The answers so far, by member.
type Answers = Vec<Option<Result<Freed>>>;

/// How much longer a late member may take before the release is sent to it again, as a debt.
const LATE: Duration = Duration::from_secs(1);

/// How long a shutdown waits for late members, and how often it checks.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Shared {
    /// Waits until every member that answers knows of the claims that have ended. At a member that does not
    /// answer, they end with their leases.
    pub(super) async fn settled(&self) {
        let clock = self.clock();
        let until = clock.now().after(SETTLED_WITHIN);
        while clock.now() < until && !self.is_settled() {
            clock.sleep_until(clock.now().after(LOOK_AGAIN)).await;
        }
    }

    fn is_settled(&self) -> bool {
        // The releases are counted first. A release that becomes a lingering one in between then counts as sent, which is
        // true. In the other order, a lingering release that ends in between would hide an unsent release.
        let all_told = |at, owed: &Owed| self.sessions.releases_at(at) <= owed.lingering();
        self.members.iter().enumerate().all(|(at, member)| member.owed.is_resting() || all_told(at, &member.owed))
    }
}

/// Releases a claim at every member. Answers when a majority has.
pub(super) async fn release(shared: Arc<Shared>, release: Release) -> (Result<Freed>, Rest) {
    let claim = release.claim.clone();
    shared.turns.released(&claim.key, shared.clock().now());
    let known = shared.sessions.end(claim.owner).map(|session| session.votes());
    let votes = known.unwrap_or_else(|| vec![Votes::FORGOTTEN; shared.members.len()]);
    let (majority, within) = (shared.list.majority, patience(claim.ttl));
    let decide = |answers: &[_]| round::release(answers, majority);
    let (answers, rest) = free(Arc::clone(&shared), release, &votes, within, decide).await;
    let freed = round::release(&answers, majority).ok_or_else(|| undecided(&shared, &claim, "released", &answers));
    (freed, rest)
}

/// The error of a round in which too few members answered.
pub(super) fn undecided<T>(shared: &Shared, claim: &Claim, done: &str, answers: &[Option<Result<T>>]) -> LockError {
    let said = shared.members.iter().zip(answers).filter_map(|(member, answer)| match answer {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(format!("{}: {error}", member.name)),
        None => Some(format!("{} did not answer in time", member.name)),
    });
    let said: Vec<String> = said.collect();
    let (all, majority) = (answers.len(), shared.list.majority);
    let text = format!(
        "it is unknown whether {majority} of {all} members {done} the lock; bring them back ({})",
        said.join("; ")
    );
    LockError::unavailable(text).with_key(&claim.key)
}

/// Frees a claim at the members that may have it. Waits until the answers decide, all have come, or the time is over. The
/// members that have not answered are owed the release: the rest that is returned sends it.
pub(super) async fn free(
    shared: Arc<Shared>,
    release: Release,
    votes: &[Votes],
    within: Duration,
    decide: impl Fn(&[Option<Result<Freed>>]) -> Option<Freed>,
) -> (Answers, Rest) {
    let clock = shared.clock().clone();
    let sent = clock.now();
    let resting = shared.resting();
    let mut asked = PendingAnswers::of((0..votes.len()).map(|member| {
        let backend = shared.members[member].backend();
        (votes[member].may_have && !resting[member]).then(|| backend.release(release.clone()))
    }));
    let mut ending = ReleaseUnderWay {
        keep_until: sent.after(release.keep_for),
        answers: vec![None; votes.len()],
        guards: votes.iter().map(|_| None).collect(),
        is_owed: votes.iter().map(|votes| votes.may_have).collect(),
        tried: votes.iter().zip(&resting).map(|(votes, rests)| votes.may_have && !rests).collect(),
        votes: votes.to_vec(),
        sent,
        release,
        shared,
    };
    for (member, votes) in votes.iter().enumerate() {
        if votes.may_have {
            let owner = ending.release.claim.owner;
            ending.guards[member] = Some(ending.shared.sessions.releasing(owner, member));
        } else {
            ending.answers[member] = Some(Ok(Freed::NotHeld));
        }
    }
    let is_decided = |ending: &ReleaseUnderWay| decide(&ending.answers).is_some();
    asked.fill(&clock, sent.after(within), &mut ending, is_decided, ReleaseUnderWay::answered).await;
    let answers = ending.answers.clone();
    (answers, if ending.is_done() { Rest::nothing() } else { Rest::new(ending.finish(asked)) })
}

/// A release on its way to the members.
struct ReleaseUnderWay {
    shared: Arc<Shared>,
    release: Release,
    sent: Timestamp,
    keep_until: Timestamp,
    answers: Answers,
    votes: Vec<Votes>,
    /// Which members must still be told.
    is_owed: Vec<bool>,
    /// Which members have not answered, and may still execute what was sent.
    tried: Vec<bool>,
    /// Keep the members from being asked for the lock of the claim, until the release is answered.
    guards: Vec<Option<Releasing>>,
}

impl ReleaseUnderWay {
    fn answered(&mut self, member: usize, answer: Result<Freed>) {
        if answer.is_ok() {
            // A vote that this member may still execute would take the lock again behind the release: another one is due.
            self.is_owed[member] = self.sent < self.votes[member].unsettled;
            if !self.is_owed[member] {
                self.guards[member] = None;
            }
        }
        self.tried[member] = answer.as_ref().is_err_and(LockError::is_ambiguous);
        self.answers[member] = Some(answer);
    }

    fn is_done(&self) -> bool {
        !self.is_owed.contains(&true)
    }

    /// Waits for the members that are late, and has the others told again.
    async fn finish(mut self, mut asked: PendingAnswers<Result<Freed>>) {
        let clock = self.shared.clock().clone();
        asked.fill(&clock, self.sent.after(LATE), &mut self, |_| false, Self::answered).await;
        let mut work = Vec::new();
        for (member, at) in self.shared.members.iter().enumerate() {
            let debt = Debt {
                release: self.release.clone(),
                keep_until: self.keep_until,
                ends: self.sent.after(self.release.claim.ttl),
                unsettled: self.votes[member].unsettled,
                lingers: self.tried[member].then_some(self.sent),
                guard: self.guards[member].take(),
            };
            if self.is_owed[member] && at.owed.add(debt) {
                work.push(Some(Box::pin(Arc::clone(&at.owed).settle(at.backend(), clock.clone())) as _));
            }
        }
        drop(self);
        let mut work = PendingAnswers::of(work.into_iter());
        while work.next().await.is_some() {}
    }
}
