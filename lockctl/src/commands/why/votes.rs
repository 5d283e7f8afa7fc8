//! Shows the answer of each member of a quorum about a key, and whether its vote would count.

use std::time::Duration;

use lock_core::LockKey;
use lock_core::inspect::{EntryState, LockEntry, Server, Topology};
use serde_json::{Value, json};

use crate::commands::topology;
use crate::end::End;
use crate::members::{Joint, Verdict, View, is_same};
use crate::record;
use lock_core::store::text::human;

pub(crate) struct Votes {
    pub(crate) view: View,
    pub(crate) topology: Topology,
}

impl Votes {
    pub(crate) fn end(&self) -> End {
        self.view.end_of(self.view.joint().as_ref())
    }

    /// Returns by how many members a lock is held, in words; `None` if it is not known to be held.
    pub(crate) fn held_at(&self) -> Option<String> {
        let joint = self.view.joint().filter(|joint| joint.verdict == Verdict::Majority)?;
        Some(format!(", at {} of {} members", joint.count, self.view.nodes.len()))
    }

    /// Says in one sentence whether it is held.
    pub(crate) fn summary(&self, key: &LockKey) -> String {
        self.view.summary(key, self.view.joint().as_ref())
    }

    /// Says of each member what it has, and whether it grants.
    pub(crate) fn members(&self) -> Vec<String> {
        let joint = self.view.joint();
        let said = self.view.nodes.iter().zip(&self.view.said).enumerate();
        let member = |(at, (node, said)): (usize, (&String, &Result<_, _>))| match said {
            Err(error) => format!("{node}: no answer: {error}"),
            Ok(_) => {
                let has = has(joint.as_ref(), at);
                format!("{node}: {has}{}", self.topology.servers.get(at).map(vote).unwrap_or_default())
            }
        };
        said.map(member).collect()
    }

    /// Says whether the members grant locks.
    pub(crate) fn grants(&self) -> String {
        topology::summary(&self.topology)
    }

    /// Adds what the members say.
    pub(crate) fn add_to(&self, document: &mut Value, key: &LockKey) {
        let joint = self.view.joint();
        match &joint {
            Some(joint) => document["state"] = json!(joint.state()),
            None if self.end() == End::Unavailable => document["state"] = json!("unknown"),
            None => {}
        }
        self.view.identify(document, key, joint.as_ref(), true);
        let members = document["members"].as_array_mut().into_iter().flatten();
        for (member, server) in members.zip(&self.topology.servers) {
            topology::add_vote(member, server);
        }
        document["gives_locks"] = json!(topology::gives_locks(&self.topology));
    }
}

/// Says what one member has.
fn has(joint: Option<&Joint<'_>>, at: usize) -> String {
    let Some((joint, entry)) = joint.and_then(|joint| Some((joint, joint.at[at]?))) else {
        return match joint {
            Some(joint) if joint.verdict == Verdict::Majority => {
                "does not have it, until the next renewal gives it the claim again".to_owned()
            }
            _ => "free".to_owned(),
        };
    };
    let lease = match (entry.is_without_ttl(), entry.renewed_ago()) {
        (true, _) => "for ever".to_owned(),
        (_, Some(ago)) => format!("{} left, renewed {} ago", record::lease_left(entry), human(ago)),
        (_, None) => format!("{} left", record::lease_left(entry)),
    };
    let who = match joint.verdict {
        Verdict::Majority if is_same(entry, joint.entry) => "has it".to_owned(),
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
