//! From a request to a token that a majority gave: one round of votes, or two.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::{AcquireRequest, Attempt, Claim, Release, Vote};
use crate::clock::{Timestamp, deadline_of};
use crate::error::{LockError, Result};
use crate::fencing::FencingToken;
use crate::quorum::ask::Asked;
use crate::quorum::look;
use crate::quorum::release::free;
use crate::quorum::round::{Ballot, Round, State};
use crate::quorum::run::Rest;
use crate::quorum::session::Session;
use crate::quorum::shared::{Shared, patience};

/// Asks every member for the lock. Enters with a token that a majority gave, or that a second round raised a
/// majority above; otherwise gives back what it got.
pub(super) async fn acquire(shared: Arc<Shared>, request: AcquireRequest) -> (Result<Attempt>, Rest) {
    let claim = request.claim.clone();
    if let Some(until) = shared.turns.pauses_until(&claim.key) {
        shared.clock().sleep_until(until).await;
    }
    look::lists(&shared, patience(claim.ttl)).await;
    let begun = shared.clock().now();
    if let Err(error) = shared.admit(claim.ttl) {
        return (Err(error.with_key(&claim.key)), Rest::nothing());
    }
    let session = shared.sessions.begin(claim.owner, &request.info, shared.members.len());
    let mut vote = request;
    // Members queue nobody, and one that gave a partial grant back may still know of it.
    (vote.ticket, vote.repeated) = (None, true);
    vote.execute_within = patience(claim.ttl).min(vote.execute_within);
    let newest = FencingToken::new(shared.newest.load(Ordering::Relaxed));
    vote.floor = shared.time.proposal(begun).max(newest).max(vote.floor);
    let mut raised = None;
    loop {
        shared.rounds.count(raised.is_some());
        let (round, asked) = shared.poll(&session, &vote).await;
        let token = match round.state() {
            State::Won { token, agreed } if agreed || raised.is_some() => raised.unwrap_or(token),
            State::Won { token, .. } => {
                // Members gave different tokens. The greatest is good once a majority gives none below it any more.
                (raised, vote.floor) = (Some(token), token);
                continue;
            }
            State::Open | State::Lost => {
                let refusal = round.refusal(&shared.names());
                let attempt = refusal.map(|holder| Attempt::Held { holder });
                return give_up(shared, claim, &session, &round, attempt).await;
            }
        };
        let (now, deadline) = (shared.clock().now(), deadline_of(begun, claim.ttl));
        if now >= deadline {
            let late = LockError::not_executed("the members took longer to grant the lock than its lease lasts");
            return give_up(shared, claim, &session, &round, Err(late)).await;
        }
        // A member may have become known by its vote.
        if let Err(error) = shared.admit_list() {
            return give_up(shared, claim.clone(), &session, &round, Err(error.with_key(&claim.key))).await;
        }
        shared.newest.fetch_max(token.get(), Ordering::Relaxed);
        session.raise(Some(token), deadline);
        shared.turns.granted(&claim.key, now);
        return (Ok(Attempt::Granted { token }), Rest::new(gather(shared, session, vote.execute_within, asked)));
    }
}

/// Gives back what some members granted, and answers when they have confirmed it, or have had the time to.
async fn give_up(
    shared: Arc<Shared>,
    claim: Claim,
    session: &Session,
    round: &Round,
    attempt: Result<Attempt>,
) -> (Result<Attempt>, Rest) {
    shared.sessions.end(claim.owner);
    let may_have = |member| match round.ballot(member) {
        Some(Ballot::Held(_)) => false,
        Some(Ballot::Failed(error)) => error.is_ambiguous(),
        Some(Ballot::Counted(_) | Ballot::Uncounted(_)) | None => true,
    };
    let members: Vec<bool> = (0..shared.members.len()).map(may_have).collect();
    let attempt = attempt.map_err(|error| error.with_key(&claim.key));
    if !members.contains(&true) {
        return (attempt, Rest::nothing());
    }
    let (_, rest) = free(shared, Release::new(claim), &members, &session.unsettled(), |_| None).await;
    (attempt, rest)
}

/// Waits for the members that had not voted when the majority was there, unless the claim ends before.
async fn gather(shared: Arc<Shared>, session: Arc<Session>, within: Duration, mut asked: Asked<Result<Vote>>) {
    let sent = shared.clock().now();
    let work = async {
        while let Some((member, answer)) = asked.next().await {
            shared.ballot(&session, member, sent, answer);
        }
    };
    tokio::select! {
        () = work => {}
        () = session.ended() => {}
        () = shared.clock().sleep_until(sent.after(within)) => {}
    }
}

impl Shared {
    /// Asks all members at once, until a majority grants, all have voted, or one has had its time. After a defeat the
    /// other votes are waited for too: a grant that is known can be given back at once.
    async fn poll(self: &Arc<Self>, session: &Session, vote: &AcquireRequest) -> (Round, Asked<Result<Vote>>) {
        let (owner, within) = (vote.claim.owner, vote.execute_within);
        let sent = self.clock().now();
        let mut round = Round::new(self.members.len(), self.list.majority);
        let mut asked = Asked::of((0..self.members.len()).map(|member| {
            if self.sessions.is_releasing(owner, member) {
                let error = LockError::not_executed("an earlier release of this claim is still unanswered");
                round.cast(member, Ballot::Failed(error));
                return None;
            }
            // It counts from when the member's store is asked, at the latest when we stop waiting.
            session.sent(member, sent.after(within * 2));
            let (shared, vote) = (Arc::clone(self), vote.clone());
            Some(Box::pin(async move {
                shared.members[member].join(&shared.list).await?;
                shared.members[member].backend().vote_dyn(vote).await
            }) as _)
        }));
        let mut limit = pin!(self.clock().sleep_until(sent.after(within)));
        while !matches!(round.state(), State::Won { .. }) && !round.is_complete() {
            tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Some((member, answer)) => round.cast(member, self.ballot(session, member, sent, answer)),
                    None => break,
                },
                () = &mut limit => break,
            }
        }
        (round, asked)
    }

    /// Reads the answer of a member.
    fn ballot(&self, session: &Session, member: usize, sent: Timestamp, answer: Result<Vote>) -> Ballot {
        if answer.as_ref().map_or_else(|error| !error.is_ambiguous(), |_| true) {
            session.answered(member);
        }
        let (health, now) = (&self.members[member].health, self.clock().now());
        health.answered(answer.is_ok());
        match answer {
            Ok(Vote::Granted { token, history, time }) => {
                if let Some(ms) = time {
                    self.time.observe(ms, sent, now);
                }
                let excluded = history.and_then(|history| self.excluded_for(history));
                health.excluded_until(now.after(excluded.unwrap_or_default()));
                match excluded {
                    Some(left) => Ballot::Uncounted(left),
                    None => Ballot::Counted(token),
                }
            }
            Ok(Vote::Held { holder }) => Ballot::Held(holder),
            Err(error) => Ballot::Failed(error),
        }
    }
}
