//! The command that answers everything about one lock: who holds it and whether that process lives, who
//! waits, and whether it is safe to force.

mod answer;
mod blocked;
mod findings;
mod store;
pub(crate) mod view;
mod votes;

use std::collections::BTreeSet;

use lock_core::inspect::LockEntry;
use lock_core::{HolderInfo, LockKey};

use crate::args::address::Address;
use crate::commands::why::findings::Findings;
use crate::end::{End, Failure};
use crate::output::Output;

pub(crate) use store::Store;

/// How often a lock that changes hands meanwhile is looked at again.
const LOOKS: usize = 3;

pub(crate) async fn why(store: &Store<'_>, key: &LockKey, views: &[Address], out: &mut Output) -> Result<End, Failure> {
    let mut found = look(store, key, views).await?;
    // The members were all asked at once, and then nobody else.
    let looks = if found.stored.votes.is_some() && views.is_empty() { 1 } else { LOOKS };
    for _ in 1..looks {
        let now = store.entry(key).await?;
        if owner(now.as_ref()) == owner(found.stored.entry.as_ref()) {
            break;
        }
        found = look(store, key, views).await?;
    }
    if out.is_json() {
        out.document(&answer::json(key, &found))?;
    } else {
        out.line(&answer::text(key, &found))?;
    }
    Ok(match &found.stored.votes {
        Some(votes) => votes.seen.end(),
        None if found.stored.entry.is_some() => End::Ok,
        None => End::NotFound,
    })
}

async fn look(store: &Store<'_>, key: &LockKey, views: &[Address]) -> Result<Findings, Failure> {
    let stored = store.read(key).await?;
    let infos = stored.entry.iter().filter_map(|entry| entry.holder.info.as_ref());
    let infos: Vec<&HolderInfo> = infos.chain(stored.queue.iter().filter_map(|waiter| waiter.info.as_ref())).collect();
    let ask = |address: String| {
        let key = key.as_str().to_owned();
        async move { view::look(&address, &key).await }
    };
    let (mut views, unread) = view::each(addresses(views, &infos), ask).await;
    views.sort_by(|one, two| one.address.cmp(&two.address));
    // Two addresses may lead to one process, which must not be counted twice.
    let mut known = BTreeSet::new();
    views.retain(|view| known.insert((view.host.clone(), view.pid)));
    Ok(Findings { stored, views, unread })
}

/// Returns where to look, with the hosts of these processes where an address wants them.
pub(crate) fn addresses(views: &[Address], infos: &[&HolderInfo]) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    for view in views {
        if !view.is_for_each_host() {
            addresses.insert(view.at(""));
            continue;
        }
        // A value from the store must lead only to a host.
        let is_name = |host: &&str| {
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        addresses.extend(infos.iter().map(|info| &*info.host).filter(is_name).map(|host| view.at(host)));
    }
    addresses
}

fn owner(entry: Option<&LockEntry>) -> Option<(Option<lock_core::OwnerId>, Option<&[u8]>)> {
    entry.map(|entry| (entry.holder.owner, entry.foreign_value.as_deref()))
}
