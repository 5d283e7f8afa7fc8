//! The calls for claims that share a lock, besides taking and freeing it.

use crate::RedisStore;
use crate::calls::run::{Operation, step};
use crate::protocol::steps::{read_holder, share};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{Claim, Renewal, SharedClaims};
use lock_store::types::error::Result;
use lock_store::types::fencing::FencingToken;
use lock_store::types::key::LockKey;
use lock_store::types::owner::Holder;

/// Lists everybody who has a lock.
struct ListHolders<'a>(&'a LockKey);

impl Operation for ListHolders<'_> {
    type Answer = Vec<Holder>;

    fn lock(&self) -> &LockKey {
        self.0
    }

    async fn at(&self, node: &Node, way: Way) -> Result<Vec<Holder>> {
        let (mut sharers, mut count) = (Vec::new(), 0);
        loop {
            let (some, listed) = step(node, &share::list(self.0, count), way).await?;
            sharers.extend(some);
            count += listed;
            // The claims at the end of the list are the ones whose leases have ended.
            if listed < share::PAGE || sharers.len() < count {
                break;
            }
        }
        if sharers.is_empty() {
            Ok(step(node, &read_holder(self.0), way).await?.into_iter().collect())
        } else {
            Ok(sharers)
        }
    }
}

impl SharedClaims for RedisStore {
    async fn downgrade(&self, claim: &Claim, token: FencingToken) -> Result<Renewal> {
        self.run(share::downgrade(claim, token)).await
    }

    async fn holders(&self, key: &LockKey) -> Result<Vec<Holder>> {
        self.run(ListHolders(key)).await
    }
}
