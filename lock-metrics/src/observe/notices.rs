//! Turns notices into counts and into the state of nodes.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use lock_core::{LockError, LockErrorKind, Notice, QuorumHealth};

use crate::catalog;
use crate::state::Core;
use crate::state::node::{Node, Server};
use crate::words::labels::{
    CHANGES, DEADLOCK_ROLES, ERROR_KINDS, MEMBER_STATES, MODES, OPS, PHASES, POLICIES, REDIRECTIONS, place,
};

const MASTER_MOVED: usize = place(&CHANGES, "master_moved");
const SLOTS: usize = place(&CHANGES, "slots");
const FIRST: usize = place(&PHASES, "first");
const SECOND: usize = place(&PHASES, "second");
const VICTIM: usize = place(&DEADLOCK_ROLES, "victim");
const MEMBER: usize = place(&DEADLOCK_ROLES, "member");
// Notices without an acquire are counted here. None of these counts is shown by mode.
const WRITE: usize = place(&MODES, "write");

impl Core {
    fn locked_node(&self, name: &str) -> MutexGuard<'_, Node> {
        self.node(name).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_quorum(&self, name: &str, health: &QuorumHealth) {
        let mut node = self.locked_node(name);
        let members = node.quorum.get_or_insert_default();
        members.states = [0; MEMBER_STATES.len()];
        for member in &health.members {
            if let Some(count) = members.states.get_mut(place(&MEMBER_STATES, member.state.as_str())) {
                *count += 1;
            }
        }
        members.majority = u32::try_from(health.majority).unwrap_or(u32::MAX);
        members.degraded_holds = u32::try_from(health.degraded_holds).unwrap_or(u32::MAX);
        members.rounds[FIRST] += health.rounds;
        members.rounds[SECOND] += health.second_rounds;
        drop(node);
        for member in &health.members {
            *self.locked_node(&member.name).repairs.get_or_insert_default() += member.repairs;
        }
    }

    /// Takes a notice.
    pub(super) fn on_notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Command { op, node, elapsed, error } => {
                let op = OPS.iter().position(|known| known == op).unwrap_or(OPS.len() - 1);
                let mut node = self.locked_node(node);
                node.commands[op].record_duration(catalog::COMMAND.buckets(), *elapsed);
                if let Some(error) = error {
                    node.errors[op].count(place(&ERROR_KINDS, error_kind(error)));
                }
            }
            Notice::Connection { node, up } => {
                self.locked_node(node).connected = Some(*up);
            }
            Notice::NodeLeft { node } => {
                // The node has left, so nothing is known of it any more, and no alert may fire for it.
                let mut node = self.locked_node(node);
                (node.connected, node.policy, node.replicas, node.slots_open) = (None, None, None, None);
                (node.server, node.exposed) = (None, None);
            }
            Notice::EvictionPolicy { node, policy } => {
                let place = POLICIES.iter().position(|known| known == policy).unwrap_or(POLICIES.len() - 1);
                let mut node = self.locked_node(node);
                node.policy = (*policy != "noeviction").then_some(place);
            }
            Notice::Failover { node } => self.locked_node(node).failovers += 1,
            Notice::Moved { node } => self.locked_node(node).changes[MASTER_MOVED] += 1,
            Notice::SlotsMoved { node, times } => self.locked_node(node).changes[SLOTS] += times,
            Notice::SlotsOpen { node, slots } => self.locked_node(node).slots_open = Some(*slots),
            Notice::Redirected { node, kind, times } => {
                if let Some(count) = self.locked_node(node).redirections.get_mut(place(&REDIRECTIONS, kind)) {
                    *count += times;
                }
            }
            Notice::Replication { node, replicas, min_replicas } => {
                self.locked_node(node).replicas = Some((*replicas, *min_replicas));
            }
            Notice::FailoverExposure { node, exposed } => self.locked_node(node).exposed = Some(*exposed),
            Notice::Confirmation { node, replicas, elapsed, enough } => {
                let mut node = self.locked_node(node);
                node.confirmations[usize::from(*replicas)].record_duration(catalog::CONFIRM.buckets(), *elapsed);
                node.shortfalls += u64::from(!enough);
            }
            Notice::Quorum { node, health } => self.on_quorum(node, health),
            Notice::Server { node, id, version, kind } => {
                self.locked_node(node).server = Some(Server::new(id, version, kind));
            }
            Notice::Store { store, node } => self.store(store).is_at(node),
            Notice::UnlockedRun { label, store } => {
                let family = self.counted(label.as_str(), store).number;
                self.table.shard(0).counts.of(family, WRITE).unlocked_runs += 1;
            }
            Notice::FencingRegressed { label, store, .. } => {
                let family = self.counted(label.as_str(), store).number;
                self.table.shard(0).counts.of(family, WRITE).fencing_regressions += 1;
            }
            Notice::FencingChecked { token } => self.checked.note(*token),
            Notice::FencingRejected { token, .. } => {
                self.checked.note(*token);
                self.fencing_rejections.fetch_add(1, Ordering::Relaxed);
            }
            Notice::OrderInverted { inversion, store } => {
                let family = self.counted(inversion.wanted.as_str(), store).number;
                self.table.shard(0).counts.of(family, WRITE).order_inversions += 1;
            }
            Notice::Deadlocked { deadlock } => {
                let role = if deadlock.victim { VICTIM } else { MEMBER };
                self.deadlocks[role].fetch_add(1, Ordering::Relaxed);
            }
            Notice::JobEnded { label, store, succeeded: true } => self.family(label.as_str(), store).uses.succeeded(),
            Notice::Nested { held, wanted } => self.edges.note(held, wanted),
            _ => {}
        }
    }
}

fn error_kind(error: &LockError) -> &'static str {
    match error.kind() {
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::Misconfigured => "misconfigured",
        _ => "other",
    }
}
