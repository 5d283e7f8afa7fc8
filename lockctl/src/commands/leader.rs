//! The command that tells who leads.

use lock_core::LockKey;
use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use serde_json::{Value, json};

use crate::end::{End, Failure};
use crate::members::{NO_QUEUE, Seen, silent};
use crate::output::Output;
use crate::record;
use lock_core::store::text::{human, visible};

/// The text that an election writes before its leader's announcement.
const MARK: char = '@';

pub(crate) async fn leader(fleet: &FleetReader, name: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let seen = Seen::read(fleet, name).await?;
    let candidates = fleet.waiters(name).await?;
    let leader = seen.entry.as_ref().filter(|entry| entry.state == EntryState::Held);
    let end = match seen.end() {
        End::Ok if leader.is_none() => End::NotFound,
        end => end,
    };
    if out.is_json() {
        // A quorum does not know who stands for it.
        let candidates: Option<Vec<Value>> =
            seen.members.is_none().then(|| candidates.iter().map(record::waiter_json).collect());
        let mut document = document(name, leader, &json!(candidates));
        seen.identify(&mut document, false);
        out.document(&document)?;
        return Ok(end);
    }
    let text = match end {
        End::Unavailable => format!("it is unknown who leads {}", visible(name.as_str())),
        _ => sentence(name, leader) + &leader.map(|_| seen.at()).unwrap_or_default(),
    };
    if let Some(members) = &seen.members {
        out.line(&(text + &silent(members)))?;
        out.line(NO_QUEUE)?;
        return Ok(end);
    }
    out.line(&text)?;
    if !candidates.is_empty() {
        out.line(&format!("\n{}", record::waiters_table(&candidates)))?;
    }
    Ok(end)
}

/// Returns what a leader announced.
fn announced(entry: &LockEntry) -> Option<&str> {
    entry.holder.info.as_ref()?.site.strip_prefix(MARK)
}

fn document(name: &LockKey, leader: Option<&LockEntry>, candidates: &Value) -> Value {
    let leader = leader.map(|entry| {
        let mut leader = record::json(entry, false);
        leader["announced"] = json!(announced(entry));
        leader
    });
    json!({ "election": name.as_str(), "leader": leader, "candidates": candidates })
}

fn sentence(name: &LockKey, leader: Option<&LockEntry>) -> String {
    let name = visible(name.as_str());
    let Some((entry, info)) = leader.and_then(|entry| Some((entry, entry.holder.info.as_ref()?))) else {
        return format!("nobody leads {name}");
    };
    let (process, since) = (record::process(info), entry.held_for.map(human).unwrap_or_default());
    let who = announced(entry).map_or_else(|| format!("{process}, at {}", info.site), |it| format!("{it} ({process})"));
    format!("{name} is led by {} for {since}, with {} left of its lease", visible(&who), record::lease_left(entry))
}
