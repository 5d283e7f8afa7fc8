//! One lock, as JSON and as cells of a table.

use std::time::{Duration, UNIX_EPOCH};

use lock_core::inspect::{EntryState, FleetHolder, LockEntry, Waiter};
use lock_core::lease::{command_of_site, of_site};
use lock_core::{HolderInfo, LockKey, Mode, NodeReport, OwnerId};
use serde_json::{Value, json};

use crate::args::Filter;
use crate::output::Table;
use crate::values;
use lock_core::store::text::{human, visible};

pub(crate) const NOTHING: &str = "-";

/// Returns the identity, or enough of it to tell holders apart.
pub(crate) fn owner(owner: OwnerId, full: bool) -> String {
    if full { owner.to_hex() } else { format!("{}…", owner.short()) }
}

pub(crate) fn json(entry: &LockEntry, full_owner: bool) -> Value {
    let holder = &entry.holder;
    let mut record = json!({
        "key": entry.key.as_str(),
        "lock": holder.lock(),
        "state": entry.state.as_str(),
        "mode": entry.mode.map(Mode::as_str),
        "site": holder.info.as_ref().map(|info| &*info.site),
        "host": holder.info.as_ref().map(|info| &*info.host),
        "pid": holder.info.as_ref().map(|info| info.pid),
        "granted_at_unix_seconds":
            entry.granted_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|at| at.as_secs_f64()),
        "held_for_seconds": entry.held_for.map(|time| time.as_secs_f64()),
        "ttl_left_seconds": holder.ttl_left.map(|left| left.as_secs_f64()),
        "kept_by": holder.kept_by.as_deref(),
        "waiters": entry.waiters,
        "units": entry.units,
    });
    if let Some((name, reason)) = of_site(holder.site()) {
        record["lease"] = json!({ "holder": name, "reason": Some(reason).filter(|reason| !reason.is_empty()) });
    }
    if full_owner && let Some(value) = &entry.foreign_value {
        record["value"] = json!(values::spell(value));
    }
    if let Some(members) = &entry.members {
        record["members"] = members.nodes.iter().filter(|at| has(at, entry)).map(|at| &*at.node).collect();
    }
    if !entry.details.is_empty() {
        record["details"] = entry.details.iter().map(|(name, value)| (*name, value.as_str())).collect();
    }
    identify(&mut record, holder.owner, full_owner);
    record
}

/// Returns whether a member of a quorum has the lock of this holder.
fn has(member: &NodeReport<Option<LockEntry>>, entry: &LockEntry) -> bool {
    member.answer.as_ref().is_ok_and(|at| at.as_ref().is_some_and(|at| at.has_holder_of(entry)))
}

/// Returns how many members of a quorum have the lock of this holder.
pub(crate) fn having(entry: &LockEntry) -> usize {
    entry.members.iter().flat_map(|all| &all.nodes).filter(|at| has(at, entry)).count()
}

/// Returns how many members of a quorum have it, in words. `None` if one store has it.
pub(crate) fn members(entry: &LockEntry) -> Option<String> {
    Some(format!("{} of {}", having(entry), entry.members.as_ref()?.nodes.len()))
}

/// Returns whether it is known to be taken. In a quorum, a minority may have it.
pub(crate) fn is_decided(entry: &LockEntry) -> bool {
    !matches!(entry.state, EntryState::Minority | EntryState::Unknown)
}

/// Returns everybody who has the lock.
pub(crate) fn holders_json(holders: &[FleetHolder], full_owners: bool) -> Value {
    let one = |holder: &FleetHolder| {
        let (units, limit) = terms(holder.mode).unzip();
        let mut record = json!({
            "mode": holder.mode.map(Mode::as_str),
            "units": units,
            "limit": limit,
            "site": holder.info.as_ref().map(|info| &*info.site),
            "host": holder.info.as_ref().map(|info| &*info.host),
            "pid": holder.info.as_ref().map(|info| info.pid),
            "held_for_seconds": holder.held_for.map(|time| time.as_secs_f64()),
            "ttl_left_seconds": holder.lease_left.map(|left| left.as_secs_f64()),
        });
        identify(&mut record, holder.owner, full_owners);
        record
    };
    holders.iter().map(one).collect()
}

/// Returns the permits of a claim, and how many there are.
fn terms(mode: Option<Mode>) -> Option<(u32, u32)> {
    match mode {
        Some(Mode::Shared { units, limit }) if mode != Some(Mode::READ) => Some((units, limit)),
        _ => None,
    }
}

pub(crate) fn waiter_json(waiter: &Waiter) -> Value {
    let (units, limit) = terms(waiter.mode).unzip();
    let mut record = json!({
        "position": waiter.position,
        "mode": waiter.mode.map(Mode::as_str),
        "units": units,
        "limit": limit,
        "site": waiter.info.as_ref().map(|info| &*info.site),
        "host": waiter.info.as_ref().map(|info| &*info.host),
        "pid": waiter.info.as_ref().map(|info| info.pid),
        "waiting_for_seconds": waiter.waiting_for.as_secs_f64(),
        "confirmed_seconds_ago": waiter.confirmed.map(|time| time.as_secs_f64()),
        "asleep": waiter.asleep,
    });
    identify(&mut record, Some(waiter.owner), false);
    record
}

/// A shortened identity has another name, so that no program takes it for a complete one.
fn identify(record: &mut Value, owner: Option<OwnerId>, full: bool) {
    if full {
        record["owner"] = json!(owner.map(OwnerId::to_hex));
    } else {
        record["owner_prefix"] = json!(owner.map(|owner| owner.short().to_string()));
    }
}

pub(crate) fn table(entries: &[LockEntry], full_owners: bool) -> String {
    // A quorum has members in place of a queue.
    let is_quorum = entries.iter().any(|entry| entry.members.is_some());
    let [third, fourth, fifth] =
        if is_quorum { ["MEMBERS", "HELD FOR", "LEASE LEFT"] } else { ["HELD FOR", "LEASE LEFT", "WAITERS"] };
    let mut table = Table::new(&["KEY", "STATE", third, fourth, fifth, "CALL SITE", "PROCESS", "OWNER"]);
    for entry in entries {
        let [held_for, left, site, process, owner] = cells(entry, full_owners);
        let [third, fourth, fifth] = match members(entry) {
            Some(members) => [members, held_for, left],
            None => [held_for, left, waiters(entry)],
        };
        table.row([entry.key.as_str().to_owned(), state(entry), third, fourth, fifth, site, process, owner]);
    }
    table.render()
}

/// Returns how many processes are in the queue.
pub(crate) fn waiters(entry: &LockEntry) -> String {
    entry.waiters.map_or("?".to_owned(), |waiters| waiters.to_string())
}

/// Returns the state, and of a lock that is shared how.
fn state(entry: &LockEntry) -> String {
    match entry.mode {
        Some(mode) if entry.state == EntryState::Shared => format!("shared, {}", mode.as_str()),
        _ if entry.state == EntryState::Held && has_said_so(entry) => "stuck".to_owned(),
        _ => entry.state.as_str().to_owned(),
    }
}

/// Returns whether a command under `lockctl run` has a lock for longer than it said.
fn has_said_so(entry: &LockEntry) -> bool {
    let promised = command_of_site(entry.holder.site()).flatten();
    promised.is_some_and(|promised| entry.held_for.is_some_and(|age| age > promised))
}

/// Returns whether a lock is held for longer than its command said, or without that for longer than usual.
fn is_stuck(entry: &LockEntry) -> bool {
    let usual = || entry.ttl.map(|ttl| ttl.saturating_mul(3).max(Duration::from_secs(30)));
    let limit = command_of_site(entry.holder.site()).flatten().or_else(usual);
    limit.is_some_and(|limit| entry.held_for.is_some_and(|age| age > limit))
}

/// Returns whether a lock is among those that are asked for.
pub(crate) fn is_wanted(entry: &LockEntry, filter: &Filter) -> bool {
    filter.lock.as_deref().is_none_or(|name| entry.holder.lock() == Some(name))
        && filter.site.as_deref().is_none_or(|site| entry.holder.site() == site)
        && filter.older.is_none_or(|least| entry.held_for.is_some_and(|age| age > least))
        && (!filter.stuck || is_stuck(entry))
}

/// Writes for how long a lock has been held, what is left of its lease, and by whom: call site, process and owner.
pub(crate) fn cells(entry: &LockEntry, full_owners: bool) -> [String; 5] {
    [
        held_for(entry),
        lease_left(entry),
        entry.holder.info.as_ref().map_or(NOTHING.to_owned(), |info| info.site.to_string()),
        entry.holder.info.as_ref().map_or(NOTHING.to_owned(), process),
        entry.holder.owner.map_or(NOTHING.to_owned(), |id| owner(id, full_owners)),
    ]
}

pub(crate) fn holders_table(holders: &[FleetHolder], full_owners: bool) -> String {
    let mut table = Table::new(&["HAS", "HELD FOR", "LEASE LEFT", "CALL SITE", "PROCESS", "OWNER"]);
    for holder in holders {
        table.row([
            mode(holder.mode),
            holder.held_for.map_or(NOTHING.to_owned(), human),
            holder.lease_left.map_or("for ever".to_owned(), human),
            holder.info.as_ref().map_or(NOTHING.to_owned(), |info| info.site.to_string()),
            holder.info.as_ref().map_or(NOTHING.to_owned(), process),
            holder.owner.map_or(NOTHING.to_owned(), |id| owner(id, full_owners)),
        ]);
    }
    table.render()
}

fn mode(mode: Option<Mode>) -> String {
    mode.map_or(NOTHING.to_owned(), |mode| mode.to_string())
}

pub(crate) fn waiters_table(waiters: &[Waiter]) -> String {
    let mut table = Table::new(&["PLACE", "WANTS", "WAITING", "LAST SEEN", "CALL SITE", "PROCESS", "OWNER"]);
    for waiter in waiters {
        table.row([
            waiter.position.to_string(),
            mode(waiter.mode),
            human(waiter.waiting_for),
            match waiter.confirmed {
                Some(time) => format!("{} ago", human(time)),
                None if waiter.asleep => "asleep".to_owned(),
                None => NOTHING.to_owned(),
            },
            waiter.info.as_ref().map_or(NOTHING.to_owned(), |info| info.site.to_string()),
            waiter.info.as_ref().map_or(NOTHING.to_owned(), process),
            owner(waiter.owner, false),
        ]);
    }
    table.render()
}

pub(crate) fn process(info: &HolderInfo) -> String {
    format!("pid {} on {}", info.pid, info.host)
}

pub(crate) fn held_for(entry: &LockEntry) -> String {
    match entry.state {
        EntryState::Kept | EntryState::Foreign => NOTHING.to_owned(),
        _ => entry.held_for.map_or(NOTHING.to_owned(), human),
    }
}

pub(crate) fn lease_left(entry: &LockEntry) -> String {
    if entry.is_only_pinned() {
        return "ended, pinned".to_owned();
    }
    entry.holder.ttl_left.map_or("for ever".to_owned(), human)
}

pub(crate) fn free_json(key: &LockKey) -> Value {
    json!({ "key": key.as_str(), "state": "free" })
}

/// Returns the command that would release this lock, if its key can be written in a shell. It frees no lock that is pinned.
pub(crate) fn release_command(entry: &LockEntry) -> Option<String> {
    if entry.holder.kept_by.is_some() {
        return None;
    }
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
    format!("\nto force it free, if its holder is gone or all that it writes to checks fencing tokens:\n  {command}")
}

/// Returns the value that a foreign client wrote, if it was read completely.
pub(crate) fn whole_value(entry: &LockEntry) -> Option<&[u8]> {
    entry.foreign_value.as_deref().filter(|value| (1..=1024).contains(&value.len()))
}

/// Sorts the worst first: locks that never end by themselves, locks with many waiters, old locks. Locks that only a minority
/// of a quorum has come last.
pub(crate) fn sort(entries: &mut [LockEntry]) {
    entries.sort_by_cached_key(|entry| {
        let age = entry.held_for.unwrap_or(Duration::ZERO);
        let is_minority = entry.state == EntryState::Minority;
        (!entry.is_without_ttl(), is_minority, std::cmp::Reverse((entry.waiters, age)), entry.key.clone())
    });
}
