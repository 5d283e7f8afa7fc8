//! The end of a claim: every member is told, also those that seemed to fail.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Claim, Freed, Release};
use crate::clock::{Timestamp, jitter};
use crate::error::{LockError, Result};
use crate::quorum::ask::Asked;
use crate::quorum::round;
use crate::quorum::run::Rest;
use crate::quorum::session::Releasing;
use crate::quorum::shared::{Shared, patience};

/// The answers so far, by member.
type Answers = Vec<Option<Result<Freed>>>;

/// How long a release that was not answered may still be executed: longer than a silent connection is kept.
const LINGERS: Duration = Duration::from_secs(15);

/// The bounds of the pause before a release is repeated.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Releases a claim at every member. Answers when a majority has.
pub(super) async fn release(shared: Arc<Shared>, release: Release) -> (Result<Freed>, Rest) {
    let all = vec![true; shared.members.len()];
    let claim = release.claim.clone();
    shared.turns.released(&claim.key, shared.clock().now());
    let unsettled = shared.sessions.end(claim.owner).map_or_else(|| vec![BEFORE; all.len()], |known| known.unsettled());
    let majority = shared.list.majority;
    let (answers, rest) =
        free(Arc::clone(&shared), release, &all, &unsettled, |answers| round::release(answers, majority)).await;
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

/// Frees a claim at some of the members. Waits until the answers decide, all have come, or the members have had their
/// time. The rest repeats what was not answered.
pub(super) async fn free(
    shared: Arc<Shared>,
    release: Release,
    members: &[bool],
    unsettled: &[Timestamp],
    decide: impl Fn(&[Option<Result<Freed>>]) -> Option<Freed>,
) -> (Answers, Rest) {
    let sent = shared.clock().now();
    let mut ending = Ending {
        keep_until: sent.after(release.keep_for),
        answers: vec![None; members.len()],
        outstanding: members.to_vec(),
        unanswered: members.to_vec(),
        lingers: vec![false; members.len()],
        unsettled: unsettled.to_vec(),
        guards: members.iter().map(|_| None).collect(),
        release,
        shared,
    };
    let owner = ending.release.claim.owner;
    for member in (0..members.len()).filter(|member| members[*member]) {
        ending.guards[member] = Some(ending.shared.sessions.releasing(owner, member));
    }
    let mut asked = ending.ask();
    let clock = ending.shared.clock().clone();
    let mut limit = pin!(clock.sleep_until(sent.after(patience(ending.release.claim.ttl))));
    while decide(&ending.answers).is_none() {
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some((member, answer)) => ending.answered(member, sent, answer),
                None => break,
            },
            () = &mut limit => break,
        }
    }
    let answers = ending.answers.clone();
    (answers, if ending.is_done() { Rest::nothing() } else { Rest::new(ending.finish(asked, sent)) })
}

/// Before every moment.
const BEFORE: Timestamp = Timestamp::from_nanos(0);

/// A release on its way to the members.
struct Ending {
    shared: Arc<Shared>,
    release: Release,
    keep_until: Timestamp,
    answers: Answers,
    /// Which members must still be told.
    outstanding: Vec<bool>,
    /// Until when each may execute a vote that was not answered.
    unsettled: Vec<Timestamp>,
    /// Which members have not answered the last try.
    unanswered: Vec<bool>,
    /// Which members have not answered some try, and may still execute it.
    lingers: Vec<bool>,
    /// Keep the members from being asked for the lock of the claim, until the release is answered.
    guards: Vec<Option<Releasing>>,
}

impl Ending {
    /// Sends the release to those that must still be told.
    fn ask(&self) -> Asked<Result<Freed>> {
        let mut release = self.release.clone();
        release.keep_for = self.keep_until.since(self.shared.clock().now());
        Asked::of(self.outstanding.iter().enumerate().map(|(member, wanted)| {
            let backend = self.shared.members[member].backend();
            wanted.then(|| backend.release_dyn(release.clone()))
        }))
    }

    fn answered(&mut self, member: usize, sent: Timestamp, answer: Result<Freed>) {
        if answer.is_ok() {
            // A vote that is executed behind the release takes the lock again.
            self.outstanding[member] = sent < self.unsettled[member];
            if !self.outstanding[member] && !self.lingers[member] {
                self.guards[member] = None;
            }
        }
        self.unanswered[member] = answer.as_ref().is_err_and(LockError::is_ambiguous);
        if !matches!(self.answers[member], Some(Ok(_))) {
            self.answers[member] = Some(answer);
        }
    }

    fn is_done(&self) -> bool {
        !self.outstanding.contains(&true)
    }

    /// Repeats the release until every member has answered, or its lease has run out there.
    async fn finish(mut self, mut asked: Asked<Result<Freed>>, mut sent: Timestamp) {
        let clock = self.shared.clock().clone();
        let begun = sent;
        let give_up_at = begun.after(self.release.claim.ttl);
        loop {
            let work = async {
                while let Some((member, answer)) = asked.next().await {
                    self.answered(member, sent, answer);
                }
            };
            tokio::select! {
                () = work => {}
                () = clock.sleep_until(sent.after(Duration::from_secs(1))) => {}
            }
            let now = clock.now();
            if self.is_done() || now >= give_up_at {
                break;
            }
            let settled = self.unsettled.iter().zip(&self.outstanding).filter(|(_, wanted)| **wanted);
            let settled_at = settled.map(|(until, _)| *until).max().unwrap_or(now);
            clock.sleep_until(now.after(jitter(PAUSE.0, PAUSE.1)).max(settled_at)).await;
            for member in 0..self.lingers.len() {
                self.lingers[member] |= self.unanswered[member];
                self.unanswered[member] = self.outstanding[member];
            }
            sent = clock.now();
            asked = self.ask();
        }
        if self.guards.iter().any(Option::is_some) {
            clock.sleep_until(begun.after(LINGERS)).await;
        }
    }
}
