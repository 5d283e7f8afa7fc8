//! The server as a member of a quorum.

use std::sync::Arc;
use std::time::Duration;

use crate::RedisStore;
use crate::batch::coalesce::{Coalescer, Flush};
use crate::calls::acquire::{refusal_of, too_late};
use crate::calls::release::may_grant;
use crate::calls::run::ask;
use crate::protocol::keys::Keys;
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::{self, Acquired, VoteAnswer};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{AcquireRequest, MemberList, QuorumMember, Vote};
use lock_store::types::error::{LockError, Result};
use lock_store::types::system::clock::Clock;

impl QuorumMember for RedisStore {
    async fn vote(&self, request: &AcquireRequest) -> Result<Vote> {
        vote_for(self.only_server()?, request).await
    }

    async fn remember(&self, list: Option<&MemberList>, keep_for: Duration) -> Result<Vec<MemberList>> {
        let server = self.only_server()?;
        let answer = ask_member(server, &steps::remember(list, keep_for), "remember the members").await?;
        steps::read_lists(&answer).ok_or_else(|| server.unreadable("remember the members"))
    }

    async fn vouch(&self) -> Result<()> {
        ask_member(self.only_server()?, &steps::vouch(), "begin the quorum").await.map(drop)
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

async fn vote_for(server: &Node, request: &AcquireRequest) -> Result<Vote> {
    let keys = Keys::of(&request.claim.key)?;
    let clock = Clock::system();
    let begun = clock.now();
    let connection = connection_of_member(server).await?;
    let link = &connection.link;
    may_grant(server, link).await?;
    while clock.now() < begun.after(request.execute_within) {
        let now = clock.now();
        let left = begun.after(request.execute_within).since(now);
        let deadline = link.time.deadline(now, left);
        let call = |_: &str| steps::vote(&keys, request, deadline, request.floor);
        let answer = ask(server, "vote", &connection, &request.claim.key, (Way::default(), Flush::Now), call).await?;
        let VoteAnswer { time, age, kept, answer } =
            steps::read_vote(&answer).ok_or_else(|| server.unreadable("vote"))?;
        link.time.observe(time, clock.now());
        return match answer {
            Acquired::Granted(token) => Ok(Vote::Granted { token, kept, history: Some(age), time: Some(time / 1000) }),
            Acquired::Held(holder) => Ok(Vote::Held { holder, history: Some(age) }),
            // The answer also brought the server's time.
            Acquired::Stale => continue,
            refused => Err(refusal_of(server, request, refused)),
        };
    }
    Err(too_late(server, request.execute_within))
}

async fn connection_of_member(server: &Node) -> Result<Arc<Coalescer>> {
    server.repeats.switch_off();
    let connection = server.pool.connection().await?;
    if connection.link.is_cluster() { Err(no_member(server.name())) } else { Ok(connection) }
}

async fn ask_member(server: &Node, call: &Eval, op: &str) -> Result<redis::Value> {
    let connection = connection_of_member(server).await?;
    connection.link.eval(call).await.map_err(|error| server.failed(op, &error))
}
