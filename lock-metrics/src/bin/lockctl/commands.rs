//! The commands that run once.

use std::cmp::Reverse;

use lock_core::inspect::{EntryState, FleetHolder, FleetReader, LockEntry, ScanOptions};
use lock_core::{JobRecord, LockError, LockKey};
use serde_json::{Value, json};

use crate::args::{Scope, Wanted};
use crate::output::{Output, Table};
use crate::text::{human, visible};
use crate::{End, Failure, jobs, record, values};

/// Every lock that a scan found.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<LockEntry>,
    /// What is remembered of jobs, by the key of their lock, the latest first.
    pub(crate) jobs: Vec<(LockKey, JobRecord)>,
    pub(crate) truncated: bool,
    /// How many strings look like locks of other clients but were not requested, and one of them.
    left_out: (u64, Option<LockKey>),
    /// The servers that were read: the masters of a cluster, or one server.
    servers: Vec<String>,
}

pub(crate) async fn scan(fleet: &FleetReader, scope: &Scope) -> Result<Listing, LockError> {
    let mut options = ScanOptions::new().with_max_keys(scope.max_keys);
    if let Some(prefix) = &scope.prefix {
        options = options.with_prefix(prefix).with_foreign_prefix(prefix);
    }
    let mut scan = fleet.scan(options);
    let mut entries = Vec::new();
    while let Some(batch) = scan.next().await? {
        entries.extend(batch);
    }
    record::sort(&mut entries);
    let servers = scan.servers().into_iter().map(str::to_owned).collect();
    let (left_out, example) = scan.left_out();
    let left_out = (left_out, example.cloned());
    let mut jobs: Vec<_> = scan.jobs().map(|(key, record)| (key.clone(), record.clone())).collect();
    jobs.sort_by_cached_key(|(key, record)| (Reverse(record.overdue()), key.clone()));
    Ok(Listing { entries, jobs, truncated: scan.is_truncated(), left_out, servers })
}

/// What was found at one key.
impl FromIterator<LockEntry> for Listing {
    fn from_iter<T: IntoIterator<Item = LockEntry>>(entries: T) -> Self {
        Self { entries: entries.into_iter().collect(), ..Self::default() }
    }
}

impl Listing {
    pub(crate) fn json(&self, fleet: &FleetReader, wanted: &Wanted) -> Value {
        let locks: Vec<Value> = self.entries.iter().map(|entry| record::json(entry, wanted.owners)).collect();
        json!({
            "server": fleet.node(),
            "servers": self.servers,
            "truncated": self.truncated,
            "foreign_left_out": self.left_out.0,
            "locks": locks,
            "jobs": jobs::many_json(self),
        })
    }

    /// Names what was read.
    pub(crate) fn node(&self, fleet: &FleetReader) -> String {
        match self.servers.as_slice() {
            [_, _, ..] => format!("{} masters of the cluster of {}", self.servers.len(), visible(fleet.node())),
            _ => visible(fleet.node()),
        }
    }

    /// Returns a summary, in one line, and in another what is missing.
    pub(crate) fn summary(&self, fleet: &FleetReader) -> String {
        let node = self.node(fleet);
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
        let overdue: Vec<String> = self.jobs.iter().filter_map(|(key, record)| overdue(key, record)).collect();
        if let Some(worst) = overdue.first() {
            let more = if overdue.len() > 1 { format!(", and {} more", overdue.len() - 1) } else { String::new() };
            text.push_str(&format!("\noverdue: {worst}{more}; lockctl jobs says who ran them last"));
        }
        if let (true, Some(hint)) = (self.entries.is_empty(), self.hint(fleet.key_prefix())) {
            text.push_str(&format!("\n{hint}"));
        }
        text
    }

    /// Says how to see what was left out, if anything was. `namespace` is that of the URL.
    pub(crate) fn hint(&self, namespace: &str) -> Option<String> {
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

pub(crate) async fn list(fleet: &FleetReader, wanted: &Wanted, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, &wanted.scope).await?;
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
    line("waiters", entry.waiters.to_string());
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
