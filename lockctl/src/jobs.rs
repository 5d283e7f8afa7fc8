//! The jobs that have a period: which are overdue, and who ran each last.

use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::{JobRecord, LockError, LockKey};
use serde_json::{Value, json};

use crate::args::{Scope, Wanted};
use crate::listing::{Listing, scan};
use crate::members::{Members, Question};
use crate::output::{Output, Table};
use crate::record;
use crate::{End, Failure};
use lock_core::text::human;

pub(crate) async fn jobs(fleet: &FleetReader, scope: &Scope, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, scope).await?;
    if out.is_json() {
        out.document(&json!({ "server": fleet.node(), "truncated": listing.truncated, "jobs": many_json(&listing) }))?;
        return Ok(End::Ok);
    }
    if !listing.jobs.is_empty() {
        out.line(&table(&listing))?;
    }
    out.line(&summary(&listing.node(fleet), &listing))?;
    Ok(End::Ok)
}

/// Lists the jobs that any member of a quorum remembers, each with the newest run.
pub(crate) async fn jobs_of_quorum(members: &Members, scope: &Scope, out: &mut Output) -> Result<End, Failure> {
    let view = members.ask(&Question::Every(Wanted { scope: scope.clone(), owners: false })).await;
    let (listing, end) = (view.together(), view.end_of_list());
    if out.is_json() {
        let member = |(node, said): (&String, &Result<Listing, LockError>)| match said {
            Ok(listing) => json!({ "node": node, "jobs": listing.jobs.len() }),
            Err(error) => json!({ "node": node, "error": error.to_string() }),
        };
        out.document(&json!({
            "majority": view.majority,
            "members": view.nodes.iter().zip(&view.said).map(member).collect::<Vec<_>>(),
            "truncated": listing.truncated,
            "jobs": many_json(&listing),
        }))?;
        return Ok(end);
    }
    if !listing.jobs.is_empty() {
        out.line(&table(&listing))?;
    }
    let mut text = summary(&format!("{} of {} members", view.answered(), view.nodes.len()), &listing);
    if end != End::Ok {
        text.push_str("; members that gave no answer may know of later runs");
    }
    out.line(&(text + &view.silent()))?;
    Ok(end)
}

fn summary(node: &str, listing: &Listing) -> String {
    let overdue = listing.jobs.iter().filter(|(_, record)| record.overdue().is_some()).count();
    let mut text = match (listing.jobs.len(), overdue) {
        (0, _) => format!("no job with a period is remembered on {node}"),
        (1, 0) => format!("1 job on {node}, on time"),
        (all, 0) => format!("{all} jobs on {node}, all on time"),
        (1, _) => format!("1 job on {node}, overdue"),
        (all, overdue) => format!("{all} jobs on {node}, {overdue} of them overdue"),
    };
    if listing.truncated {
        text.push_str("; the scan ended early, raise --max-keys to see the rest");
    }
    text
}

fn table(listing: &Listing) -> String {
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
