//! Answers of a server that is no longer the one to ask: a replica, or a node of a cluster that does not serve the key.

use redis::RedisError;

use crate::connection::greeting::Introduction;
use crate::connection::link::Link;
use crate::connection::redirect::Refusal;
use crate::server::node::Node;
use lock_store::types::error::{LockError, Result};

/// Explains a redirection, which a store of one server does not follow.
///
/// A master that sends callers elsewhere goes on to do so, so waiting does not help. A replica may be one because of a
/// failover, after which a virtual address leads to the new master.
pub(crate) async fn explain(server: &Node, error: LockError) -> LockError {
    let Some(Refusal::Moved(to)) = Refusal::of(&error) else { return error };
    let Ok(connection) = server.pool.connection().await else { return error };
    match is_replica(&connection.link).await.ok().flatten() {
        Some(false) => LockError::misconfigured(format!(
            "{} is one node of a cluster, and {to} serves this key; write redis+cluster:// in the URL, or \
             rediss+cluster:// for TLS, to reach every node",
            server.name(),
        )),
        Some(true) => {
            server.retire();
            LockError::not_executed(format!(
                "{} is a replica in a cluster, and {to} serves this key; wait for the failover to end, or write \
                 redis+cluster:// in the URL to follow it",
                server.name(),
            ))
        }
        None => error,
    }
}

/// Makes sure that it was a master that answered over a connection that something is *not held*.
///
/// A replica refuses every step that needs a write. Its data is only what its master has sent, which is nothing while
/// it begins to follow another master. A held lock then looks free there.
pub(crate) async fn check_master(server: &Node, link: &Link, op: &str) -> Result<()> {
    if server.cluster.is_some() {
        // Its replicas send callers elsewhere.
        return Ok(());
    }
    match is_replica(link).await {
        Ok(Some(true)) => {
            server.retire();
            Err(LockError::not_executed(format!(
                "{} is a replica, or was one, and may lack locks; wait for the failover to end",
                server.name(),
            )))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(server.failed(op, &error)),
    }
}

/// Asks the server whether it is a replica, or was one when the connection was opened: it may have been promoted since
/// it answered. `None` if it does not tell.
async fn is_replica(link: &Link) -> std::result::Result<Option<bool>, RedisError> {
    let mut asking = redis::pipe();
    asking.cmd("HELLO").cmd("INFO").arg("replication");
    let mut answers = link.send_all(&asking).await?.into_iter();
    let now = Introduction::read(answers.next(), answers.next());
    let promoted = now.is_heir && now.history.is_some() && now.history.as_ref() != link.history();
    Ok(now.is_replica().map(|is_replica| is_replica || promoted))
}
