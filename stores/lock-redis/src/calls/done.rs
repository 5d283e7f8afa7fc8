//! The marks of work that is done for a version.

use std::time::Duration;

use crate::RedisStore;
use crate::calls::durability::confirm;
use crate::calls::elsewhere::check_master;
use crate::calls::run::{Operation, step};
use crate::protocol::steps::step::{READ_WITHIN, Step};
use crate::protocol::steps::{ReadDone, RemoveDone, WriteDone};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{Claim, DoneMark, DoneMarks, JobVersion};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::options::command_timeout;

impl DoneMarks for RedisStore {
    async fn done(&self, key: &LockKey, version: &JobVersion) -> Result<Option<DoneMark>> {
        self.run(Look(ReadDone(key, version))).await
    }

    async fn mark_done(&self, claim: &Claim, version: &JobVersion, keep: Option<Duration>) -> Result<bool> {
        self.run(Mark(WriteDone { claim, version, keep: keep.unwrap_or(DoneMark::KEPT) })).await
    }

    async fn forget_done(&self, key: &LockKey, version: &JobVersion) -> Result<bool> {
        self.run(RemoveDone(key, version)).await
    }
}

/// Reads a mark. A demoted server cannot say that a mark is missing.
struct Look<'a>(ReadDone<'a>);

impl Operation for Look<'_> {
    type Answer = Option<DoneMark>;

    fn lock(&self) -> &LockKey {
        Step::lock(&self.0)
    }

    fn version(&self) -> Option<&JobVersion> {
        Step::version(&self.0)
    }

    fn within(&self) -> Duration {
        READ_WITHIN
    }

    async fn at(&self, node: &Node, way: Way) -> Result<Option<DoneMark>> {
        let (mark, connection) = step(node, &self.0, way).await?;
        if mark.is_none() {
            check_master(node, &connection.link, ReadDone::OP).await?;
        }
        Ok(mark)
    }
}

/// Writes a mark, and waits until it has arrived where the claim must.
struct Mark<'a>(WriteDone<'a>);

impl Operation for Mark<'_> {
    type Answer = bool;

    fn lock(&self) -> &LockKey {
        Step::lock(&self.0)
    }

    fn version(&self) -> Option<&JobVersion> {
        Step::version(&self.0)
    }

    fn within(&self) -> Duration {
        command_timeout(self.0.claim.ttl)
    }

    async fn at(&self, node: &Node, way: Way) -> Result<bool> {
        let (had_it, connection) = step(node, &self.0, way).await?;
        if had_it {
            confirm(node, &connection.link, self.0.claim, command_timeout(self.0.claim.ttl)).await?;
        } else {
            check_master(node, &connection.link, WriteDone::OP).await?;
        }
        Ok(had_it)
    }
}
