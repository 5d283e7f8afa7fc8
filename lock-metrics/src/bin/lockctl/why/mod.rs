//! The command that answers everything about one lock: who holds it and whether that process lives, who
//! waits, and whether it is safe to force.

mod answer;
mod blocked;
mod findings;
mod view;

use std::collections::BTreeSet;

use lock_core::inspect::{FleetReader, LockEntry};
use lock_core::{Clock, HolderInfo, LockKey};
use tokio::task::JoinSet;

use crate::address::Address;
use crate::output::Output;
use crate::why::findings::Findings;
use crate::{End, Failure};

/// How often a lock that changes hands meanwhile is looked at again.
const LOOKS: usize = 3;

pub(crate) async fn why(
    fleet: &FleetReader,
    key: &LockKey,
    views: &[Address],
    out: &mut Output,
) -> Result<End, Failure> {
    let mut found = look(fleet, key, views).await?;
    for _ in 1..LOOKS {
        let now = fleet.entry(key).await?;
        if owner(now.as_ref()) == owner(found.entry.as_ref()) {
            break;
        }
        found = look(fleet, key, views).await?;
    }
    if out.is_json() {
        out.document(&answer::json(key, &found))?;
    } else {
        out.line(&answer::text(key, &found))?;
    }
    Ok(if found.entry.is_some() { End::Ok } else { End::NotFound })
}

async fn look(fleet: &FleetReader, key: &LockKey, views: &[Address]) -> Result<Findings, Failure> {
    let entry = fleet.entry(key).await?;
    let read_at = Clock::system().now();
    let queue = fleet.waiters(key).await?;
    let job = fleet.job(key).await?;
    let blocked = blocked::walk(fleet, key).await?;
    let infos = entry.iter().filter_map(|entry| entry.holder.info.as_ref());
    let infos: Vec<&HolderInfo> = infos.chain(queue.iter().filter_map(|waiter| waiter.info.as_ref())).collect();
    let mut looks = JoinSet::new();
    for address in addresses(views, &infos) {
        let key = key.as_str().to_owned();
        looks.spawn(async move {
            let seen = view::look(&address, &key).await;
            (address, seen)
        });
    }
    let (mut views, mut unread) = (Vec::new(), Vec::new());
    for (address, seen) in looks.join_all().await {
        match seen {
            Ok(view) => views.push(view),
            Err(why) => unread.push((address, why)),
        }
    }
    views.sort_by(|one, two| one.address.cmp(&two.address));
    // Two addresses may lead to one process, which must not be counted twice.
    let mut known = BTreeSet::new();
    views.retain(|view| known.insert((view.host.clone(), view.pid)));
    unread.sort();
    Ok(Findings { entry, read_at, queue, job, blocked, views, unread })
}

fn addresses(views: &[Address], infos: &[&HolderInfo]) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    for view in views {
        if !view.is_for_each_host() {
            addresses.insert(view.at(""));
            continue;
        }
        // What is stored in Redis must not lead anywhere but to a host.
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
