//! What a caller of one server is told when another node of its cluster serves the key.

use crate::error::{LockError, Result};
use crate::redis::cluster::redirect::Refusal;
use crate::redis::introduction::Introduction;
use crate::redis::node::Node;

impl Node {
    /// Explains a redirection, which a store of one server does not follow.
    ///
    /// A master that sends callers elsewhere goes on to do so, so waiting does not help. A replica may be one because of a
    /// failover, after which a virtual address leads to the new master.
    pub(super) async fn explain<T>(&self, answer: Result<T>) -> Result<T> {
        let Err(error) = &answer else { return answer };
        let Some(Refusal::Moved(to)) = Refusal::of(error) else { return answer };
        match Box::pin(self.is_replica()).await {
            Some(false) => Err(LockError::misconfigured(format!(
                "{} is one node of a cluster, and {to} serves this key; write redis+cluster:// in the URL, or \
                 rediss+cluster:// for TLS, to reach every node",
                self.name(),
            ))),
            Some(true) => {
                self.pool.retire();
                Err(LockError::not_executed(format!(
                    "{} is a replica in a cluster, and {to} serves this key; wait for the failover to end, or write \
                     redis+cluster:// in the URL to follow it",
                    self.name(),
                )))
            }
            None => answer,
        }
    }

    /// Asks the server whether it is a replica, or was one when the connection was opened: it may have been promoted
    /// since it sent a call elsewhere.
    async fn is_replica(&self) -> Option<bool> {
        let connection = self.pool.connection().await.ok()?;
        let mut asking = redis::pipe();
        asking.cmd("HELLO").cmd("INFO").arg("replication");
        let mut answers = connection.link.send_all(&asking).await.ok()?.into_iter();
        let now = Introduction::read(answers.next(), answers.next());
        let promoted = now.history.is_some() && now.history.as_ref() != connection.link.history();
        now.is_replica().map(|is_replica| is_replica || promoted)
    }
}
