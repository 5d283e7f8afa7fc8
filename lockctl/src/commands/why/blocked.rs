//! Follows the lock that a holder waits for, as long as the holder reports it: the way into a deadlock.

use lock_core::inspect::{EntryState, FleetReader};
use lock_core::{LockError, LockKey};
use serde_json::{Value, json};

use crate::record;

/// As far as processes look themselves.
const HOPS: usize = 8;

/// A lock for which the holder of another waits.
struct Hop {
    key: LockKey,
    /// Who holds it: call site and process.
    holder: Option<String>,
    /// Whether a lock before it in this list, or the one that was asked about, is the same.
    closes_a_ring: bool,
}

/// The chain as it was read.
#[derive(Default)]
pub(crate) struct Walk {
    hops: Vec<Hop>,
    /// The lock whose holder could not be asked what it waits for, and why. The holder may wait for something.
    unknown: Option<(LockKey, LockError)>,
}

/// Follows holders from lock to lock, until one waits for none.
pub(crate) async fn walk(fleet: &FleetReader, from: &LockKey) -> Result<Walk, LockError> {
    let (mut hops, mut at) = (Vec::<Hop>::new(), from.clone());
    while hops.len() < HOPS {
        let entry = fleet.entry(&at).await?.filter(|entry| entry.state == EntryState::Held);
        let Some(owner) = entry.and_then(|entry| entry.holder.owner) else { break };
        // A user who may only read the fleet is refused this part. The other parts are shown nevertheless.
        let says = match fleet.blocked(&at).await {
            Ok(says) => says,
            Err(error) => return Ok(Walk { hops, unknown: Some((at, error)) }),
        };
        // The note of an earlier holder does not count any more.
        let Some(next) = says.filter(|says| says.owner == owner).map(|says| says.waits_for) else { break };
        let held = fleet.entry(&next).await?;
        let holder =
            held.and_then(|held| held.holder.info).map(|info| format!("{}, {}", info.site, record::process(&info)));
        let closes_a_ring = next == *from || hops.iter().any(|hop| hop.key == next);
        hops.push(Hop { key: next.clone(), holder, closes_a_ring });
        if closes_a_ring {
            break;
        }
        at = next;
    }
    Ok(Walk { hops, unknown: None })
}

/// Says of each lock who waits for it, and whether they wait for each other.
pub(crate) fn lines(from: &LockKey, Walk { hops, unknown }: &Walk) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut waits = from.as_str();
    for Hop { key, holder, .. } in hops {
        let holder = holder.as_ref().map_or_else(|| "which is free by now".to_owned(), |who| format!("held by {who}"));
        lines.push(format!("the holder of {waits} waits for {key}, {holder}"));
        waits = key.as_str();
    }
    if hops.last().is_some_and(|hop| hop.closes_a_ring) {
        lines.push(
            "so they wait for each other: a deadlock. The task with the youngest lock gets an error within seconds; \
             if this line stays, its processes do not detect deadlocks, and one lock must be released"
                .to_owned(),
        );
    }
    lines.extend(
        unknown.iter().map(|(key, error)| format!("unknown whether the holder of {key} waits for a lock: {error}")),
    );
    lines
}

pub(crate) fn add_to(document: &mut Value, walk: &Walk) {
    let one =
        |hop: &Hop| json!({ "waits_for": hop.key.as_str(), "held_by": hop.holder, "closes_a_ring": hop.closes_a_ring });
    document["blocked"] = walk.hops.iter().map(one).collect();
    let unknown = walk.unknown.as_ref().map(|(key, error)| json!({ "key": key.as_str(), "error": error.to_string() }));
    document["blocked_unknown"] = unknown.into();
}
