//! Shows the answer of each member of a quorum about a key, and whether its vote would count.

use std::time::Duration;

use lock_core::NodeReport;
use lock_core::inspect::{EntryState, LockEntry, Server, Topology};
use serde_json::{Value, json};

use crate::commands::topology;
use crate::members::Seen;
use crate::record;
use lock_core::store::text::human;

pub(crate) struct Votes {
    pub(crate) seen: Seen,
    pub(crate) topology: Topology,
}

impl Votes {
    /// Says of each member what it has, and whether it grants.
    pub(crate) fn members(&self) -> Vec<String> {
        let members = self.seen.members.iter().flat_map(|members| &members.nodes).enumerate();
        let member = |(at, NodeReport { node, answer, .. }): (usize, &NodeReport<Option<LockEntry>>)| match answer {
            Err(error) => format!("{node}: no answer: {error}"),
            Ok(entry) => {
                let has = has(&self.seen, entry.as_ref());
                format!("{node}: {has}{}", self.topology.servers.get(at).map(vote).unwrap_or_default())
            }
        };
        members.map(member).collect()
    }

    /// Says whether the members grant locks.
    pub(crate) fn grants(&self) -> String {
        topology::summary(&self.topology)
    }

    /// Adds what the members say.
    pub(crate) fn add_to(&self, document: &mut Value) {
        document["state"] = self.seen.json(true)["state"].take();
        self.seen.identify(document, true);
        let members = document["members"].as_array_mut().into_iter().flatten();
        for (member, server) in members.zip(&self.topology.servers) {
            topology::add_vote(member, server);
        }
        document["gives_locks"] = json!(topology::gives_locks(&self.topology));
    }
}

/// Says what one member has.
fn has(seen: &Seen, entry: Option<&LockEntry>) -> String {
    let Some(entry) = entry else {
        return match seen.held() {
            Some(_) => "does not have it, until the next renewal gives it the claim again".to_owned(),
            None => "free".to_owned(),
        };
    };
    let lease = match (entry.is_without_ttl(), entry.renewed_ago()) {
        (true, _) => "for ever".to_owned(),
        (_, Some(ago)) => format!("{} left, renewed {} ago", record::lease_left(entry), human(ago)),
        (_, None) => format!("{} left", record::lease_left(entry)),
    };
    let who = match seen.held() {
        Some(held) if held.has_holder_of(entry) => "has it".to_owned(),
        _ => format!("has it for {}", holder(entry)),
    };
    format!("{who}, {lease}")
}

fn holder(entry: &LockEntry) -> String {
    match (entry.state, &entry.holder.info) {
        (EntryState::Kept, _) => "the rest of its min_hold".to_owned(),
        (_, Some(info)) => format!("{}, {}", info.site, record::process(info)),
        (_, None) => "a client of another library".to_owned(),
    }
}

/// Says why a member's vote does not count, if it does not.
fn vote(server: &Server) -> String {
    match (&server.problem, server.excluded_for) {
        (Some(problem), _) => format!("; its vote does not count: {problem}"),
        (None, Some(Duration::MAX)) => {
            "; its vote does not count until max_ttl after the next one: it is new, was flushed or failed over"
                .to_owned()
        }
        (None, Some(left)) => format!(
            "; its vote does not count for another {}: it was new, flushed or failed over, and may have forgotten what it \
             granted",
            human(left)
        ),
        (None, None) => String::new(),
    }
}
