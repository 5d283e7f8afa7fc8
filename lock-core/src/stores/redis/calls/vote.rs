//! The server as a member of a quorum.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{AcquireRequest, MemberList, Vote};
use crate::stores::redis::keys::Keys;
use crate::stores::redis::server::node::Node;
use crate::stores::redis::steps::script::Eval;
use crate::stores::redis::steps::{self, Acquired, VoteAnswer};
use crate::stores::redis::wire::coalesce::{Coalescer, Flush};
use crate::stores::redis::wire::exchange::{Answer, Call};
use crate::stores::redis::{RedisStore, Servers};
use crate::types::error::{LockError, Result};
use crate::types::system::clock::Clock;

impl RedisStore {
    /// Returns the one server of this store.
    pub(crate) fn only_server(&self) -> Result<&Node> {
        match &self.servers {
            Servers::One(node) => Ok(node),
            Servers::Cluster(_) => Err(no_member("this store")),
        }
    }
}

/// The error of a cluster that is to be a member.
fn no_member(name: &str) -> LockError {
    LockError::misconfigured(format!(
        "{name} is a cluster, whose shards fail one by one, so it cannot be a member of a quorum; name independent servers, \
         or use the cluster alone by redis+cluster://",
    ))
}

impl Node {
    pub(crate) async fn vote_for(&self, request: &AcquireRequest) -> Result<Vote> {
        let keys = Keys::of(&request.claim.key)?;
        let clock = Clock::system();
        let begun = clock.now();
        let connection = self.connection_of_member().await?;
        let link = &connection.link;
        while clock.now() < begun.after(request.execute_within) {
            let now = clock.now();
            let left = begun.after(request.execute_within).since(now);
            let call = steps::vote(&keys, request, link.time.deadline(now, left), request.floor);
            let answer = match connection.call(Call::Eval(call), Flush::Now).await {
                Answer::Failed(error) => return Err(self.failed("vote", &error)),
                Answer::Value(answer) => answer,
                Answer::Taken(_) => return Err(self.unreadable("vote")),
            };
            let VoteAnswer { time, age, kept, answer } =
                steps::read_vote(&answer).ok_or_else(|| self.unreadable("vote"))?;
            link.time.observe(time, clock.now());
            return match answer {
                Acquired::Granted(token) => {
                    Ok(Vote::Granted { token, kept, history: Some(age), time: Some(time / 1000) })
                }
                Acquired::Held(holder) => Ok(Vote::Held { holder }),
                // The answer also brought the server's time.
                Acquired::Stale => continue,
                refused => Err(self.refused(request, refused)),
            };
        }
        Err(self.too_late(request.execute_within))
    }

    pub(crate) async fn remember_list(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        let answer = self.ask_member(&steps::remember(list, keep_for), "remember the members").await?;
        steps::read_lists(&answer).ok_or_else(|| self.unreadable("remember the members"))
    }

    pub(crate) async fn vouch_for_data(&self) -> Result<()> {
        self.ask_member(&steps::vouch(), "begin the quorum").await.map(drop)
    }

    async fn connection_of_member(&self) -> Result<Arc<Coalescer>> {
        self.repeats.switch_off();
        let connection = self.pool.connection().await?;
        if connection.link.is_cluster() { Err(no_member(self.pool.node())) } else { Ok(connection) }
    }

    async fn ask_member(&self, call: &Eval, op: &str) -> Result<redis::Value> {
        let connection = self.connection_of_member().await?;
        connection.link.eval(call).await.map_err(|error| self.failed(op, &error))
    }
}
