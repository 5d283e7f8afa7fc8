//! Exports the state of the stores' nodes.

use std::sync::{Mutex, PoisonError};

use crate::catalog;
use crate::export::sink::Sink;
use crate::state::node::{Node, Server};
use crate::state::{Core, OTHER};
use crate::words::labels;

impl Core {
    /// Exports the known data of every node.
    pub(super) fn nodes_to(&self, sink: &mut impl Sink) {
        // The name of a member in a quorum may differ from the name of its node.
        let is_used = |node: &Node| {
            node.connected.is_some() || node.commands.iter().any(|op| op.buckets().iter().any(|b| b.count > 0))
        };
        let other = Some((OTHER, &self.other_node));
        let other = other.filter(|(_, node)| is_used(&node.lock().unwrap_or_else(PoisonError::into_inner)));
        let nodes: Vec<(&str, &Mutex<Node>)> = self.nodes.iter().chain(other).collect();
        let each = |tell: &mut dyn FnMut(&str, &Node)| {
            for (name, node) in &nodes {
                tell(name, &node.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        each(&mut |name, node| {
            if !is_used(node) {
                return;
            }
            for (op, errors) in labels::OPS.iter().zip(&node.errors) {
                for (kind, total) in labels::ERROR_KINDS.iter().zip(errors.iter()) {
                    sink.counter(&catalog::BACKEND_ERRORS, &[op, name, kind], total);
                }
            }
        });
        each(&mut |name, node| {
            if !is_used(node) {
                return;
            }
            for (op, histogram) in labels::OPS.iter().zip(&node.commands) {
                sink.histogram(&catalog::COMMAND, &[op, name], histogram.buckets());
            }
        });
        each(&mut |name, node| {
            if let Some(up) = node.connected {
                sink.gauge(&catalog::CONNECTED, &[name], f64::from(u8::from(up)));
            }
        });
        each(&mut |name, node| {
            if let Some(policy) = node.policy {
                sink.gauge(&catalog::EVICTION_POLICY, &[name, labels::POLICIES[policy]], 1.0);
            }
        });
        each(&mut |name, node| sink.counter(&catalog::FAILOVERS, &[name], node.failovers));
        each(&mut |name, node| {
            for (change, total) in labels::CHANGES.iter().zip(node.changes) {
                sink.counter(&catalog::TOPOLOGY_CHANGES, &[name, change], total);
            }
        });
        each(&mut |name, node| {
            for (kind, total) in labels::REDIRECTIONS.iter().zip(node.redirections) {
                sink.counter(&catalog::REDIRECTIONS, &[name, kind], total);
            }
        });
        each(&mut |name, node| {
            if let Some(slots) = node.slots_open {
                sink.gauge(&catalog::SLOTS_OPEN, &[name], f64::from(slots));
            }
        });
        each(&mut |name, node| {
            if let Some((replicas, _)) = node.replicas {
                sink.gauge(&catalog::REPLICAS, &[name], f64::from(replicas));
            }
        });
        each(&mut |name, node| {
            if let Some((_, least)) = node.replicas {
                sink.gauge(&catalog::MIN_REPLICAS, &[name], f64::from(least));
            }
        });
        each(&mut |name, node| {
            if let Some(exposed) = node.exposed {
                sink.gauge(&catalog::FAILOVER_EXPOSED, &[name], f64::from(u8::from(exposed)));
            }
        });
        each(&mut |name, node| sink.histogram(&catalog::CONFIRM, &[name], node.confirmations.buckets()));
        each(&mut |name, node| sink.counter(&catalog::CONFIRM_SHORTFALLS, &[name], node.shortfalls));
        each(&mut |name, node| {
            for (state, members) in
                labels::MEMBER_STATES.iter().zip(node.quorum.iter().flat_map(|quorum| quorum.states))
            {
                sink.gauge(&catalog::QUORUM_MEMBERS, &[name, state], f64::from(members));
            }
        });
        each(&mut |name, node| {
            if let Some(quorum) = &node.quorum {
                sink.gauge(&catalog::QUORUM_MAJORITY, &[name], f64::from(quorum.majority));
            }
        });
        each(&mut |name, node| {
            if let Some(quorum) = &node.quorum {
                sink.gauge(&catalog::QUORUM_DEGRADED_HOLDS, &[name], f64::from(quorum.degraded_holds));
            }
        });
        each(&mut |name, node| {
            if let Some(repairs) = node.repairs {
                sink.counter(&catalog::QUORUM_REPAIRS, &[name], repairs);
            }
        });
        each(&mut |name, node| {
            for (phase, rounds) in labels::PHASES.iter().zip(node.quorum.iter().flat_map(|quorum| quorum.rounds)) {
                sink.counter(&catalog::QUORUM_ROUNDS, &[name, phase], rounds);
            }
        });
    }
    /// Exports which server is behind each store.
    pub(super) fn stores_to(&self, sink: &mut impl Sink) {
        for (name, store) in self.shown_stores() {
            let node = store.node().and_then(|node| self.nodes.find_known(node));
            let server = node.and_then(|node| node.lock().unwrap_or_else(PoisonError::into_inner).server.clone());
            if let Some(Server { id, version, kind }) = server {
                sink.gauge(&catalog::STORE_INFO, &[name, &id, &version, kind], 1.0);
            }
        }
    }
}
