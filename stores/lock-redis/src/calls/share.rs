//! The calls for claims that share a lock, besides taking and freeing it.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use redis::{Pipeline, Value};

use crate::RedisStore;
use crate::calls::run::Operation;
use crate::server::node::{Node, Way};
use crate::protocol::steps::ReadHolder;
use crate::protocol::steps::share::{self, ListSharers, RenewShared, ToShared};
use crate::protocol::steps::step::{READ_WITHIN, Step as _};
use crate::batch::coalesce::Coalescer;
use lock_store::contract::backend::{Claim, Renewal, SharedClaims};
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;
use lock_store::types::owner::Holder;

/// Makes an exclusive claim one that shares its lock.
struct Downgrade<'a>(&'a Claim, FencingToken);

impl Operation for Downgrade<'_> {
    type Answer = Renewal;

    fn lock(&self) -> &LockKey {
        &self.0.key
    }

    fn within(&self) -> Duration {
        command_timeout(self.0.ttl)
    }

    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<Renewal>> + Send {
        node.downgrade(self.0, self.1, way)
    }
}

/// Lists everybody who has a lock.
struct ListHolders<'a>(&'a LockKey);

impl Operation for ListHolders<'_> {
    type Answer = Vec<Holder>;

    fn lock(&self) -> &LockKey {
        self.0
    }

    fn within(&self) -> Duration {
        READ_WITHIN
    }

    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<Vec<Holder>>> + Send {
        node.list_holders(self.0, way)
    }
}

impl SharedClaims for RedisStore {
    async fn downgrade(&self, claim: &Claim, token: FencingToken) -> Result<Renewal> {
        self.run(Downgrade(claim, token)).await
    }

    async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        self.run(ListHolders(key)).await
    }
}

impl Node {
    /// Renews a claim that shares a lock.
    pub(crate) async fn renew_shared(&self, claim: &Claim, way: Way) -> Result<Renewal> {
        let (renewal, connection) = self.step(&RenewShared(claim), way).await?;
        self.counted(RenewShared::OP, renewal, claim, &connection).await
    }

    /// A renewal or a downgrade counts once it has arrived wherever the claim wants it, and a loss if no replica tells of it.
    async fn counted(&self, op: &str, renewal: Renewal, claim: &Claim, connection: &Coalescer) -> Result<Renewal> {
        if renewal == Renewal::Lost {
            self.check_master(&connection.link, op).await?;
        } else {
            self.confirm(&connection.link, claim, command_timeout(claim.ttl)).await?;
        }
        Ok(renewal)
    }

    /// Renews claims: those that share their locks at one time, beside all others. Most share nothing.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        if !claims.iter().any(|claim| claim.mode.is_shared()) {
            return self.renew_alone(claims).await;
        }
        Box::pin(self.renew_beside(claims)).await
    }

    async fn renew_beside(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let alone: Vec<Claim> = claims.iter().filter(|claim| !claim.mode.is_shared()).cloned().collect();
        let sharing =
            claims.iter().filter(|claim| claim.mode.is_shared()).map(|claim| self.renew_shared(claim, Way::default()));
        let (alone, mut sharing) = tokio::join!(self.renew_alone(&alone), all(sharing));
        let shared: Vec<&Claim> = claims.iter().filter(|claim| claim.mode.is_shared()).collect();
        self.track(&shared, &mut sharing).await;
        let (mut alone, mut sharing) = (alone.into_iter(), sharing.into_iter());
        let answer = |claim: &Claim| if claim.mode.is_shared() { sharing.next() } else { alone.next() };
        claims.iter().map(answer).map(|answer| answer.unwrap_or_else(|| Err(self.unreadable("renew")))).collect()
    }

    /// Has the server report the next change to locks that are shared. Renewals do not do this: their script reads the queue too,
    /// and runs on another connection. The current value will be watched, so a claim is renewed once more
    /// if that is not its phase.
    async fn track(&self, claims: &[&Claim], answers: &mut [Result<Renewal>]) {
        let Some(listener) = self.listeners.current() else { return };
        let mut message = Pipeline::with_capacity(claims.len());
        for claim in claims {
            message.cmd("GETRANGE").arg(claim.key.as_str()).arg(0).arg(543);
        }
        let unanswered = listener.unanswered();
        let Ok(values) = listener.link.send_all(&message).await else { return };
        unanswered.answered();
        for ((claim, answer), value) in claims.iter().zip(answers).zip(&values) {
            if matches!(answer, Ok(Renewal::Renewed | Renewal::Wanted))
                && matches!(value, Value::BulkString(value) if !share::may_hold(value, claim))
            {
                *answer = self.renew_shared(claim, Way::default()).await;
            }
        }
    }

    /// Makes an exclusive claim one that shares its lock.
    async fn downgrade(&self, claim: &Claim, token: FencingToken, way: Way) -> Result<Renewal> {
        let (renewal, connection) = self.step(&ToShared(claim, token), way).await?;
        self.counted(ToShared::OP, renewal, claim, &connection).await
    }

    /// Lists everybody who has a lock.
    async fn list_holders(&self, key: &LockKey, way: Way) -> Result<Vec<Holder>> {
        let (mut sharers, mut count) = (Vec::new(), 0);
        loop {
            let ((some, listed), _) = self.step(&ListSharers(key, count), way).await?;
            sharers.extend(some);
            count += listed;
            // The claims at the end of the list are the ones whose leases have ended.
            if listed < share::PAGE || some_ended(&sharers, count) {
                break;
            }
        }
        if sharers.is_empty() {
            Ok(self.step(&ReadHolder(key), way).await?.0.into_iter().collect())
        } else {
            Ok(sharers)
        }
    }
}

/// Returns whether some of those who were listed hold nothing any more.
fn some_ended(sharers: &[Holder], listed: usize) -> bool {
    sharers.len() < listed
}

/// Awaits all of some calls, which leave together.
pub(crate) async fn all<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.map(|call| (Box::pin(call), None)).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (call, answer) in calls.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match call.as_mut().poll(cx) {
                Poll::Ready(done) => *answer = Some(done),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}
