//! From a request to a token that a majority gave: one round of votes, or two.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::queries;
use crate::release::free;
use crate::round::ask::PendingAnswers;
use crate::round::{Ballot, Round, Tally};
use crate::run::Rest;
use crate::session::{Sent, Session};
use crate::shared::{Shared, patience};
use lock_store::contract::backend::{AcquireRequest, Attempt, Claim, Release, Vote};
use lock_store::types::error::{LockError, Result};
use lock_store::types::fencing::FencingToken;
use lock_store::types::system::clock::{Timestamp, deadline_of};

/// A vote, and what was known of the member before it was sent.
type MemberAnswer = (Sent, Result<Vote>);

/// Asks every member for the lock. Grants it with a token that a majority gave. If the members gave different tokens, a
/// second round raises a majority of them to one token. Otherwise this gives back what some members granted. All of it
/// happens within the time that the request has.
pub(super) async fn acquire(shared: Arc<Shared>, request: AcquireRequest) -> (Result<Attempt>, Rest) {
    let claim = request.claim.clone();
    let budget = Budget::of(&shared, &request);
    if let Some(until) = shared.turns.pauses_until(&claim.key) {
        shared.clock().sleep_until(until.min(budget.half())).await;
    }
    queries::lists(&shared, budget.next()).await;
    let begun = shared.clock().now();
    if let Err(error) = shared.admit(claim.ttl) {
        return (Err(error.with_key(&claim.key)), Rest::nothing());
    }
    let session = shared.sessions.begin(claim.owner, &request.info, shared.members.len());
    let mut vote = request;
    // Members have no queue. They are asked as if for a repeat: an earlier try of this claim, which failed and was given
    // back, may still be known to one of them.
    (vote.ticket, vote.repeated) = (None, true);
    let newest = FencingToken::new(shared.newest.load(Ordering::Relaxed));
    vote.floor = shared.time.proposal(shared.list.majority, begun).max(newest).max(vote.floor);
    let mut round = Round::new(shared.members.len(), shared.list.majority);
    let mut is_second = false;
    loop {
        shared.rounds.count(is_second);
        vote.execute_within = budget.next();
        let asked = shared.poll(&session, &vote, &mut round).await;
        let token = match round.tally() {
            Tally::Won { token, agreed: true } => token,
            Tally::Won { token, .. } => {
                // Members gave different tokens. This one is good once a majority will never give a lower one.
                (round, vote.floor, is_second) = (round.second(token), token, true);
                continue;
            }
            Tally::Open | Tally::Lost => {
                let refusal = round.refusal(&shared.names());
                let attempt = refusal.map(|holder| Attempt::Held { holder });
                return give_up(shared, claim, &session, budget, attempt).await;
            }
        };
        let (now, deadline) = (shared.clock().now(), deadline_of(begun, claim.ttl));
        if now >= deadline {
            let late = LockError::not_executed("the members took longer to grant the lock than its lease lasts");
            return give_up(shared, claim, &session, budget, Err(late)).await;
        }
        // By its vote a member may have told which lists of members are in use, or that it is a copy of another.
        if let Err(error) = shared.admit_list() {
            return give_up(shared, claim.clone(), &session, budget, Err(error.with_key(&claim.key))).await;
        }
        shared.newest.fetch_max(token.get(), Ordering::Relaxed);
        session.raise(Some(token), deadline);
        shared.turns.granted(&claim.key, now);
        return (Ok(Attempt::Granted { token, lease: None }), Rest::new(gather(shared, session, vote, asked)));
    }
}

/// The time that a request has.
#[derive(Clone)]
struct Budget {
    shared: Arc<Shared>,
    begun: Timestamp,
    within: Duration,
    patience: Duration,
}

impl Budget {
    fn of(shared: &Arc<Shared>, request: &AcquireRequest) -> Self {
        let (begun, patience) = (shared.clock().now(), patience(request.claim.ttl));
        Self { shared: Arc::clone(shared), begun, within: request.execute_within, patience }
    }

    /// Returns when half of it is over.
    fn half(&self) -> Timestamp {
        self.begun.after(self.within / 2)
    }

    /// Returns how long the members may take for the next question: what is left must do for giving back.
    fn next(&self) -> Duration {
        (self.begun.after(self.within).since(self.shared.clock().now()) / 2).min(self.patience)
    }
}

/// Gives back what some members granted in any round, and answers when they have confirmed it, or have had the time to.
async fn give_up(
    shared: Arc<Shared>,
    claim: Claim,
    session: &Session,
    budget: Budget,
    attempt: Result<Attempt>,
) -> (Result<Attempt>, Rest) {
    shared.sessions.end(claim.owner);
    let attempt = attempt.map_err(|error| error.with_key(&claim.key));
    let votes = session.votes();
    if !votes.iter().any(|votes| votes.may_have) {
        return (attempt, Rest::nothing());
    }
    let (_, rest) = free(shared, Release::new(claim), &votes, budget.next(), |_| None).await;
    (attempt, rest)
}

/// Reads the votes of the members that were slower than the majority, unless the claim ends before.
async fn gather(
    shared: Arc<Shared>,
    session: Arc<Session>,
    vote: AcquireRequest,
    mut asked: PendingAnswers<MemberAnswer>,
) {
    let sent = shared.clock().now();
    let work = async {
        while let Some((member, answer)) = asked.next().await {
            shared.ballot(&session, &vote, member, sent, answer);
        }
    };
    tokio::select! {
        () = work => {}
        () = session.ended() => {}
        () = shared.clock().sleep_until(sent.after(vote.execute_within)) => {}
    }
}

impl Shared {
    /// Asks all members at once, and waits until a majority grants, all have voted, or the time for a vote is over. It
    /// waits for the other votes also when no majority can grant any more: a grant that is known can be given back at once.
    async fn poll(
        self: &Arc<Self>,
        session: &Session,
        vote: &AcquireRequest,
        round: &mut Round,
    ) -> PendingAnswers<MemberAnswer> {
        let (owner, within) = (vote.claim.owner, vote.execute_within);
        let sent = self.clock().now();
        let resting = self.resting();
        let mut asked = PendingAnswers::of((0..self.members.len()).map(|member| {
            let unasked = match () {
                () if self.sessions.is_releasing(owner, member) => "it has not answered since the attempt before",
                () if resting[member] => "it has not answered for a while, and is asked again in a moment",
                () => "",
            };
            if !unasked.is_empty() {
                round.cast(member, Ballot::Failed(LockError::not_executed(unasked)));
                return None;
            }
            // The member may execute the vote for `within` from when its store is asked. That is before we stop waiting,
            // which is `within` from now: so twice that at the latest.
            let mark = session.sent(member, sent.after(within * 2));
            let (shared, vote) = (Arc::clone(self), vote.clone());
            Some(Box::pin(async move {
                if let Err(error) = shared.members[member].join(&shared.list).await {
                    // Only joining was ambiguous: the member was not asked for the lock.
                    let ambiguous = error.is_ambiguous();
                    return (mark, Err(if ambiguous { LockError::not_executed(error.to_string()) } else { error }));
                }
                (mark, shared.members[member].backend().vote(vote).await)
            }) as _)
        }));
        let is_decided = |round: &Round| matches!(round.tally(), Tally::Won { .. }) || round.is_complete();
        let cast = |round: &mut Round, member, answer| {
            round.cast(member, self.ballot(session, vote, member, sent, answer));
        };
        asked.fill(self.clock(), sent.after(within), round, is_decided, cast).await;
        round.close();
        asked
    }

    /// Reads the answer of a member.
    fn ballot(
        &self,
        session: &Session,
        request: &AcquireRequest,
        member: usize,
        sent: Timestamp,
        (mark, answer): MemberAnswer,
    ) -> Ballot {
        match &answer {
            Ok(vote) => session.answered(member, matches!(vote, Vote::Granted { .. })),
            Err(error) if !error.is_ambiguous() => session.not_executed(member, mark),
            Err(_) => {}
        }
        let (health, now) = (&self.members[member].health, self.clock().now());
        health.answered(answer.is_ok());
        let uncounted = |history: Option<Duration>| {
            let excluded = |kept_for| history.and_then(|history| self.excluded_for(history, kept_for));
            health.excluded_until(now.after(excluded(Duration::ZERO).unwrap_or_default()));
            excluded(request.kept_for)
        };
        match answer {
            Ok(Vote::Granted { token, kept, history, time }) => {
                if let Some(ms) = time {
                    self.time.observe(member, ms, sent, now);
                }
                uncounted(history).map_or(Ballot::Counted { token, kept }, Ballot::Uncounted)
            }
            Ok(Vote::Held { holder, history }) => Ballot::Held { holder, uncounted: uncounted(history) },
            Err(error) => Ballot::Failed(error),
        }
    }
}
