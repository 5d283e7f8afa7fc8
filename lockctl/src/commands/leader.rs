//! The command that tells who leads.

use lock_core::LockKey;
use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use serde_json::{Value, json};

use crate::end::{End, Failure};
use crate::members::{Members, Question};
use crate::output::Output;
use crate::{members, record};
use lock_core::store::text::{human, visible};

/// The text that an election writes before its leader's announcement.
const MARK: char = '@';

pub(crate) async fn leader(fleet: &FleetReader, name: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let entry = fleet.entry(name).await?;
    let candidates = fleet.waiters(name).await?;
    let entry = entry.filter(|entry| entry.state == EntryState::Held);
    let end = if entry.is_some() { End::Ok } else { End::NotFound };
    if out.is_json() {
        let candidates: Value = candidates.iter().map(record::waiter_json).collect();
        out.document(&document(name, entry.as_ref(), &candidates))?;
        return Ok(end);
    }
    out.line(&sentence(name, entry.as_ref()))?;
    if !candidates.is_empty() {
        out.line(&format!("\n{}", record::waiters_table(&candidates)))?;
    }
    Ok(end)
}

/// Tells whom a majority of the members names. Candidates poll, and no member knows of them.
pub(crate) async fn leader_of_quorum(members: &Members, name: &LockKey, out: &mut Output) -> Result<End, Failure> {
    let view = members.ask(&Question::One { key: name.clone(), owners: false }).await;
    let (joint, leader) = (view.joint(), view.holder());
    let end = match view.end_of(joint.as_ref()) {
        End::Ok if leader.is_none() => End::NotFound,
        end => end,
    };
    if out.is_json() {
        let mut document = document(name, leader.as_ref(), &Value::Null);
        view.identify(&mut document, name, joint.as_ref(), false);
        out.document(&document)?;
        return Ok(end);
    }
    let text = match (end, &joint) {
        (End::Ok, Some(joint)) => {
            format!("{}, at {} of {} members", sentence(name, leader.as_ref()), joint.count, view.nodes.len())
        }
        (End::Unavailable, _) => format!("it is unknown who leads {}", visible(name.as_str())),
        _ => sentence(name, None),
    };
    out.line(&(text + &view.silent()))?;
    out.line(members::NO_QUEUE)?;
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
