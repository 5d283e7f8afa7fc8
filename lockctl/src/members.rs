//! One lock, as its store has it. In a quorum, each member has a part in it.

use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::store::JobRecord;
use lock_core::store::text::visible;
use lock_core::{LockError, LockKey, NodeReport, SyncReport};
use serde_json::{Value, json};

use crate::end::End;
use crate::output::Table;
use crate::record;

/// Where the waiters of a quorum are.
pub(crate) const NO_QUEUE: &str = "a quorum keeps no queue: who waits polls, and stands in the live view /locks of its \
     own process; `lockctl why KEY --live-view URL` reads them";

/// One lock.
pub(crate) struct Seen {
    pub(crate) key: LockKey,
    /// `None` if nobody has it. In a quorum, fewer members than a majority may have it.
    pub(crate) entry: Option<LockEntry>,
    /// The answer of each member, if the store is a quorum.
    pub(crate) members: Option<SyncReport<Option<LockEntry>>>,
}

impl Seen {
    /// Reads a lock. A member that gives no answer is part of what is seen.
    pub(crate) async fn read(fleet: &FleetReader, key: &LockKey) -> Result<Self, LockError> {
        let key = key.clone();
        loop {
            let entry = fleet.entry(&key).await;
            if let Ok(Some(entry)) = entry {
                let members = entry.members.as_deref().cloned();
                return Ok(Self { key, entry: Some(entry), members });
            }
            let Some(members) = fleet.members(&key).await? else {
                return Ok(Self { key, entry: entry?, members: None });
            };
            // Otherwise it was taken between the two questions.
            if members.known().all(Option::is_none) {
                return Ok(Self { key, entry: None, members: Some(members) });
            }
        }
    }

    /// Returns the lock if it is held.
    pub(crate) fn held(&self) -> Option<&LockEntry> {
        self.entry.as_ref().filter(|entry| record::is_decided(entry))
    }

    /// Reads the record of the job. A member that does not tell of it is named already.
    pub(crate) async fn job(&self, fleet: &FleetReader) -> Result<Option<JobRecord>, LockError> {
        match fleet.job(&self.key).await {
            Err(_) if self.members.is_some() => Ok(None),
            job => job,
        }
    }

    /// Says how a command ends that was asked for this lock.
    pub(crate) fn end(&self) -> End {
        match (&self.entry, &self.members) {
            (Some(entry), _) if entry.state == EntryState::Unknown => End::Unavailable,
            (Some(entry), _) if entry.state == EntryState::Minority => End::NotFound,
            (Some(_), _) => End::Ok,
            (None, Some(members)) if !members.has_majority() => End::Unavailable,
            (None, _) => End::NotFound,
        }
    }

    /// Returns by how many members it is held, in words. Empty if one store has it.
    pub(crate) fn at(&self) -> String {
        self.held().and_then(record::members).map(|members| format!(", at {members} members")).unwrap_or_default()
    }

    pub(crate) fn json(&self, owners: bool) -> Value {
        let mut document =
            self.entry.as_ref().map_or_else(|| record::free_json(&self.key), |it| record::json(it, owners));
        if self.entry.is_none() && self.end() == End::Unavailable {
            document["state"] = json!("unknown");
        }
        self.identify(&mut document, owners);
        document
    }

    /// Adds the members of a quorum, and what each has.
    pub(crate) fn identify(&self, document: &mut Value, owners: bool) {
        let Some(members) = &self.members else { return };
        let member = |at: &NodeReport<Option<LockEntry>>| {
            let mut member = match &at.answer {
                Err(error) => json!({ "state": "no_answer", "error": error.to_string() }),
                Ok(Some(entry)) => record::json(entry, owners),
                Ok(None) => record::free_json(&self.key),
            };
            member["node"] = json!(*at.node);
            member
        };
        document["majority"] = json!(members.majority);
        document["members"] = members.nodes.iter().map(member).collect();
    }

    /// Shows what each member of a quorum has. `None` if one store has it.
    pub(crate) fn votes(&self, job: Option<String>, owners: bool) -> Option<String> {
        let members = self.members.as_ref()?;
        let mut table = Table::new(&["MEMBER", "STATE", "HELD FOR", "LEASE LEFT", "CALL SITE", "PROCESS", "OWNER"]);
        for NodeReport { node, answer, .. } in &members.nodes {
            let entry = answer.as_ref().ok().and_then(Option::as_ref);
            let state = entry.map_or(if answer.is_ok() { "free" } else { "no answer" }, |entry| entry.state.as_str());
            let nothing = || std::array::from_fn(|_| record::NOTHING.to_owned());
            let [held_for, left, site, process, owner] =
                entry.map_or_else(nothing, |entry| record::cells(entry, owners));
            table.row([node.to_string(), state.to_owned(), held_for, left, site, process, owner]);
        }
        let mut text = format!("{}\n{}", table.render(), self.summary());
        if let Some(job) = job {
            text += &format!("\n{}", visible(&job));
        }
        text += &silent(members);
        if let Some(command) = self.held().filter(|_| owners).and_then(record::release_command) {
            text += &record::release_hint(&command);
        }
        Some(text)
    }

    /// Says in one sentence whether it is held.
    pub(crate) fn summary(&self) -> String {
        let key = visible(self.key.as_str());
        let Some((entry, members)) = self.entry.as_ref().zip(self.members.as_ref()) else {
            return match self.end() {
                End::Unavailable => format!("it is unknown whether {key} is free"),
                _ => format!("{key} is free"),
            };
        };
        let (count, all) = (record::having(entry), members.nodes.len());
        let have = format!("{count} of {all} members have it, and {} must", members.majority);
        match entry.state {
            EntryState::Minority => {
                format!("{key} is held by nobody: {have}; an acquire is on its way, or what one left ends by itself")
            }
            EntryState::Unknown => format!("it is unknown whether {key} is held: {have}"),
            _ if count < all => format!("{key} is held: {have}; renewals repair the others"),
            _ => format!("{key} is held: {have}"),
        }
    }

    /// Names the members that have processes in their own queue, which members of a quorum are not asked for.
    pub(crate) fn strays(&self) -> Vec<String> {
        let queued = |NodeReport { node, answer, .. }: &NodeReport<Option<LockEntry>>| {
            let waiters = answer.as_ref().ok()?.as_ref()?.waiters.filter(|waiters| *waiters > 0)?;
            let (who, uses) = match waiters {
                1 => ("1 process stands".to_owned(), "it uses"),
                _ => (format!("{waiters} processes stand"), "they use"),
            };
            Some(format!(
                "{who} in the queue of {}: {uses} that server alone, by its own URL, which this quorum does not exclude; give \
                 every process the URL of the quorum",
                visible(node),
            ))
        };
        self.members.iter().flat_map(|members| &members.nodes).filter_map(queued).collect()
    }
}

/// Names the members that gave no answer, and says what follows from that.
pub(crate) fn silent<T>(members: &SyncReport<T>) -> String {
    let mut text = String::new();
    for NodeReport { node, answer, .. } in &members.nodes {
        if let Err(error) = answer {
            text += &format!("\n{} gave no answer: {}", visible(node), visible(&error.to_string()));
        }
    }
    if !members.has_majority() {
        text += "\nwithout a majority no lock is granted, and those that are held end at their deadlines";
    }
    text
}
