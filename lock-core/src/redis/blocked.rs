//! What the holder of a lock waits for, on one server.

use redis::Value;

use crate::backend::Blocked;
use crate::error::Result;
use crate::key::LockKey;
use crate::redis::node::{Node, Way};
use crate::redis::script::Eval;
use crate::redis::steps;

impl Node {
    pub(super) async fn write_blocked(&self, key: &LockKey, blocked: Option<&Blocked>, way: Way) -> Result<()> {
        self.look(&steps::set_blocked(&self.keys_of(key)?, blocked), way).await.map(drop)
    }

    pub(super) async fn read_blocked(&self, key: &LockKey, way: Way) -> Result<Option<Blocked>> {
        self.look(&steps::blocked(&self.keys_of(key)?), way).await.map(|answer| steps::read_blocked(&answer))
    }

    async fn look(&self, call: &Eval, way: Way) -> Result<Value> {
        let connection = self.pool.connection().await?;
        let link = &connection.link;
        let answer = if way.asking { link.eval_asking(call).await } else { link.eval(call).await };
        answer.map_err(|error| self.failed("look for a deadlock", &error))
    }
}
