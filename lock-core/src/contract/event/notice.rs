//! What belongs to no single acquire.

use std::time::Duration;

use crate::contract::event::{Deadlock, QuorumHealth};
use crate::types::error::LockError;
use crate::types::fencing::FencingToken;
use crate::types::key::LockLabel;
use crate::types::order::OrderInversion;

/// Something that belongs to no single acquire.
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
        /// What it did: `acquire`, `renew`, `release`, `withdraw`, `holder` or `deadlock`.
        op: &'static str,
        /// The node that served it, without credentials.
        node: &'a str,
        /// From send to answer.
        elapsed: Duration,
        /// Why it failed, if it did.
        error: Option<&'a LockError>,
    },
    /// The keeper's connection to a node came up or went down.
    Connection {
        /// The node, without credentials.
        node: &'a str,
        /// Whether it is up now.
        up: bool,
    },
    /// A node serves no locks any more, as a master of a cluster that another has replaced. No connection to it is
    /// kept.
    NodeLeft {
        /// The node, without credentials.
        node: &'a str,
    },
    /// Another server has taken over a node, or it was started again: its data have another history, and locks may be
    /// missing from it.
    Failover {
        /// The node, without credentials.
        node: &'a str,
    },
    /// The server of a node was found at another address.
    Moved {
        /// The node, without credentials. Its name stays the same.
        node: &'a str,
    },
    /// Slots of a cluster got other masters, since the last time.
    SlotsMoved {
        /// The nodes by which the cluster was named, without credentials.
        node: &'a str,
        /// How often.
        times: u64,
    },
    /// How many slots of a master of a cluster are open: being moved, from it or to it. Sent when the keeper has
    /// connected, and every minute.
    ///
    /// No lock of an open slot can be taken that is not there yet. A slot stays open if whatever moved it was stopped;
    /// `redis-cli --cluster fix` closes it.
    SlotsOpen {
        /// The master, without credentials.
        node: &'a str,
        /// How many.
        slots: u32,
    },
    /// A master of a cluster sent callers elsewhere, or had them ask again, since the last time.
    Redirected {
        /// The master, without credentials.
        node: &'a str,
        /// What it said: `moved`, `ask`, `try_again` or `no_master`.
        kind: &'static str,
        /// How often.
        times: u64,
    },
    /// Who has a copy of a node's locks, sent when the keeper has connected, and every minute.
    ///
    /// With replicas, with none that must have a write (`min-replicas-to-write`), and without
    /// [`Durability`](crate::Durability), a failover may lose locks that are held.
    Replication {
        /// The node, without credentials.
        node: &'a str,
        /// How many replicas are connected.
        replicas: u32,
        /// Without how many connected replicas the server refuses writes.
        min_replicas: u32,
    },
    /// Replicas or disks confirmed what a node had executed, or did not.
    Confirmation {
        /// The node, without credentials.
        node: &'a str,
        /// How long it took.
        elapsed: Duration,
        /// Whether as many confirmed as were asked for.
        enough: bool,
    },
    /// The members of a quorum, and what has happened there. Sent every two seconds.
    Quorum {
        /// The node: the names of its members, without credentials.
        node: &'a str,
        /// What this process knows of it.
        health: &'a QuorumHealth,
    },
    /// The `maxmemory-policy` of a node, sent when the keeper has connected. With any other than
    /// `noeviction` it may evict locks under memory pressure.
    EvictionPolicy {
        /// The node, without credentials.
        node: &'a str,
        /// The policy it reports.
        policy: &'a str,
    },
    /// Which server a node is, sent when the keeper has connected, and every minute.
    Server {
        /// The node, without credentials.
        node: &'a str,
        /// The id of its data (`master_replid`): no other server but its replicas has it. Another one after a restart
        /// or a failover.
        id: &'a str,
        /// What runs there, such as `redis 8.0.2`.
        version: &'a str,
        /// How it is found: `server`, `sentinel` or `cluster`.
        kind: &'static str,
    },
    /// A manager was built, so that locks may be taken in this store.
    Store {
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
        /// The node behind it, without credentials; of a cluster, one of them.
        node: &'a str,
    },
    /// A protected body ran without its lock, because the user allowed it.
    UnlockedRun {
        /// The family of locks.
        label: &'a LockLabel,
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
    },
    /// A write came with its token: a [`FencingGate`](crate::FencingGate) admitted it, or a
    /// [`FencedWrite`](crate::FencedWrite) takes it to where it is checked.
    FencingChecked {
        /// The token of the write.
        token: FencingToken,
    },
    /// A [`FencingGate`](crate::FencingGate) refused a stale token.
    FencingRejected {
        /// The token of the refused write.
        token: FencingToken,
        /// The newest token admitted.
        newest: FencingToken,
    },
    /// The run of a job ended, under its lock. Not sent if the lock was lost or its release could not be told to the
    /// store, or if the run was dropped: such a run is none.
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
    /// Two families of locks are taken in both orders, so that two callers can wait for each other. Sent once for
    /// each pair, if the order is watched.
    OrderInverted {
        /// Which, and where.
        inversion: &'a OrderInversion,
        /// The name of the store of the lock that was wanted, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
    },
    /// Tasks wait for each other. Each of them that finds it before it is broken says so, once.
    Deadlocked {
        /// Who waits for whom.
        deadlock: &'a Deadlock,
    },
    /// The store granted a token that is not greater than one it gave before: it lost data.
    FencingRegressed {
        /// The family of locks.
        label: &'a LockLabel,
        /// The name of the store, as in [`LockEvent::store`](crate::LockEvent::store).
        store: &'a str,
        /// The token granted.
        token: FencingToken,
        /// The newest token seen before.
        newest: FencingToken,
    },
}
