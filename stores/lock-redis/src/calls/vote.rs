//! The server as a member of a quorum.

use std::sync::Arc;
use std::time::Duration;

use crate::RedisStore;
use crate::protocol::keys::Keys;
use crate::server::node::{Node, Way};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, Acquired, VoteAnswer};
use crate::batch::coalesce::{Coalescer, Flush};
use lock_store::contract::backend::{AcquireRequest, MemberList, QuorumMember, Vote};
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::Clock;

impl QuorumMember for RedisStore {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        self.only_server()?.vote_for(request).await
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        self.only_server()?.remember_list(list, keep_for).await
    }

    async fn vouch(&self) -> Result<()> {
        self.only_server()?.vouch_for_data().await
    }

    fn history(&self) -> Option<Arc<str>> {
        self.masters.only()?.pool.history.name()
    }
}

impl RedisStore {
    /// Returns the one server of this store.
    fn only_server(&self) -> Result<&Node> {
        self.masters.only().ok_or_else(|| no_member("this store"))
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
    async fn vote_for(&self, request: &AcquireRequest) -> Result<Vote> {
        let keys = Keys::of(&request.claim.key)?;
        let clock = Clock::system();
        let begun = clock.now();
        let connection = self.connection_of_member().await?;
        let link = &connection.link;
        self.may_grant(link).await?;
        while clock.now() < begun.after(request.execute_within) {
            let now = clock.now();
            let left = begun.after(request.execute_within).since(now);
            let deadline = link.time.deadline(now, left);
            let call = |_: &str| steps::vote(&keys, request, deadline, request.floor);
            let answer = self.ask("vote", &connection, &request.claim.key, (Way::default(), Flush::Now), call).await?;
            let VoteAnswer { time, age, kept, answer } =
                steps::read_vote(&answer).ok_or_else(|| self.unreadable("vote"))?;
            link.time.observe(time, clock.now());
            return match answer {
                Acquired::Granted(token) => {
                    Ok(Vote::Granted { token, kept, history: Some(age), time: Some(time / 1000) })
                }
                Acquired::Held(holder) => Ok(Vote::Held { holder, history: Some(age) }),
                // The answer also brought the server's time.
                Acquired::Stale => continue,
                refused => Err(self.refused(request, refused)),
            };
        }
        Err(self.too_late(request.execute_within))
    }

    async fn remember_list(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        let answer = self.ask_member(&steps::remember(list, keep_for), "remember the members").await?;
        steps::read_lists(&answer).ok_or_else(|| self.unreadable("remember the members"))
    }

    async fn vouch_for_data(&self) -> Result<()> {
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
