//! The jobs that run at most once in a period: which are overdue, and who ran each last. And what is done once for a version.

use lock_core::LockError;
use lock_core::inspect::FleetReader;
use serde_json::json;

use crate::args::{Filter, Scope, Wanted};
use crate::end::{End, Failure};
use crate::listing::{Listing, done, job, scan};
use crate::members::{Members, Question};
use crate::output::Output;

pub(crate) async fn jobs(fleet: &FleetReader, scope: &Scope, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, scope).await?;
    if out.is_json() {
        out.document(&json!({
            "server": fleet.node(),
            "truncated": listing.truncated,
            "jobs": job::many_json(&listing),
            "done": done::many_json(&listing),
        }))?;
        return Ok(End::Ok);
    }
    if !listing.jobs.is_empty() {
        out.line(&job::table(&listing))?;
    }
    out.line(&job::summary(&listing.node(fleet), &listing))?;
    if let Some(table) = done::table(&listing) {
        out.line(&format!("\n{table}"))?;
    }
    Ok(End::Ok)
}

/// Lists the jobs that any member of a quorum remembers, each with the newest run.
pub(crate) async fn jobs_of_quorum(members: &Members, scope: &Scope, out: &mut Output) -> Result<End, Failure> {
    let view =
        members.ask(&Question::Every(Wanted { scope: scope.clone(), filter: Filter::default(), owners: false })).await;
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
            "jobs": job::many_json(&listing),
            "done": done::many_json(&listing),
        }))?;
        return Ok(end);
    }
    if !listing.jobs.is_empty() {
        out.line(&job::table(&listing))?;
    }
    let mut text = job::summary(&format!("{} of {} members", view.answered(), view.nodes.len()), &listing);
    if end != End::Ok {
        text.push_str("; members that gave no answer may know of later runs");
    }
    out.line(&(text + &view.silent()))?;
    if let Some(table) = done::table(&listing) {
        out.line(&format!("\n{table}"))?;
    }
    Ok(end)
}
