//! What the store does for claims that share a lock, besides taking and freeing it.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use redis::{Pipeline, Value};

use crate::contract::backend::{Claim, Renewal};
use crate::stores::redis::calls::acquire::clock_of;
use crate::stores::redis::keys::Keys;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::steps::script::Eval;
use crate::stores::redis::steps::share;
use crate::stores::redis::wire::coalesce::{Coalescer, Flush};
use crate::stores::redis::wire::exchange::Answer;
use crate::types::error::Result;
use crate::types::fencing::FencingToken;
use crate::types::key::LockKey;
use crate::types::options::command_timeout;
use crate::types::owner::Holder;

impl Node {
    /// Renews a claim that shares a lock.
    pub(crate) async fn renew_shared(&self, claim: &Claim, way: Way) -> Result<Renewal> {
        let keys = self.keys_of(&claim.key)?;
        let (answer, connection) = self.share("renew", &keys, way, |clock| share::renew(&keys, clock, claim)).await?;
        self.read_raised("renew", &answer, claim, &connection).await
    }

    /// Reads the answer to a renewal or a downgrade, which counts once it has arrived wherever the claim wants it.
    async fn read_raised(&self, op: &str, answer: &Value, claim: &Claim, connection: &Coalescer) -> Result<Renewal> {
        let raised = share::renewed(answer).ok_or_else(|| self.unreadable(op))?;
        let raised = raised.map_err(|text| self.script_failed(op, &text).with_key(&claim.key))?;
        if raised == Renewal::Lost {
            self.check_master(&connection.link, op).await?;
        } else {
            self.confirm(&connection.link, claim, command_timeout(claim.ttl)).await?;
        }
        Ok(raised)
    }

    /// Renews claims: those that share their locks at one time, beside all others.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        if !claims.iter().any(|claim| claim.mode.is_shared()) {
            return self.renew_alone(claims).await;
        }
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

    /// Has the server report the next change to locks that are shared. Renewals do not: their script reads the queue too,
    /// and runs on another connection. Whatever lies there now is what will be watched, so a claim is renewed once more
    /// if that is not its phase.
    async fn track(&self, claims: &[&Claim], answers: &mut [Result<Renewal>]) {
        let Some(listener) = self.listeners.current() else { return };
        let mut message = Pipeline::with_capacity(claims.len());
        for claim in claims {
            message.cmd("GETRANGE").arg(claim.key.as_str()).arg(0).arg(511);
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
    pub(crate) async fn downgrade(&self, claim: &Claim, token: FencingToken, way: Way) -> Result<Renewal> {
        // No native renewal of before may lengthen what is then everybody's.
        self.renewals.end(claim.owner);
        self.settle(claim.owner).await?;
        self.renewals.forget(claim.owner);
        let keys = self.keys_of(&claim.key)?;
        let step = |clock: &str| share::downgrade(&keys, clock, claim, token);
        let (answer, connection) = self.share("downgrade", &keys, way, step).await?;
        self.read_raised("downgrade", &answer, claim, &connection).await
    }

    /// Lists everybody who has a lock.
    pub(crate) async fn read_holders(&self, key: &LockKey, way: Way) -> Result<Vec<Holder>> {
        let keys = self.keys_of(key)?;
        let op = "look at the holders";
        let (mut sharers, mut listed) = (Vec::new(), 0);
        loop {
            let (answer, _) = self.share(op, &keys, way, |clock| share::list(&keys, clock, listed)).await?;
            let (some, count) = share::listed(&answer).ok_or_else(|| self.unreadable(op))?;
            sharers.extend(some);
            listed += count;
            // Those at the end of the list are the ones whose leases are over.
            if count < share::PAGE || some_ended(&sharers, listed) {
                break;
            }
        }
        if sharers.is_empty() { Ok(self.read_holder(key, way).await?.into_iter().collect()) } else { Ok(sharers) }
    }

    async fn share(
        &self,
        op: &str,
        keys: &Keys,
        way: Way,
        step: impl Fn(&str) -> Eval,
    ) -> Result<(Value, Arc<Coalescer>)> {
        let connection: Arc<Coalescer> = self.pool.connection().await?;
        loop {
            let call = step(&clock_of(&connection, keys));
            match way.run(&connection, call, Flush::Now).await {
                Answer::Value(answer) => return Ok((answer, connection)),
                Answer::Failed(error) if connection.link.crosses(&error) => {}
                Answer::Failed(error) => return Err(self.failed(op, &error)),
                Answer::Taken(_) => return Err(self.unreadable(op)),
            }
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
