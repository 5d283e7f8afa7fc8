//! The commands that run once.

use lock_core::inspect::{EntryState, FleetReader, LockEntry, ScanOptions};
use lock_core::{Freed, LockError, LockKey, OwnerId};
use serde_json::{Value, json};

use crate::args::Wanted;
use crate::output::{Output, Table};
use crate::text::visible;
use crate::{End, Failure, audit, complain, record};

/// Every lock that a scan found.
pub(crate) struct Listing {
    pub(crate) entries: Vec<LockEntry>,
    pub(crate) truncated: bool,
    /// Who was read: the masters of a cluster, or one server.
    servers: Vec<String>,
}

pub(crate) async fn scan(fleet: &FleetReader, wanted: &Wanted) -> Result<Listing, LockError> {
    let mut options = ScanOptions::new().with_max_keys(wanted.max_keys);
    if let Some(prefix) = &wanted.prefix {
        options = options.with_prefix(prefix).with_foreign_prefix(prefix);
    }
    let mut scan = fleet.scan(options);
    let mut entries = Vec::new();
    while let Some(batch) = scan.next().await? {
        entries.extend(batch);
    }
    record::sort(&mut entries);
    let servers = scan.servers().into_iter().map(str::to_owned).collect();
    Ok(Listing { entries, truncated: scan.is_truncated(), servers })
}

impl Listing {
    pub(crate) fn json(&self, fleet: &FleetReader, wanted: &Wanted) -> Value {
        let locks: Vec<Value> = self.entries.iter().map(|entry| record::json(entry, wanted.owners)).collect();
        json!({ "server": fleet.node(), "servers": self.servers, "truncated": self.truncated, "locks": locks })
    }

    /// Says how much there is, in one line.
    pub(crate) fn summary(&self, fleet: &FleetReader) -> String {
        let node = match self.servers.as_slice() {
            [_, _, ..] => format!("{} masters of the cluster of {}", self.servers.len(), visible(fleet.node())),
            _ => visible(fleet.node()),
        };
        let mut text = match self.entries.len() {
            0 => format!("no lock is held on {node}"),
            1 => format!("1 lock on {node}"),
            count => format!("{count} locks on {node}"),
        };
        let eternal = self.entries.iter().filter(|entry| entry.is_without_ttl()).count();
        if eternal > 0 {
            text.push_str(&format!(", {eternal} of them without an expiry"));
        }
        if self.truncated {
            text.push_str("; the scan ended early, raise --max-keys to see the rest");
        }
        text
    }
}

pub(crate) async fn list(fleet: &FleetReader, wanted: &Wanted, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, wanted).await?;
    if out.is_json() {
        out.document(&listing.json(fleet, wanted))?;
        return Ok(End::Ok);
    }
    if !listing.entries.is_empty() {
        out.line(&record::table(&listing.entries, wanted.owners))?;
    }
    out.line(&listing.summary(fleet))?;
    Ok(End::Ok)
}

pub(crate) async fn show(fleet: &FleetReader, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let entry = fleet.entry(key).await?;
    if out.is_json() {
        out.document(&entry.as_ref().map_or_else(|| free_json(key), |entry| record::json(entry, true)))?;
    } else if let Some(entry) = &entry {
        out.line(&details(entry))?;
        if let Some(hint) = release_hint(entry) {
            out.line(&hint)?;
        }
    } else {
        out.line(&format!("{} is free", visible(key.as_str())))?;
    }
    Ok(if entry.is_some() { End::Ok } else { End::NotFound })
}

pub(crate) fn free_json(key: &LockKey) -> Value {
    json!({ "key": key.as_str(), "state": "free" })
}

fn details(entry: &LockEntry) -> String {
    let mut table = Table::new(&["", ""]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    line("key", entry.key.as_str().to_owned());
    line(
        "state",
        match entry.state {
            EntryState::Held => "held",
            EntryState::Kept => "kept: released, and taken for the rest of its min_hold",
            _ => "foreign: a client of another library, or another use of this key",
        }
        .to_owned(),
    );
    if let Some(info) = &entry.holder.info {
        line("call site", info.site.to_string());
        line("process", record::process(info));
    }
    if entry.state == EntryState::Held {
        line("held for", record::held_for(entry));
    }
    line("lease left", record::lease_left(entry));
    line("waiters", entry.waiters.to_string());
    if let Some(token) = entry.holder.token {
        line("token", token.to_string());
    }
    if let Some(owner) = entry.holder.owner {
        line("owner", record::owner(owner, true));
    }
    table.render().trim_start().to_owned()
}

/// Spells the command that would release this lock, if a shell can be told its key.
fn release_hint(entry: &LockEntry) -> Option<String> {
    let owner = entry.holder.owner?;
    let key = entry.key.as_str();
    let plain = visible(key) == key && !key.starts_with('-');
    let quoted = format!("'{}'", key.replace('\'', "'\\''"));
    plain.then(|| {
        format!(
            "\nto force it free, if its process is gone or all that it writes to checks fencing tokens:\n  \
             lockctl release {quoted} --expect-owner {} --reason '…'",
            owner.to_hex()
        )
    })
}

pub(crate) async fn waiters(fleet: &FleetReader, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let entry = fleet.entry(key).await?;
    let waiters = fleet.waiters(key).await?;
    let end = if entry.is_none() && waiters.is_empty() { End::NotFound } else { End::Ok };
    if out.is_json() {
        let holder = entry.as_ref().map(|entry| record::json(entry, false));
        let waiters: Vec<Value> = waiters.iter().map(record::waiter_json).collect();
        out.document(&json!({ "key": key.as_str(), "holder": holder, "waiters": waiters }))?;
        return Ok(end);
    }
    match &entry {
        Some(entry) => out.line(&record::table(std::slice::from_ref(entry), false))?,
        None => out.line(&format!("{} is free", visible(key.as_str())))?,
    }
    if waiters.is_empty() {
        out.line("nobody stands in the server's queue; who polls leaves no trace there, see /locks of each process")?;
    } else {
        out.line(&format!("\n{}", record::waiters_table(&waiters)))?;
    }
    Ok(end)
}

pub(crate) async fn release(
    fleet: &FleetReader,
    key: &LockKey,
    owner: OwnerId,
    reason: &str,
    out: &mut Output,
) -> Result<End, Failure> {
    // Read first, to say afterwards what was released; the server compares again.
    let before = fleet.entry(key).await?;
    let freed = fleet.release(key, owner, &audit::actor(), reason).await?;
    let is_ours = |entry: &&LockEntry| entry.holder.owner == Some(owner);
    if freed == Freed::Released {
        let was = before.as_ref().filter(is_ours);
        if out.is_json() {
            let was = was.map(|entry| record::json(entry, false));
            out.document(&json!({ "key": key.as_str(), "outcome": "released", "was": was }))?;
        } else {
            out.line(&format!("released {}{}", visible(key.as_str()), was.map_or(String::new(), past_hold)))?;
            out.line(
                "its holder learns of it with its next renewal and may go on writing until then; \
                 resources that check fencing tokens are safe",
            )?;
        }
        return Ok(End::Ok);
    }
    let now = fleet.entry(key).await?;
    if out.is_json() {
        let now = now.as_ref().map_or_else(|| free_json(key), |entry| record::json(entry, false));
        out.document(&json!({ "key": key.as_str(), "outcome": "not_held", "now": now }))?;
    }
    let who = now.as_ref().map_or_else(|| "it is free".to_owned(), describe);
    complain(&format!("nothing was released: {key} is not held by {}; {who}", record::owner(owner, false)));
    Ok(End::NotFound)
}

fn past_hold(entry: &LockEntry) -> String {
    let info = entry.holder.info.as_ref();
    let who = info.map_or(String::new(), |info| format!(", held by {} ({})", info.site, record::process(info)));
    let token = entry.holder.token.map_or(String::new(), |token| format!(", token {token}"));
    visible(&format!("{who} for {}{token}", record::held_for(entry)))
}

fn describe(entry: &LockEntry) -> String {
    match (entry.state, &entry.holder.info, entry.holder.owner) {
        (EntryState::Held, Some(info), Some(owner)) => {
            format!("now {} holds it ({}, owner {})", info.site, record::process(info), record::owner(owner, false))
        }
        (EntryState::Kept, _, _) => {
            format!("it was released already and stays taken for {} more", record::lease_left(entry))
        }
        _ => "a client of another library holds it; release it with the tools of that library".to_owned(),
    }
}
