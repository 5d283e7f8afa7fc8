//! The commands that run once.

use lock_core::inspect::{EntryState, FleetHolder, FleetReader, LockEntry};
use lock_core::{JobRecord, LockError, LockKey};
use serde_json::{Value, json};

use crate::args::Wanted;
use crate::listing::{Listing, scan};
use crate::output::{Output, Table};
use crate::{End, Failure, jobs, record, values};
use lock_core::text::visible;

/// Returns everything that a scan found.
pub(crate) fn listing_json(listing: &Listing, fleet: &FleetReader, wanted: &Wanted) -> Value {
    let locks: Vec<Value> = listing.entries.iter().map(|entry| record::json(entry, wanted.owners)).collect();
    json!({
        "server": fleet.node(),
        "servers": listing.servers,
        "truncated": listing.truncated,
        "foreign_left_out": listing.left_out.0,
        "locks": locks,
        "jobs": jobs::many_json(listing),
    })
}

pub(crate) async fn list(fleet: &FleetReader, wanted: &Wanted, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, &wanted.scope).await?;
    if out.is_json() {
        out.document(&listing_json(&listing, fleet, wanted))?;
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
    let holders = shared_by(fleet, entry.as_ref()).await?;
    let job = fleet.job(key).await?;
    if out.is_json() {
        let mut document = entry.as_ref().map_or_else(|| free_json(key), |entry| record::json(entry, true));
        if let Some(job) = &job {
            document["job"] = jobs::json(job);
        }
        if !holders.is_empty() {
            document["holders"] = record::holders_json(&holders, true);
        }
        out.document(&document)?;
    } else if let Some(entry) = &entry {
        out.line(&details(entry, job.as_ref()))?;
        if !holders.is_empty() {
            out.line(&format!("\n{}", record::holders_table(&holders, true)))?;
        }
        if let Some(command) = release_command(entry) {
            out.line(&release_hint(&command))?;
        }
    } else {
        out.line(&format!("{} is free", visible(key.as_str())))?;
        if let Some(job) = &job {
            out.line(&visible(&format!("job  {}", jobs::sentence(job))))?;
        }
    }
    Ok(if entry.is_some() { End::Ok } else { End::NotFound })
}

/// Lists those who share a lock, if it is shared.
pub(crate) async fn shared_by(fleet: &FleetReader, entry: Option<&LockEntry>) -> Result<Vec<FleetHolder>, LockError> {
    match entry {
        Some(entry) if entry.state == EntryState::Shared => fleet.holders(&entry.key).await,
        _ => Ok(Vec::new()),
    }
}

pub(crate) fn free_json(key: &LockKey) -> Value {
    json!({ "key": key.as_str(), "state": "free" })
}

fn details(entry: &LockEntry, job: Option<&JobRecord>) -> String {
    let mut table = Table::new(&["", ""]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    line("key", entry.key.as_str().to_owned());
    line(
        "state",
        match entry.state {
            EntryState::Held => "held",
            EntryState::Shared => "shared: by those below",
            EntryState::Kept => "kept: released, and taken for the rest of its min_hold",
            _ => "foreign: a client of another library, or another use of this key",
        }
        .to_owned(),
    );
    if let Some(units) = entry.units {
        line("in use", format!("{units} readers or permits"));
    } else if let Some(info) = &entry.holder.info {
        line("call site", info.site.to_string());
        line("process", record::process(info));
    }
    if matches!(entry.state, EntryState::Held | EntryState::Shared) {
        line("held for", record::held_for(entry));
    }
    line("lease left", record::lease_left(entry));
    line("waiters", record::waiters(entry));
    if let Some(job) = job {
        line("job", jobs::sentence(job));
    }
    if entry.state == EntryState::Held {
        line("token", "known to the holder's process alone; its live view /locks shows it".to_owned());
    }
    if let Some(owner) = entry.holder.owner {
        line("owner", record::owner(owner, true));
    }
    if let Some(value) = whole_value(entry) {
        line("value", values::spell(value));
    }
    table.render().trim_start().to_owned()
}

/// Returns the command that would release this lock, if its key can be written in a shell.
pub(crate) fn release_command(entry: &LockEntry) -> Option<String> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let key = entry.key.as_str();
    let expected = match (entry.holder.owner, whole_value(entry)) {
        (Some(owner), _) => format!("--expect-owner {}", owner.to_hex()),
        (None, Some(value)) => format!("--expect-value={}", quoted(&values::spell(value))),
        (None, None) => return None,
    };
    let plain = visible(key) == key && !key.starts_with('-');
    plain.then(|| format!("lockctl release {} {expected} --reason '…'", quoted(key)))
}

/// Says when that command may be used.
pub(crate) fn release_hint(command: &str) -> String {
    format!("\nto force it free, if its process is gone or all that it writes to checks fencing tokens:\n  {command}")
}

/// Returns the value that a foreign client wrote, if it was read completely.
fn whole_value(entry: &LockEntry) -> Option<&[u8]> {
    entry.foreign_value.as_deref().filter(|value| (1..=1024).contains(&value.len()))
}

pub(crate) async fn waiters(fleet: &FleetReader, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let entry = fleet.entry(key).await?;
    let holders = shared_by(fleet, entry.as_ref()).await?;
    let waiters = fleet.waiters(key).await?;
    let end = if entry.is_none() && waiters.is_empty() { End::NotFound } else { End::Ok };
    if out.is_json() {
        let holder = entry.as_ref().map(|entry| record::json(entry, false));
        let waiters: Vec<Value> = waiters.iter().map(record::waiter_json).collect();
        let holders = record::holders_json(&holders, false);
        out.document(&json!({ "key": key.as_str(), "holder": holder, "holders": holders, "waiters": waiters }))?;
        return Ok(end);
    }
    match &entry {
        Some(entry) => out.line(&record::table(std::slice::from_ref(entry), false))?,
        None => out.line(&format!("{} is free", visible(key.as_str())))?,
    }
    if !holders.is_empty() {
        out.line(&format!("\n{}", record::holders_table(&holders, false)))?;
    }
    if waiters.is_empty() {
        out.line("nobody stands in the server's queue; who polls leaves no trace there, see /locks of each process")?;
    } else {
        out.line(&format!("\n{}", record::waiters_table(&waiters)))?;
    }
    Ok(end)
}
