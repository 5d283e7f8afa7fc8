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
        let each_used = |tell: &mut dyn FnMut(&str, &Node)| {
            each(&mut |name, node| {
                if is_used(node) {
                    tell(name, node);
                }
            });
        };
        each_used(&mut |name, node| {
            for (op, errors) in labels::OPS.iter().zip(&node.errors) {
                for (kind, total) in labels::ERROR_KINDS.iter().zip(errors.iter()) {
                    sink.counter(&catalog::BACKEND_ERRORS, &[op, name, kind], total);
                }
            }
        });
        each_used(&mut |name, node| {
            for (op, histogram) in labels::OPS.iter().zip(&node.commands) {
                sink.histogram(&catalog::COMMAND, &[op, name], histogram.buckets());
            }
        });
        each(&mut |name, node| {
            if let Some(policy) = node.policy {
                sink.gauge(&catalog::EVICTION_POLICY, &[name, labels::POLICIES[policy]], 1.0);
            }
        });
        each(&mut |name, node| {
            for (state, members) in
                labels::MEMBER_STATES.iter().zip(node.quorum.iter().flat_map(|quorum| quorum.states))
            {
                sink.gauge(&catalog::QUORUM_MEMBERS, &[name, state], f64::from(members));
            }
        });
        each(&mut |name, node| {
            for (by, confirmations) in labels::CONFIRMED_BY.iter().zip(&node.confirmations) {
                if confirmations.buckets().iter().any(|bucket| bucket.count > 0) {
                    sink.histogram(&catalog::CONFIRM, &[name, by], confirmations.buckets());
                }
            }
        });
        let mut counters = |metric, values: &[&str], get: &dyn Fn(&Node) -> Vec<u64>| {
            each(&mut |name, node| {
                for (value, total) in values.iter().zip(get(node)) {
                    sink.counter(metric, &[name, value], total);
                }
            });
        };
        counters(&catalog::TOPOLOGY_CHANGES, &labels::CHANGES, &|node| node.changes.to_vec());
        counters(&catalog::REDIRECTIONS, &labels::REDIRECTIONS, &|node| node.redirections.to_vec());
        let rounds = |node: &Node| node.quorum.iter().flat_map(|quorum| quorum.rounds).collect();
        counters(&catalog::QUORUM_ROUNDS, &labels::PHASES, &rounds);
        let mut counter = |metric, get: &dyn Fn(&Node) -> Option<u64>| {
            each(&mut |name, node| get(node).into_iter().for_each(|total| sink.counter(metric, &[name], total)));
        };
        counter(&catalog::FAILOVERS, &|node| Some(node.failovers));
        counter(&catalog::CONFIRM_SHORTFALLS, &|node| Some(node.shortfalls));
        counter(&catalog::QUORUM_REPAIRS, &|node| node.repairs);
        let mut gauge = |metric, get: &dyn Fn(&Node) -> Option<u32>| {
            each(&mut |name, node| {
                get(node).into_iter().for_each(|value| sink.gauge(metric, &[name], f64::from(value)));
            });
        };
        gauge(&catalog::CONNECTED, &|node| node.connected.map(u32::from));
        gauge(&catalog::SLOTS_OPEN, &|node| node.slots_open);
        gauge(&catalog::REPLICAS, &|node| Some(node.replicas?.0));
        gauge(&catalog::MIN_REPLICAS, &|node| Some(node.replicas?.1));
        gauge(&catalog::FAILOVER_EXPOSED, &|node| node.exposed.map(u32::from));
        gauge(&catalog::QUORUM_MAJORITY, &|node| Some(node.quorum.as_ref()?.majority));
        gauge(&catalog::QUORUM_DEGRADED_HOLDS, &|node| Some(node.quorum.as_ref()?.degraded_holds));
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
