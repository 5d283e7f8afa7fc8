//! Renewal at every member, and the claim given again to members that lost it.

use std::sync::Arc;

use crate::release::undecided;
use crate::round;
use crate::round::ask::PendingAnswers;
use crate::run::Rest;
use crate::session::Session;
use crate::shared::{Shared, patience};
use lock_store::contract::backend::{AcquireRequest, Claim, Renewal, Vote};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::options::command_timeout;
use lock_store::types::system::clock::{deadline_of, jitter};

/// By claim, the answers of the members.
type Answers = [Vec<Option<Result<Renewal>>>];

/// Renews claims at every member. A member that has lost a claim is given it again while its lease lasts, and counts as
/// one that renewed: it refuses everybody else, as if it had never lost the claim.
pub(super) async fn renew(shared: Arc<Shared>, claims: Vec<Claim>) -> (Vec<Result<Renewal>>, Rest) {
    let sent = shared.clock().now();
    let longest = claims.iter().map(|claim| claim.ttl).max().unwrap_or_default();
    if let Err(error) = shared.admit_ttl(longest) {
        return (claims.iter().map(|claim| Err(error.clone().with_key(&claim.key))).collect(), Rest::nothing());
    }
    let shortest = claims.iter().map(|claim| claim.ttl).min().unwrap_or_default();
    let sessions: Arc<[_]> = claims.iter().map(|claim| shared.sessions.get(claim.owner)).collect();
    let claims: Arc<[Claim]> = claims.into();
    let mut asked = PendingAnswers::of((0..shared.members.len()).map(|member| {
        let (shared, claims, sessions) = (Arc::clone(&shared), Arc::clone(&claims), Arc::clone(&sessions));
        Some(Box::pin(async move { renew_at(&shared, member, &claims, &sessions).await }) as _)
    }));
    let majority = shared.list.majority;
    let mut answers = vec![vec![None; shared.members.len()]; claims.len()];
    let clock = shared.clock().clone();
    let is_decided = |all: &Answers| all.iter().all(|answers| round::renewal(answers, majority).is_some());
    asked.fill(&clock, sent.after(patience(shortest)), &mut *answers, is_decided, fill_in).await;
    let decided = claims.iter().zip(&answers).zip(&*sessions).map(|((claim, answers), session)| {
        let renewal = round::renewal(answers, majority).ok_or_else(|| undecided(&shared, claim, "renewed", answers))?;
        if let (Renewal::Renewed, Some(session)) = (renewal, session) {
            session.raise(None, deadline_of(sent, claim.ttl));
        }
        Ok(renewal)
    });
    let decided = decided.collect();
    let until = sent.after(command_timeout(shortest));
    let rest = Rest::new(async move {
        asked.fill(&clock, until, &mut *answers, |_| false, fill_in).await;
        for (session, answers) in sessions.iter().zip(&answers) {
            if let Some(session) = session {
                session.renewed_by_all(answers.iter().all(|answer| *answer == Some(Ok(Renewal::Renewed))));
            }
        }
    });
    (decided, rest)
}

/// Notes what a member said of each claim.
fn fill_in(answers: &mut Answers, member: usize, said: Vec<Result<Renewal>>) {
    for (claim, answer) in answers.iter_mut().zip(said) {
        claim[member] = Some(answer);
    }
}

/// Renews claims at one member. If the member refused a claim, a renewal might lengthen the lease of the lock's present
/// holder. So the claim is not renewed there, but requested.
async fn renew_at(
    shared: &Arc<Shared>,
    member: usize,
    claims: &[Claim],
    sessions: &[Option<Arc<Session>>],
) -> Vec<Result<Renewal>> {
    let may_have = |session: &Option<Arc<Session>>| session.as_ref().is_none_or(|session| session.may_have(member));
    let there: Vec<bool> = sessions.iter().map(may_have).collect();
    let leases: Vec<Claim> =
        claims.iter().zip(&there).filter(|(_, there)| **there).map(|(claim, _)| claim.clone()).collect();
    let answers = if leases.is_empty() { Vec::new() } else { shared.members[member].backend().renew(leases).await };
    let mut answers = answers.into_iter();
    let missing = || Err(LockError::unavailable("the store answered for fewer leases than asked"));
    let mut answers: Vec<Result<Renewal>> = there
        .into_iter()
        .map(|there| if there { answers.next().unwrap_or_else(missing) } else { Ok(Renewal::Lost) })
        .collect();
    let mut repairs = PendingAnswers::of(answers.iter().zip(claims).zip(sessions).map(|((answer, claim), session)| {
        let session = session.clone().filter(|_| *answer == Ok(Renewal::Lost))?;
        let token = session.live(shared.clock().now())?;
        let (shared, claim) = (Arc::clone(shared), claim.clone());
        Some(Box::pin(async move { repair(&shared, member, claim, &session, token).await }) as _)
    }));
    while let Some((place, answer)) = repairs.next().await {
        answers[place] = answer;
    }
    answers
}

/// How often a member is asked again while it says that somebody else has the lock.
const TRIES: u32 = 4;

/// Gives a member a claim again.
async fn repair(
    shared: &Shared,
    member: usize,
    claim: Claim,
    session: &Session,
    token: FencingToken,
) -> Result<Renewal> {
    let within = patience(claim.ttl);
    let sent = shared.clock().now();
    let (at, key) = (&shared.members[member], claim.key.clone());
    let mut request = AcquireRequest::new(claim, session.info.clone());
    request.repeated = true;
    request.execute_within = within;
    // The least floor with which the member's next grant still exceeds our token.
    request.floor = FencingToken::new(token.get().saturating_sub(1));
    let mut tries = 0;
    loop {
        let mark = session.sent(member, sent.after(within));
        let answer = tokio::select! {
            biased;
            () = session.ended() => return Ok(Renewal::Lost),
            answer = at.backend().vote(request.clone()) => answer,
            () = shared.clock().sleep_until(sent.after(within)) => {
                return Err(LockError::unavailable(format!("{} did not answer within {within:?}", at.name)));
            }
        };
        match answer {
            Ok(Vote::Granted { .. }) => {
                session.answered(member, true);
                at.health.repaired();
                tracing::info!(%key, member = &*at.name, "a member had lost this lock, and has it again");
                return Ok(Renewal::Renewed);
            }
            Ok(Vote::Held { .. }) => session.answered(member, false),
            Err(error) => {
                if !error.is_ambiguous() {
                    session.not_executed(member, mark);
                }
                return Err(error);
            }
        }
        // Another process that asks for the lock may have this member for a moment. It gets no majority, and gives it back.
        tries += 1;
        if tries == TRIES {
            return Ok(Renewal::Lost);
        }
        shared.clock().sleep_until(shared.clock().now().after(jitter(within / 20, within / 10))).await;
    }
}
