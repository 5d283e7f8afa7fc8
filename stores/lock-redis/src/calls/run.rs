//! The one place in which a step is sent to a server, and its answer read.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::batch::coalesce::{Coalescer, Flush};
use crate::batch::exchange::Answer;
use crate::calls::durability::confirm;
use crate::calls::elsewhere::check_master;
use crate::protocol::keys::{CLOCK, clock_of};
use crate::protocol::steps::script::Eval;
use crate::protocol::steps::step::{READ_WITHIN, Step, Unread};
use crate::server::node::{Node, Way};
use lock_store::contract::backend::{BoxFuture, JobVersion};
use lock_store::types::error::Result;
use lock_store::types::key::LockKey;
use lock_store::types::system::clock::Clock;

/// The calls of a store about one lock, at its only server or at the master of the lock's slot. Most calls are one step. A call
/// that takes several steps, or first uses the knowledge of this process, says so here.
pub(crate) trait Operation: Send + Sync {
    type Answer: Send;

    /// The lock that it is about.
    fn lock(&self) -> &LockKey;

    /// The version that it is about, if it is.
    fn version(&self) -> Option<&JobVersion> {
        None
    }

    /// How long it may take, where it follows the lock from master to master.
    fn within(&self) -> Duration {
        READ_WITHIN
    }

    /// Does it at a server.
    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<Self::Answer>> + Send;

    /// Does it at a master of a cluster, if that takes more care. It goes to the heap, so that the futures of one server stay
    /// small.
    fn at_master<'a>(&'a self, node: &'a Node, way: Way) -> BoxFuture<'a, Result<Self::Answer>> {
        Box::pin(self.at(node, way))
    }
}

impl<A: Send> Operation for Step<'_, A> {
    type Answer = A;

    fn lock(&self) -> &LockKey {
        self.lock
    }

    fn version(&self) -> Option<&JobVersion> {
        self.version
    }

    fn within(&self) -> Duration {
        self.within
    }

    fn at(&self, node: &Node, way: Way) -> impl Future<Output = Result<A>> + Send {
        Box::pin(step(node, self, way))
    }
}

/// Does a step.
pub(crate) async fn step<A: Send>(server: &Node, step: &Step<'_, A>, way: Way) -> Result<A> {
    let keys = server.keys_of(step.lock)?;
    let connection = match server.pool.open_connection(Clock::system().now()) {
        _ if step.renews => Box::pin(renewing(server, step.within)).await?,
        Some(connection) => connection,
        None => Box::pin(server.pool.connection()).await?,
    };
    let call = |clock: &str| (step.call)(&keys, clock);
    let answer = ask(server, step.op, &connection, step.lock, (way, Flush::Now), call).await?;
    let answer = (step.read)(&answer).map_err(|unread| match unread {
        Unread::Nonsense => server.unreadable(step.op),
        Unread::Refused(error) => error.with_key(step.lock),
        Unread::Failed(text) => server.script_failed(step.op, &text).with_key(step.lock),
    })?;
    if (step.is_missing)(&answer) {
        Box::pin(check_master(server, &connection.link, step.op)).await?;
    } else if let Some(claim) = step.claim {
        Box::pin(confirm(server, &connection.link, claim, step.within)).await?;
    }
    Ok(answer)
}

/// Sends a script over a connection, and again if only its refusal shows that the server is a node of a cluster: then the
/// clock is that of the slot.
pub(crate) async fn ask(
    server: &Node,
    op: &str,
    connection: &Arc<Coalescer>,
    lock: &LockKey,
    (way, flush): (Way, Flush),
    call: impl Fn(&str) -> Eval,
) -> Result<Value> {
    loop {
        match way.run(connection, call(&clock_for(connection, lock)), flush).await {
            Answer::Value(answer) => return Ok(answer),
            Answer::Failed(error) if connection.link.crosses(&error) => {}
            Answer::Failed(error) => return Err(server.failed(op, &error)),
            Answer::Taken(_) => return Err(server.unreadable(op)),
        }
    }
}

/// Returns the key of the server's clock, or in a cluster, of the slot's clock.
pub(crate) fn clock_for(connection: &Coalescer, lock: &LockKey) -> Cow<'static, str> {
    if connection.link.is_cluster() { clock_of(lock) } else { CLOCK.into() }
}

/// Returns the connection for renewals that the listening connection does not carry. A keeper has one of its own:
/// a release or a claim that hangs would otherwise cost the leases behind it. A renewal goes over the connection for
/// other work while its own cannot be opened, for example because the server has too many clients.
pub(crate) async fn renewing(server: &Node, within: Duration) -> Result<Arc<Coalescer>> {
    if server.renewals.are_kept_here() {
        let clock = Clock::system();
        let patience_ends = clock.now().after(within / 4);
        let own = tokio::select! {
            biased;
            own = server.renewals.pool.connection() => own.ok(),
            () = clock.sleep_until(patience_ends) => None,
        };
        if let Some(own) = own {
            return Ok(own);
        }
    }
    server.pool.connection().await
}

/// Returns whether a lease can be renewed now without another connection.
pub(crate) fn can_renew(server: &Node) -> bool {
    server.listeners.current().is_some() || server.renewals.pool.open_connection(Clock::system().now()).is_some()
}
