//! The commands that run once.

use lock_core::LockKey;
use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::lease::of_site;
use lock_core::store::JobRecord;
use serde_json::{Value, json};

use crate::args::Wanted;
use crate::end::{End, Failure};
use crate::listing::job;
use crate::listing::{self, shared_by};
use crate::members::{NO_QUEUE, Seen};
use crate::output::{Output, Table};
use crate::{record, values};
use lock_core::store::text::visible;

pub(crate) async fn list(fleet: &FleetReader, wanted: &Wanted, out: &mut Output) -> Result<End, Failure> {
    let listing = listing::list(fleet, wanted).await?;
    if out.is_json() {
        out.document(&listing.json(fleet, wanted.owners))?;
        return Ok(listing.end());
    }
    if !listing.entries.is_empty() {
        out.table(&record::table(&listing.entries, wanted.owners))?;
    }
    out.line(&listing.summary(fleet))?;
    Ok(listing.end())
}

pub(crate) async fn show(fleet: &FleetReader, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let seen = Seen::read(fleet, key).await?;
    let holders = shared_by(fleet, seen.held()).await?;
    let job = seen.job(fleet).await?;
    let line = job.as_ref().map(|job| format!("job  {}", job::sentence(job)));
    if out.is_json() {
        let mut document = seen.json(true);
        if let Some(job) = &job {
            document["job"] = job::json(job);
        }
        if !holders.is_empty() {
            document["holders"] = record::holders_json(&holders, true);
        }
        out.document(&document)?;
    } else if let Some(votes) = seen.votes(line.clone(), true) {
        out.line(&votes)?;
    } else if let Some(entry) = &seen.entry {
        out.line(&details(entry, job.as_ref()))?;
        if !holders.is_empty() {
            out.line(&format!("\n{}", record::holders_table(&holders, true)))?;
        }
        if let Some(command) = record::release_command(entry) {
            out.line(&record::release_hint(&command))?;
        }
    } else {
        out.line(&seen.summary())?;
        if let Some(line) = &line {
            out.line(&visible(line))?;
        }
    }
    Ok(seen.end())
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
            EntryState::Kept if entry.is_only_pinned() => "kept: released, and pinned by an open transaction",
            EntryState::Kept => "kept: released, and taken for the rest of its min_hold",
            _ => "foreign: a client of another library, or another use of this key",
        }
        .to_owned(),
    );
    if let Some(units) = entry.units {
        line("in use", format!("{units} readers or permits"));
    } else if let Some((holder, reason)) = of_site(entry.holder.site()) {
        line("lease of", holder.to_owned());
        if !reason.is_empty() {
            line("reason", reason.to_owned());
        }
        line("ends", "with `lockctl release --holder` and this name, or when its time is up".to_owned());
        line("taken by", entry.holder.info.as_ref().map_or_else(String::new, record::process));
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
        line("job", job::sentence(job));
    }
    if entry.state == EntryState::Held {
        let unknown = match of_site(entry.holder.site()) {
            Some(_) => "not kept by this store; `lockctl renew` draws one and prints it",
            None => "known to the holder's process alone; its live view /locks shows it",
        };
        line("token", entry.holder.token.map_or_else(|| unknown.to_owned(), |token| token.to_string()));
    }
    if let Some(owner) = entry.holder.owner {
        line("owner", record::owner(owner, true));
    }
    if let Some(value) = record::whole_value(entry) {
        line("value", values::spell(value));
    }
    for (name, value) in &entry.details {
        line(name, value.clone());
    }
    table.render().trim_start().to_owned()
}

pub(crate) async fn waiters(fleet: &FleetReader, key: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let seen = Seen::read(fleet, key).await?;
    let holders = shared_by(fleet, seen.held()).await?;
    let waiters = fleet.waiters(key).await?;
    let end = if waiters.is_empty() { seen.end() } else { End::Ok };
    if out.is_json() {
        let holder = seen.held().map(|entry| record::json(entry, false));
        // A quorum does not know who waits.
        let waiters: Option<Vec<Value>> =
            seen.members.is_none().then(|| waiters.iter().map(record::waiter_json).collect());
        let holders = record::holders_json(&holders, false);
        let mut document = json!({ "key": key.as_str(), "holder": holder, "holders": holders, "waiters": waiters });
        seen.identify(&mut document, false);
        out.document(&document)?;
        return Ok(end);
    }
    if let Some(votes) = seen.votes(None, false) {
        out.line(&votes)?;
        for stray in seen.strays() {
            out.line(&stray)?;
        }
        out.line(NO_QUEUE)?;
        return Ok(end);
    }
    match &seen.entry {
        Some(entry) => out.line(&record::table(std::slice::from_ref(entry), false))?,
        None => out.line(&seen.summary())?,
    }
    if !holders.is_empty() {
        out.line(&format!("\n{}", record::holders_table(&holders, false)))?;
    }
    if waiters.is_empty() {
        out.line("no waiter is in the server's queue; callers that poll are not in it, see /locks of each process")?;
    } else {
        out.line(&format!("\n{}", record::waiters_table(&waiters)))?;
    }
    Ok(end)
}
