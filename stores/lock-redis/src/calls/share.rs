//! The calls for claims that share a lock, besides taking and freeing it.

use std::time::Duration;

use crate::RedisStore;
use crate::calls::renew::counted;
use crate::calls::run::{Operation, step};
use crate::protocol::steps::ReadHolder;
use crate::protocol::steps::share::{self, ListSharers, ToShared};
use crate::protocol::steps::step::{READ_WITHIN, Step as _};
use crate::server::node::{Node, Way};
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

    async fn at(&self, node: &Node, way: Way) -> Result<Renewal> {
        let (renewal, connection) = step(node, &ToShared(self.0, self.1), way).await?;
        counted(node, ToShared::OP, renewal, self.0, &connection).await
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

    async fn at(&self, node: &Node, way: Way) -> Result<Vec<Holder>> {
        let (mut sharers, mut count) = (Vec::new(), 0);
        loop {
            let ((some, listed), _) = step(node, &ListSharers(self.0, count), way).await?;
            sharers.extend(some);
            count += listed;
            // The claims at the end of the list are the ones whose leases have ended.
            if listed < share::PAGE || sharers.len() < count {
                break;
            }
        }
        if sharers.is_empty() {
            Ok(step(node, &ReadHolder(self.0), way).await?.0.into_iter().collect())
        } else {
            Ok(sharers)
        }
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
