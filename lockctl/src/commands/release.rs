//! The command that takes a lock away.

use lock_core::inspect::{EntryState, FleetReader, LockEntry};
use lock_core::store::Freed;
use lock_core::{LockError, LockKey};
use serde_json::json;

use crate::args::Expected;
use crate::end::{End, Failure, complain};
use crate::members::Seen;
use crate::output::Output;
use crate::{audit, record};
use lock_core::store::text::visible;

pub(crate) async fn release(
    fleet: &FleetReader,
    key: &LockKey,
    expected: &Expected,
    reason: &str,
    out: &mut Output,
) -> Result<End, Failure> {
    // Read first, to report afterwards what was released; the server compares again.
    let before = Seen::read(fleet, key).await?.entry;
    let actor = audit::actor();
    let freed = match (expected.owner, &expected.value) {
        (Some(owner), _) => fleet.release(key, owner, &actor, reason).await?,
        (None, Some(value)) => fleet.release_foreign(key, &value.0, &actor, reason).await?,
        (None, None) => unreachable!("the command line demands one of them"),
    };
    let now = Seen::read(fleet, key).await?;
    if freed == Freed::Released {
        let was = before.as_ref().filter(|entry| is_expected(entry, expected));
        let at = left(&now, expected);
        if out.is_json() {
            let was = was.map(|entry| record::json(entry, false));
            let mut document = json!({ "key": key.as_str(), "outcome": "released", "was": was });
            now.identify(&mut document, false);
            out.document(&document)?;
        } else {
            out.line(&format!("released {}{at}{}", visible(key.as_str()), was.map_or(String::new(), past_hold)))?;
            out.line(if expected.owner.is_some() {
                "its holder is told, or learns of it with its next renewal if it cannot hear; it may go on writing until \
                 then; resources that check fencing tokens are safe"
            } else {
                "its client is not told, and may go on as if it held the lock"
            })?;
        }
        if let Some(pin) = before.as_ref().and_then(|entry| entry.holder.kept_by.as_deref()).filter(|_| !out.is_json())
        {
            out.line(&visible(&format!("it stays taken, pinned by {pin}")))?;
        }
        return Ok(End::Ok);
    }
    if out.is_json() {
        out.document(&json!({ "key": key.as_str(), "outcome": "not_held", "now": now.json(false) }))?;
    }
    let who = now.entry.as_ref().map_or_else(|| "it is free".to_owned(), describe);
    let expected =
        expected.owner.map_or_else(|| "with that value".to_owned(), |id| format!("by {}", record::owner(id, false)));
    complain(&format!("nothing was released: {key} is not held {expected}; {who}"));
    Ok(End::NotFound)
}

/// Returns at how many members of a quorum it was released, in words, and names the others.
fn left(now: &Seen, expected: &Expected) -> String {
    let Some(members) = &now.members else { return String::new() };
    let may_have = |answer: &Result<Option<LockEntry>, LockError>| match answer {
        Ok(entry) => {
            entry.as_ref().filter(|entry| is_expected(entry, expected)).map(|_| "it did not release it".to_owned())
        }
        Err(error) => Some(error.to_string()),
    };
    let kept = members.nodes.iter().filter_map(|at| Some((&at.node, may_have(&at.answer)?)));
    let kept: Vec<_> = kept.inspect(|(node, why)| complain(&format!("{node} may still have it: {why}"))).collect();
    format!(" at {} of {} members", members.nodes.len() - kept.len(), members.nodes.len())
}

fn is_expected(entry: &LockEntry, expected: &Expected) -> bool {
    match expected.owner {
        Some(owner) => entry.holder.owner == Some(owner),
        None => entry.foreign_value.is_some(),
    }
}

fn past_hold(entry: &LockEntry) -> String {
    if entry.state == EntryState::Foreign {
        return ", held by a client of another library".to_owned();
    }
    let info = entry.holder.info.as_ref();
    let who = info.map_or(String::new(), |info| format!(", held by {} ({})", info.site, record::process(info)));
    visible(&format!("{who} for {}", record::held_for(entry)))
}

fn describe(entry: &LockEntry) -> String {
    if let Some(pin) = entry.holder.kept_by.as_deref().filter(|_| entry.is_only_pinned()) {
        return format!("its lease has ended, and it stays taken, pinned by {pin}");
    }
    match (entry.state, &entry.holder.info, entry.holder.owner) {
        (EntryState::Held, Some(info), Some(owner)) => {
            format!("now {} holds it ({}, owner {})", info.site, record::process(info), record::owner(owner, false))
        }
        (EntryState::Shared, _, _) => "others share it now; `lockctl show` lists them".to_owned(),
        (EntryState::Kept, _, _) => {
            format!("it was released already and stays taken for {} more", record::lease_left(entry))
        }
        (EntryState::Minority, _, _) => "fewer members than a majority have it".to_owned(),
        (EntryState::Unknown, _, _) => "members that gave no answer decide whether it is held".to_owned(),
        _ => "a client of another library holds it; `lockctl show` says how to release that".to_owned(),
    }
}
