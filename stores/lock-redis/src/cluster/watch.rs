//! A call that waits for a master, as long as it is the master of the slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::calls::run::can_renew;
use crate::cluster::Cluster;
use crate::connection::redirect::Refusal;
use crate::server::node::Node;
use lock_store::contract::backend::BoxFuture;
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::system::clock::{Clock, Timestamp};

/// How long an answer may take before there is reason to look at the cluster.
const PATIENCE: Duration = Duration::from_millis(250);

/// The same for a call that is dropped: it may have had less time.
const DROPPED: Duration = Duration::from_millis(100);

/// How long a master may take to answer after another has replaced it.
const LAST_WORD: Duration = Duration::from_millis(20);

/// A master on the way of one call.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'a> {
    pub(crate) slot: u16,
    pub(crate) lane: u16,
    /// The lane of the master that served the slot when this one was chosen: another, while the slot is being moved.
    pub(crate) served_by: u16,
    pub(crate) node: &'a Arc<Node>,
}

impl Cluster {
    /// Awaits the answer of a master, as long as it is the master of the slot.
    pub(crate) async fn watched<'a, T>(&'a self, stop: Stop<'a>, attempt: BoxFuture<'a, Result<T>>) -> Result<T> {
        let sent = Clock::system().now();
        // First the connection: while it is opened, nothing is sent, and no timer is known to run.
        if stop.node.pool.open_connection(sent).is_none()
            && let Err(error) = Box::pin(self.connected(stop)).await
        {
            stop.node.doubt();
            return Err(self.of_one_node(stop, error));
        }
        self.awaited(stop, attempt).await
    }

    /// Awaits a renewal. It does not wait for the connection that other work has, unless it needs that one.
    pub(crate) async fn renewed<'a, T>(&'a self, stop: Stop<'a>, attempt: BoxFuture<'a, Result<T>>) -> Result<T> {
        if can_renew(stop.node) { self.awaited(stop, attempt).await } else { self.watched(stop, attempt).await }
    }

    async fn awaited<'a, T>(&'a self, stop: Stop<'a>, attempt: BoxFuture<'a, Result<T>>) -> Result<T> {
        let clock = Clock::system();
        let sent = clock.now();
        let mut unanswered = Unanswered { node: stop.node, since: sent, over: false };
        let overdue = async {
            clock.sleep_until(sent.after(PATIENCE)).await;
            tokio::select! {
                () = self.replaced(stop) => {}
                () = stop.node.doubt_until_dropped() => {}
            }
            clock.sleep_until(clock.now().after(LAST_WORD)).await;
        };
        let answer = tokio::select! {
            biased;
            answer = attempt => answer,
            () = overdue => {
                unanswered.over = true;
                return Err(LockError::unavailable(format!(
                    "{} was replaced as a master before it answered; it may or may not have executed the command, repeat \
                     it with the same claim",
                    stop.node.name(),
                )));
            }
        };
        unanswered.over = true;
        match &answer {
            Err(error) if error.is_ambiguous() => stop.node.doubt(),
            _ => stop.node.answered(),
        }
        answer.map_err(|error| {
            if matches!(Refusal::of(&error), Some(Refusal::NotAllowed)) { self.of_one_node(stop, error) } else { error }
        })
    }

    /// Opens a connection to a master, as long as it is the master of the slot.
    async fn connected(&self, stop: Stop<'_>) -> Result<()> {
        tokio::select! {
            biased;
            connected = stop.node.pool.connection() => connected.map(drop),
            () = self.replaced(stop) => Err(LockError::not_executed(format!(
                "{} was replaced as a master while it was connected to",
                stop.node.name(),
            ))
            .with_source(Refusal::Replaced)),
        }
    }

    /// Waits until another master serves the slot than before, or than the one that was asked.
    pub(crate) async fn replaced(&self, stop: Stop<'_>) {
        let mut changes = self.table.changes();
        while self.table.lane_of(stop.slot).is_none_or(|lane| lane == stop.lane || lane == stop.served_by) {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// A node that refuses us is one to wait for, as long as others let us in: users are not replicated, and may be
    /// missing on one.
    fn of_one_node(&self, stop: Stop<'_>, error: LockError) -> LockError {
        if error.kind() != LockErrorKind::Misconfigured {
            return error;
        }
        stop.node.refuses.store(true, Ordering::Relaxed);
        let refuses = |lane: &u16| self.table.node(*lane).is_some_and(|node| node.refuses.load(Ordering::Relaxed));
        if self.table.masters().iter().all(refuses) {
            return error;
        }
        LockError::not_executed(format!("{error}; other masters accept this user, so correct it on this one"))
    }
}

/// A call without an answer. If it is dropped so, there is reason to look at the cluster.
struct Unanswered<'a> {
    node: &'a Node,
    since: Timestamp,
    over: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.over && Clock::system().now().since(self.since) >= DROPPED {
            self.node.doubt();
        }
    }
}
