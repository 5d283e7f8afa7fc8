//! Prints the answers of a quorum's members, for people and for programs.

use lock_core::{LockError, LockKey};
use serde_json::{Value, json};

use super::{Joint, Verdict, View, is_same};
use crate::listing::Listing;
use crate::listing::job;
use crate::output::Table;
use crate::record;
use lock_core::store::text::{human, visible};

impl View {
    pub(super) fn list(&self, owners: bool, prefix: &str) -> String {
        let joints = self.joints();
        let mut text = String::new();
        if !joints.is_empty() {
            let heads = ["KEY", "STATE", "MEMBERS", "HELD FOR", "LEASE LEFT", "CALL SITE", "PROCESS", "OWNER"];
            let mut table = Table::new(&heads);
            for joint in &joints {
                let [held_for, _, site, process, owner] = record::cells(joint.entry, owners);
                let members = format!("{} of {}", joint.count, self.said.len());
                let left = joint.lease_left().map_or("for ever".to_owned(), human);
                let key = joint.entry.key.as_str().to_owned();
                table.row([key, joint.state().to_owned(), members, held_for, left, site, process, owner]);
            }
            text = table.render() + "\n";
        }
        let count = |verdict| joints.iter().filter(|joint| joint.verdict == verdict).count();
        let (held, parts, open) = (count(Verdict::Majority), count(Verdict::Minority), count(Verdict::Unknown));
        text += &match held {
            0 => "no lock is held".to_owned(),
            1 => "1 lock is held".to_owned(),
            held => format!("{held} locks are held"),
        };
        text += &format!(" by {} or more of {} members", self.majority, self.said.len());
        if open > 0 {
            text += &format!("; {open} may be, at members that gave no answer");
        }
        if parts > 0 {
            text += &format!("; {parts} without a majority: an acquire on its way, or what one left behind");
        }
        if self.is_truncated() {
            text.push_str("; the scan ended early, raise --max-keys to see the rest");
        }
        if let (true, Some(hint)) = (joints.is_empty(), self.said.iter().flatten().find_map(|said| said.hint(prefix))) {
            text += &format!("\n{hint}");
        }
        text += &self.together().overdue().map(|overdue| format!("\n{overdue}")).unwrap_or_default();
        text + &self.silent()
    }

    /// Says who gave no answer, and what follows from that.
    pub(crate) fn silent(&self) -> String {
        let mut text = String::new();
        for (node, said) in self.nodes.iter().zip(&self.said) {
            if let Err(error) = said {
                text += &format!("\n{} gave no answer: {}", visible(node), visible(&error.to_string()));
            }
        }
        if self.answered() < self.majority {
            text += "\nwithout a majority no lock is granted, and those that are held end at their deadlines";
        }
        text
    }

    pub(crate) fn show(&self, key: &LockKey, joint: Option<&Joint<'_>>, owners: bool) -> String {
        let mut table = Table::new(&["MEMBER", "STATE", "HELD FOR", "LEASE LEFT", "CALL SITE", "PROCESS", "OWNER"]);
        for (at, (node, said)) in self.nodes.iter().zip(&self.said).enumerate() {
            let entry = joint.and_then(|joint| joint.at[at]);
            let state = match (said, entry) {
                (Err(_), _) => "no answer",
                (Ok(_), Some(entry)) => entry.state.as_str(),
                (Ok(_), None) => "free",
            };
            let nothing = || std::array::from_fn(|_| record::NOTHING.to_owned());
            let [held_for, left, site, process, owner] =
                entry.map_or_else(nothing, |entry| record::cells(entry, owners));
            table.row([node.clone(), state.to_owned(), held_for, left, site, process, owner]);
        }
        let mut text = format!("{}\n{}", table.render(), self.summary(key, joint));
        for (_, job) in self.together().jobs {
            text += &visible(&format!("\njob  {}", job::sentence(&job)));
        }
        text += &self.silent();
        let held = joint.filter(|joint| owners && joint.verdict == Verdict::Majority);
        if let Some(command) = held.and_then(|joint| record::release_command(joint.entry)) {
            text += &record::release_hint(&command);
        }
        text
    }

    pub(crate) fn summary(&self, key: &LockKey, joint: Option<&Joint<'_>>) -> String {
        let (key, all, majority) = (visible(key.as_str()), self.said.len(), self.majority);
        let Some(joint) = joint else {
            return match self.answered() >= majority {
                true => format!("{key} is free"),
                false => format!("it is unknown whether {key} is free"),
            };
        };
        let have = format!("{} of {all} members have it, and {majority} must", joint.count);
        match joint.verdict {
            Verdict::Majority if joint.count < all => format!("{key} is held: {have}; renewals repair the others"),
            Verdict::Majority => format!("{key} is held: {have}"),
            Verdict::Minority => {
                format!("{key} is held by nobody: {have}; an acquire is on its way, or what one left ends by itself")
            }
            Verdict::Unknown => format!("it is unknown whether {key} is held: {have}"),
        }
    }

    pub(super) fn list_json(&self, owners: bool) -> Value {
        let lock = |joint: &Joint<'_>| {
            let mut lock = record::json(joint.entry, owners);
            lock["state"] = json!(joint.state());
            lock["ttl_left_seconds"] = json!(joint.lease_left().map(|left| left.as_secs_f64()));
            let having = self.nodes.iter().zip(&joint.at);
            lock["members"] = having
                .filter(|(_, at)| at.is_some_and(|at| is_same(at, joint.entry)))
                .map(|(node, _)| node.as_str())
                .collect();
            lock
        };
        let member = |(node, said): (&String, &Result<Listing, LockError>)| match said {
            Ok(listing) => json!({ "node": node, "locks": listing.entries.len() }),
            Err(error) => json!({ "node": node, "error": error.to_string() }),
        };
        json!({
            "majority": self.majority,
            "members": self.nodes.iter().zip(&self.said).map(member).collect::<Vec<_>>(),
            "truncated": self.is_truncated(),
            "locks": self.joints().iter().map(lock).collect::<Vec<_>>(),
            "jobs": job::many_json(&self.together()),
        })
    }

    pub(crate) fn show_json(&self, key: &LockKey, joint: Option<&Joint<'_>>, owners: bool) -> Value {
        let mut document = joint.map_or_else(|| record::free_json(key), |joint| record::json(joint.entry, owners));
        match joint {
            Some(joint) => {
                document["state"] = json!(joint.state());
                document["ttl_left_seconds"] = json!(joint.lease_left().map(|left| left.as_secs_f64()));
            }
            None if self.answered() < self.majority => document["state"] = json!("unknown"),
            None => {}
        }
        for (_, job) in self.together().jobs {
            document["job"] = job::json(&job);
        }
        self.identify(&mut document, key, joint, owners);
        document
    }

    /// Adds who the members are, and what each has.
    pub(crate) fn identify(&self, document: &mut Value, key: &LockKey, joint: Option<&Joint<'_>>, owners: bool) {
        let member = |(at, (node, said)): (usize, (&String, &Result<Listing, LockError>))| {
            let mut member = match (said, joint.and_then(|joint| joint.at[at])) {
                (Err(error), _) => json!({ "state": "no_answer", "error": error.to_string() }),
                (Ok(_), Some(entry)) => record::json(entry, owners),
                (Ok(_), None) => record::free_json(key),
            };
            member["node"] = json!(node);
            member
        };
        document["majority"] = json!(self.majority);
        document["members"] = self.nodes.iter().zip(&self.said).enumerate().map(member).collect();
    }

    /// Says which members have processes in their own queue, which members of a quorum are not asked for.
    pub(crate) fn strays(&self) -> Vec<String> {
        let queued = |(node, said): (&String, &Result<Listing, LockError>)| {
            let waiters =
                said.iter().flat_map(|listing| &listing.entries).filter_map(|entry| entry.waiters).sum::<u64>();
            let (who, uses) =
                if waiters == 1 { ("1 process stands", "it uses") } else { ("processes stand", "they use") };
            let count = if waiters == 1 { String::new() } else { format!("{waiters} ") };
            (waiters > 0).then(|| {
                format!(
                    "{count}{who} in the queue of {}: {uses} that server alone, by its own URL, which this quorum does not \
                     exclude; give every process the URL of the quorum",
                    visible(node),
                )
            })
        };
        self.nodes.iter().zip(&self.said).filter_map(queued).collect()
    }
}
