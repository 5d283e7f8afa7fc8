//! What the holder of a lock waits for, on one server.

use redis::Value;

use crate::contract::backend::Blocked;
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::steps;
use crate::stores::redis::steps::script::Eval;
use crate::types::error::Result;
use crate::types::key::LockKey;

impl Node {
    pub(crate) async fn write_blocked(&self, key: &LockKey, blocked: Option<&Blocked>, way: Way) -> Result<()> {
        self.look(&steps::set_blocked(&self.keys_of(key)?, blocked), way).await.map(drop)
    }

    pub(crate) async fn read_blocked(&self, key: &LockKey, way: Way) -> Result<Option<Blocked>> {
        self.look(&steps::blocked(&self.keys_of(key)?), way).await.map(|answer| steps::read_blocked(&answer))
    }

    async fn look(&self, call: &Eval, way: Way) -> Result<Value> {
        let connection = self.pool.connection().await?;
        let link = &connection.link;
        let answer = if way.asking { link.eval_asking(call).await } else { link.eval(call).await };
        answer.map_err(|error| self.failed("look for a deadlock", &error))
    }
}
