//! The jobs that run at most once in a period: which are overdue, and who ran each last. And what is done once for a version.

use lock_core::inspect::FleetReader;
use serde_json::json;

use crate::args::Scope;
use crate::end::{End, Failure};
use crate::listing::{done, job, scan};
use crate::members::silent;
use crate::output::Output;

pub(crate) async fn jobs(fleet: &FleetReader, scope: &Scope, out: &mut Output) -> Result<End, Failure> {
    let listing = scan(fleet, scope).await?;
    if out.is_json() {
        let mut document = json!({
            "server": fleet.node(),
            "truncated": listing.truncated,
            "jobs": job::many_json(&listing),
            "done": done::many_json(&listing),
        });
        listing.identify(&mut document);
        out.document(&document)?;
        return Ok(listing.end());
    }
    if !listing.jobs.is_empty() {
        out.line(&job::table(&listing))?;
    }
    let mut text = job::summary(&listing.node(fleet), &listing);
    if listing.unknown.is_some() {
        text.push_str("; members that gave no answer may know of later runs");
    }
    out.line(&(text + &listing.members.as_ref().map(silent).unwrap_or_default()))?;
    if let Some(table) = done::table(&listing) {
        out.line(&format!("\n{table}"))?;
    }
    Ok(listing.end())
}
