//! The records of jobs: as text, as a table and as JSON.

use lock_core::LockKey;
use lock_core::inspect::{EntryState, LockEntry};
use lock_core::store::JobRecord;
use lock_core::store::text::human;
use serde_json::{Value, json};

use crate::listing::Listing;
use crate::output::Table;
use crate::record;

pub(crate) fn summary(node: &str, listing: &Listing) -> String {
    let overdue = listing.jobs.iter().filter(|(_, record)| record.overdue().is_some()).count();
    let mut text = match (listing.jobs.len(), overdue) {
        (0, _) => format!("no job with a period is remembered on {node}"),
        (1, 0) => format!("1 job on {node}, on time"),
        (all, 0) => format!("{all} jobs on {node}, all on time"),
        (1, _) => format!("1 job on {node}, overdue"),
        (all, overdue) => format!("{all} jobs on {node}, {overdue} of them overdue"),
    };
    let failed = listing.jobs.iter().filter(|(_, record)| !record.succeeded).count();
    if failed > 0 {
        text.push_str(&format!(", {failed} failed last"));
    }
    if listing.truncated {
        text.push_str("; the scan ended early, raise --max-keys to see the rest");
    }
    text
}

pub(crate) fn table(listing: &Listing) -> String {
    let mut table = Table::new(&["JOB", "STATE", "EVERY", "LAST RUN", "ENDED", "CALL SITE", "PROCESS"]);
    for (key, record) in &listing.jobs {
        let mut state = punctuality(record);
        if let Some(entry) = running(listing, key) {
            state.push_str(&format!(", running for {}", record::held_for(entry)));
        }
        table.row([
            key.as_str().to_owned(),
            state,
            human(record.every),
            format!("{} ago", human(record.started_ago)),
            end(record).to_owned(),
            record.info.site.to_string(),
            record::process(&record.info),
        ]);
    }
    table.render()
}

/// Returns the lock of a job that runs now.
fn running<'a>(listing: &'a Listing, key: &LockKey) -> Option<&'a LockEntry> {
    listing.entries.iter().find(|entry| entry.key == *key && entry.state == EntryState::Held)
}

fn punctuality(record: &JobRecord) -> String {
    record.overdue().map_or_else(|| "on time".to_owned(), |late| format!("overdue by {}", human(late)))
}

fn end(record: &JobRecord) -> &'static str {
    if record.succeeded { "well" } else { "failed" }
}

/// Says everything about a job in one sentence.
pub(crate) fn sentence(record: &JobRecord) -> String {
    let every = human(record.every);
    let (ago, who) = (human(record.started_ago), format!("{}, {}", record.info.site, record::process(&record.info)));
    let last = if record.succeeded {
        format!("the last run started {ago} ago at {who}, and ended well")
    } else {
        let since = human(record.without_success_for);
        format!("the last run started {ago} ago at {who}, and failed; none has succeeded for {since}")
    };
    format!("{}: it runs every {every}, {last}", punctuality(record))
}

pub(crate) fn json(record: &JobRecord) -> Value {
    json!({
        "every_seconds": record.every.as_secs_f64(),
        "overdue_by_seconds": record.overdue().map(|late| late.as_secs_f64()),
        "without_success_for_seconds": record.without_success_for.as_secs_f64(),
        "last_run": {
            "started_seconds_ago": record.started_ago.as_secs_f64(),
            "succeeded": record.succeeded,
            "site": &*record.info.site,
            "host": &*record.info.host,
            "pid": record.info.pid,
        },
    })
}

/// Returns all jobs of a listing.
pub(crate) fn many_json(listing: &Listing) -> Vec<Value> {
    let one = |(key, record): &(LockKey, JobRecord)| {
        let mut job = json(record);
        job["key"] = json!(key.as_str());
        let running = running(listing, key).and_then(|entry| entry.held_for);
        job["running_for_seconds"] = json!(running.map(|time| time.as_secs_f64()));
        job
    };
    listing.jobs.iter().map(one).collect()
}
