//! The result of a scan.

pub(crate) mod done;
pub(crate) mod job;

use std::cmp::Reverse;

use lock_core::inspect::{EntryState, FleetHolder, FleetReader, LockEntry, ScanOptions};
use lock_core::store::{DoneMark, JobRecord};
use lock_core::{LockError, LockKey, NodeReport, SyncReport};
use serde_json::{Value, json};

use crate::args::{Scope, Wanted};
use crate::end::End;
use crate::members::{self, Seen};
use crate::record;
use crate::values;
use lock_core::store::text::{human, visible};

/// Every lock that a scan found.
pub(crate) struct Listing {
    pub(crate) entries: Vec<LockEntry>,
    /// The records of jobs, by the key of their lock. Overdue jobs come first, then jobs whose last run failed.
    pub(crate) jobs: Vec<(LockKey, JobRecord)>,
    /// The work that is done for a version, by the key of the lock.
    pub(crate) done: Vec<(LockKey, DoneMark)>,
    pub(crate) truncated: bool,
    /// How many more locks were found than are listed, because of a limit.
    pub(crate) hidden: usize,
    /// How many strings look like locks of other clients but were not requested, and one of them.
    pub(crate) left_out: (u64, Option<LockKey>),
    /// The servers that were read: the masters of a cluster, or one server.
    pub(crate) servers: Vec<String>,
    /// The members of a quorum, and how many jobs each remembers.
    pub(crate) members: Option<SyncReport<u64>>,
    /// Why it is not known which locks are held: too few members of a quorum answered.
    pub(crate) unknown: Option<LockError>,
}

pub(crate) async fn scan(fleet: &FleetReader, scope: &Scope) -> Result<Listing, LockError> {
    let mut options = ScanOptions::new().with_max_keys(scope.max_keys);
    if let Some(prefix) = &scope.prefix {
        options = options.with_prefix(prefix).with_foreign_prefix(prefix);
    }
    let mut scan = fleet.scan(options);
    let mut entries = Vec::new();
    let unknown = loop {
        match scan.next().await {
            Ok(Some(batch)) => entries.extend(batch),
            Ok(None) => break None,
            // The answers of some members are shown, although they are not a majority.
            Err(error) if scan.members().is_some_and(|members| members.known().next().is_some()) => break Some(error),
            Err(error) => return Err(error),
        }
    };
    record::sort(&mut entries);
    let servers = scan.servers().into_iter().map(str::to_owned).collect();
    let (left_out, example) = scan.left_out();
    let left_out = (left_out, example.cloned());
    let mut jobs: Vec<_> = scan.jobs().map(|(key, record)| (key.clone(), record.clone())).collect();
    jobs.sort_by_cached_key(|(key, record)| (Reverse(record.overdue()), record.succeeded, key.clone()));
    let done = scan.done().map(|(key, mark)| (key.clone(), mark.clone())).collect();
    let truncated = scan.is_truncated();
    let members = scan.members().cloned();
    Ok(Listing { entries, jobs, done, truncated, hidden: 0, left_out, servers, members, unknown })
}

/// Lists the locks that are asked for.
pub(crate) async fn list(fleet: &FleetReader, wanted: &Wanted) -> Result<Listing, LockError> {
    let mut listing = scan(fleet, &wanted.scope).await?;
    let filter = &wanted.filter;
    listing.entries.retain(|entry| record::is_wanted(entry, filter));
    let most = filter.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    listing.hidden = listing.entries.len().saturating_sub(most);
    listing.entries.truncate(most);
    Ok(listing)
}

/// How many keys are looked at to find the locks of a name.
const NAMED: u64 = 100_000;

/// Returns the key that is meant: a key itself, or of the locks with this name the one that hurts most, and how many there are.
pub(crate) async fn key_of_name(fleet: &FleetReader, key: &LockKey) -> Result<Option<(LockKey, usize)>, LockError> {
    let seen = Seen::read(fleet, key).await?;
    if seen.entry.is_some() || seen.end() == End::Unavailable {
        return Ok(None);
    }
    let name = values::without(fleet.key_prefix(), key);
    let mut listing = scan(fleet, &Scope { prefix: None, max_keys: NAMED }).await?;
    listing.entries.retain(|entry| entry.holder.lock() == Some(name) && record::is_decided(entry));
    Ok(listing.entries.first().map(|entry| (entry.key.clone(), listing.entries.len())))
}

/// Lists those who share a lock, if it is shared.
pub(crate) async fn shared_by(fleet: &FleetReader, entry: Option<&LockEntry>) -> Result<Vec<FleetHolder>, LockError> {
    match entry {
        Some(entry) if entry.state == EntryState::Shared => fleet.holders(&entry.key).await,
        _ => Ok(Vec::new()),
    }
}

impl Listing {
    /// Says how a command ends that shows the listing.
    pub(crate) fn end(&self) -> End {
        if self.unknown.is_some() { End::Unavailable } else { End::Ok }
    }

    /// Returns everything that was found.
    pub(crate) fn json(&self, fleet: &FleetReader, owners: bool) -> Value {
        let locks: Vec<Value> = self.entries.iter().map(|entry| record::json(entry, owners)).collect();
        let mut document = json!({
            "server": fleet.node(),
            "servers": self.servers,
            "truncated": self.truncated,
            "hidden": self.hidden,
            "foreign_left_out": self.left_out.0,
            "locks": locks,
            "jobs": job::many_json(self),
        });
        self.identify(&mut document);
        document
    }

    /// Adds the members of a quorum, and how much each has.
    pub(crate) fn identify(&self, document: &mut Value) {
        let Some(members) = &self.members else { return };
        let has = |entry: &LockEntry, at: usize| {
            entry
                .members
                .as_ref()
                .is_some_and(|all| matches!(all.nodes.get(at), Some(NodeReport { answer: Ok(Some(_)), .. })))
        };
        let member = |(at, member): (usize, &NodeReport<u64>)| match &member.answer {
            Ok(jobs) => {
                let locks = self.entries.iter().filter(|entry| has(entry, at)).count();
                json!({ "node": *member.node, "locks": locks, "jobs": jobs })
            }
            Err(error) => json!({ "node": *member.node, "error": error.to_string() }),
        };
        document["majority"] = json!(members.majority);
        document["members"] = members.nodes.iter().enumerate().map(member).collect();
    }

    /// Names what was read.
    pub(crate) fn node(&self, fleet: &FleetReader) -> String {
        if let Some(members) = &self.members {
            return format!("{} of {} members", members.known().count(), members.nodes.len());
        }
        match self.servers.as_slice() {
            [_, _, ..] => format!("{} masters of the cluster of {}", self.servers.len(), visible(fleet.node())),
            _ => visible(fleet.node()),
        }
    }

    /// Returns a summary, in one line, and in another what is missing.
    pub(crate) fn summary(&self, fleet: &FleetReader) -> String {
        let mut text = self.held(fleet);
        let eternal = self.entries.iter().filter(|entry| entry.is_without_ttl() && record::is_decided(entry)).count();
        if eternal > 0 {
            text.push_str(&format!(", {eternal} of them without an expiry"));
        }
        if self.hidden > 0 {
            text.push_str(&format!(", and {} more that --limit leaves out", self.hidden));
        }
        if self.truncated {
            text.push_str("; the scan ended early, raise --max-keys to see the rest");
        }
        text += &self.overdue().map(|overdue| format!("\n{overdue}")).unwrap_or_default();
        self.add_hint(fleet, &mut text);
        text + &self.members.as_ref().map(members::silent).unwrap_or_default()
    }

    /// Says how many locks are held.
    fn held(&self, fleet: &FleetReader) -> String {
        let Some(members) = &self.members else {
            let node = self.node(fleet);
            return match self.entries.len() {
                0 => format!("no lock is held on {node}"),
                1 => format!("1 lock on {node}"),
                count => format!("{count} locks on {node}"),
            };
        };
        let count = |state| self.entries.iter().filter(|entry| entry.state == state).count();
        let (parts, open) = (count(EntryState::Minority), count(EntryState::Unknown));
        let mut text = match self.entries.len() - parts - open {
            0 => "no lock is held".to_owned(),
            1 => "1 lock is held".to_owned(),
            held => format!("{held} locks are held"),
        };
        text += &format!(" by {} or more of {} members", members.majority, members.nodes.len());
        if open > 0 {
            text += &format!("; {open} may be, at members that gave no answer");
        }
        if parts > 0 {
            text += &format!("; {parts} without a majority: an acquire on its way, or what one left behind");
        }
        text
    }

    /// Says what was left out.
    fn add_hint(&self, fleet: &FleetReader, text: &mut String) {
        match (self.left_out.0, self.hint(fleet.key_prefix())) {
            (0, _) | (_, None) => {}
            (_, Some(hint)) if self.entries.is_empty() => text.push_str(&format!("\n{hint}")),
            (1, _) => text.push_str("\n1 string may be a lock of another client; --prefix shows it"),
            (count, _) => {
                text.push_str(&format!("\n{count} strings may be locks of other clients; --prefix shows them"));
            }
        }
    }

    /// Names the job that is most overdue, if one is.
    fn overdue(&self) -> Option<String> {
        let overdue: Vec<String> = self.jobs.iter().filter_map(|(key, record)| overdue(key, record)).collect();
        let worst = overdue.first()?;
        let more = if overdue.len() > 1 { format!(", and {} more", overdue.len() - 1) } else { String::new() };
        Some(format!("overdue: {worst}{more}; lockctl jobs says who ran them last"))
    }

    /// Says how to see what was left out, if anything was. `namespace` is that of the URL.
    fn hint(&self, namespace: &str) -> Option<String> {
        let (count @ 1.., Some(example)) = &self.left_out else { return None };
        let name = example.as_str().strip_prefix(namespace).unwrap_or(example.as_str());
        let prefix = name.split_inclusive(':').next().unwrap_or_default();
        Some(format!(
            "{count} strings may be locks of other clients, such as {}; to see them, name what their keys begin with: \
             lockctl list --prefix {}",
            visible(example.as_str()),
            visible(prefix),
        ))
    }
}

fn overdue(key: &LockKey, record: &JobRecord) -> Option<String> {
    Some(format!("the job {} by {}", visible(key.as_str()), human(record.overdue()?)))
}
