//! Notices that do not belong to a single acquire.

use std::time::Duration;

use crate::contract::event::{Deadlock, QuorumHealth};
use crate::types::error::LockError;
use crate::types::fencing::FencingToken;
use crate::types::key::LockLabel;
use crate::types::order::OrderInversion;

/// A notice that does not belong to a single acquire.
///
/// ```
/// use lock_core::{LockEvent, LockObserver, Notice};
///
/// struct Connections;
///
/// impl LockObserver for Connections {
///     fn on_event(&self, _: &LockEvent<'_>) {}
///
///     fn on_notice(&self, notice: &Notice<'_>) {
///         if let Notice::Connection { node, up } = notice {
///             println!("{node} is {}", if *up { "up" } else { "down" });
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A command to the store ended.
    Command {
        /// The operation: `acquire`, `renew`, `release`, `withdraw`, `holder` or `deadlock`.
        op: &'static str,
        /// The node that served it, without credentials.
        node: &'a str,
        /// The time from send to answer.
        elapsed: Duration,
        /// The reason, if it failed.
        error: Option<&'a LockError>,
    },
    /// The keeper's connection to a node came up or went down.
    Connection {
        /// The node, without credentials.
        node: &'a str,
        /// Whether it is up now.
        up: bool,
    },
    /// A node no longer serves locks, for example a cluster master that was replaced. Its connections are closed.
    NodeLeft {
        /// The node, without credentials.
        node: &'a str,
    },
    /// Another server has taken over a node, or the node was restarted. Its data has another history, and locks may be
    /// missing.
    Failover {
        /// The node, without credentials.
        node: &'a str,
    },
    /// The server of a node was found at another address.
    Moved {
        /// The node, without credentials. Its name stays the same.
        node: &'a str,
    },
    /// Slots of a cluster got other masters since the last notice.
    SlotsMoved {
        /// The nodes by which the cluster was named, without credentials.
        node: &'a str,
        /// How often.
        times: u64,
    },
    /// How many slots of a cluster master are open, that is, being moved from it or to it. Sent when the keeper has
    /// connected, and every minute.
    ///
    /// In an open slot, a lock that does not exist yet cannot be taken. If the move was stopped, the slot stays open;
    /// `redis-cli --cluster fix` closes it.
    SlotsOpen {
        /// The master, without credentials.
        node: &'a str,
        /// The number of open slots.
        slots: u32,
    },
    /// A cluster master redirected callers, or made them ask again, since the last notice.
    Redirected {
        /// The master, without credentials.
        node: &'a str,
        /// Its reply: `moved`, `ask`, `try_again` or `no_master`.
        kind: &'static str,
        /// How often.
        times: u64,
    },
    /// The replicas of a node's locks. Sent when the keeper has connected, and every minute.
    Replication {
        /// The node, without credentials.
        node: &'a str,
        /// How many replicas are connected.
        replicas: u32,
        /// The server refuses writes with fewer connected replicas than this.
        min_replicas: u32,
    },
    /// Whether a failover of a node may lose held locks although nobody has chosen that: it has replicas, or sentinels
    /// watch it, and its URL asks no replica to confirm, and lacks `acks=0`. Sent together with [`Replication`](Self::Replication).
    FailoverExposure {
        /// The node, without credentials.
        node: &'a str,
        /// Whether it may.
        exposed: bool,
    },
    /// Replicas or disks confirmed a node's writes, or did not.
    Confirmation {
        /// The node, without credentials.
        node: &'a str,
        /// Whether replicas were asked, and not only the master's disk.
        replicas: bool,
        /// How long it took.
        elapsed: Duration,
        /// Whether as many confirmed as were requested.
        enough: bool,
    },
    /// The members of a quorum, and events there. Sent every two seconds.
    Quorum {
        /// The node: the names of its members, without credentials.
        node: &'a str,
        /// The state of the quorum, as far as this process knows.
        health: &'a QuorumHealth,
    },
    /// The `maxmemory-policy` of a node, sent when the keeper has connected. With any policy other than `noeviction`,
    /// the node may evict locks under memory pressure.
    EvictionPolicy {
        /// The node, without credentials.
        node: &'a str,
        /// The policy that it reports.
        policy: &'a str,
    },
    /// The identity of a node's server. Sent when the keeper has connected, and every minute.
    Server {
        /// The node, without credentials.
        node: &'a str,
        /// The id of its data (`master_replid`). Only the server and its replicas have it. It changes after a restart
        /// or a failover.
        id: &'a str,
        /// The server software, for example `redis 8.0.2`.
        version: &'a str,
        /// How it is found: `server`, `sentinel` or `cluster`.
        kind: &'static str,
    },
    /// A manager was built, so locks may be taken in this store.
    Store {
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
        /// The node behind it, without credentials. For a cluster, one of its nodes.
        node: &'a str,
    },
    /// A protected body ran without its lock, because the user allowed it.
    UnlockedRun {
        /// The family of locks.
        label: &'a LockLabel,
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
    },
    /// A write came with its token. A `FencingGate` admitted it, or a
    /// `FencedWrite` takes it to the server that checks it.
    FencingChecked {
        /// The token of the write.
        token: FencingToken,
    },
    /// A `FencingGate` refused a stale token.
    FencingRejected {
        /// The token of the refused write.
        token: FencingToken,
        /// The newest admitted token.
        newest: FencingToken,
    },
    /// The run of a job ended under its lock. Not sent if the lock was lost, if the store could not be told of the
    /// release, or if the run was dropped: such a run does not count.
    JobEnded {
        /// The family of locks.
        label: &'a LockLabel,
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
        /// Whether it returned something other than `Err`.
        succeeded: bool,
    },
    /// A lock is waited for while another is held. Sent each time, if the order is watched.
    Nested {
        /// The family of the lock that is held.
        held: &'a LockLabel,
        /// The family of the lock that is waited for.
        wanted: &'a LockLabel,
    },
    /// Two families of locks are taken in both orders, so two callers can wait for each other. Sent once for each pair,
    /// if the order is watched.
    OrderInverted {
        /// The two families and their places in the code.
        inversion: &'a OrderInversion,
        /// The name of the store of the wanted lock, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
    },
    /// Tasks wait for each other. Each member that finds the deadlock before it ends sends this once.
    Deadlocked {
        /// The cycle.
        deadlock: &'a Deadlock,
    },
    /// The store granted a token that is not greater than an earlier one of the same key, so it has lost data.
    FencingRegressed {
        /// The family of locks.
        label: &'a LockLabel,
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
        /// The granted token.
        token: FencingToken,
        /// The newest token of the key that was seen before.
        newest: FencingToken,
    },
}
