//! The command that tells who leads.

use lock_core::LockKey;
use lock_core::inspect::{EntryState, FleetReader};
use serde_json::json;

use crate::output::Output;
use crate::text::{human, visible};
use crate::{End, Failure, record};

/// What an election writes before what its leader announces.
const MARK: char = '@';

pub(crate) async fn leader(fleet: &FleetReader, name: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let entry = fleet.entry(name).await?;
    let candidates = fleet.waiters(name).await?;
    let entry = entry.filter(|entry| entry.state == EntryState::Held);
    let info = entry.as_ref().and_then(|entry| entry.holder.info.as_ref());
    let announced = info.and_then(|info| info.site.strip_prefix(MARK));
    let end = if entry.is_some() { End::Ok } else { End::NotFound };
    if out.is_json() {
        let leader = entry.as_ref().map(|entry| {
            let mut leader = record::json(entry, false);
            leader["announced"] = json!(announced);
            leader
        });
        let candidates: Vec<_> = candidates.iter().map(record::waiter_json).collect();
        out.document(&json!({ "election": name.as_str(), "leader": leader, "candidates": candidates }))?;
        return Ok(end);
    }
    let name = visible(name.as_str());
    let line = match (&entry, info) {
        (Some(entry), Some(info)) => {
            let (process, since) = (record::process(info), entry.held_for.map(human).unwrap_or_default());
            let who =
                announced.map_or_else(|| format!("{process}, at {}", info.site), |it| format!("{it} ({process})"));
            format!(
                "{name} is led by {} for {since}, with {} left of its lease",
                visible(&who),
                record::lease_left(entry)
            )
        }
        _ => format!("nobody leads {name}"),
    };
    out.line(&line)?;
    if !candidates.is_empty() {
        out.line(&format!("\n{}", record::waiters_table(&candidates)))?;
    }
    Ok(end)
}
