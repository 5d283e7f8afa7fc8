//! When a lock counts: once all has arrived that its durability asks for.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::calls::elsewhere::check_master;
use crate::connection::link::Link;
use crate::protocol::keys::hash_slot::slot_of;
use crate::protocol::keys::{CLOCK, clock_of_slot};
use crate::server::node::Node;
use crate::server::rounds::Wanted;
use lock_store::contract::backend::{Claim, Renewal};
use lock_store::types::error::{LockError, LockErrorKind, Result};
use lock_store::types::key::LockKey;
use lock_store::types::options::{Durability, command_timeout};
use lock_store::types::system::clock::{Clock, Timestamp};

/// Waits until what the server has executed over `link` has arrived where it must.
///
/// Every error but a mistake leaves open what arrived where.
pub(crate) async fn confirm(server: &Node, link: &Link, claim: &Claim, within: Duration) -> Result<()> {
    let Some(mut wanted) = wanted_by(server, claim.durability)? else { return Ok(()) };
    // Sooner than the caller gives up, so that it learns why.
    let within = within / 8 * 7;
    let end = Clock::system().now().after(within);
    loop {
        confirm_by(server, link, claim, wanted, within, end).await?;
        match wanted_by(server, claim.durability)? {
            // A replica that can take over by now need not be among the replicas that confirmed.
            Some(now) if now.replicas > wanted.replicas && !now.every => wanted = now,
            _ => return Ok(()),
        }
    }
}

async fn confirm_by(
    server: &Node,
    link: &Link,
    claim: &Claim,
    wanted: Wanted,
    within: Duration,
    end: Timestamp,
) -> Result<()> {
    let markers = || markers(server, link, &claim.key);
    let mut outcome = server.rounds.join(&Handle::current(), wanted, markers);
    let clock = Clock::system();
    let confirmed = tokio::select! {
        biased;
        known = outcome.wait_for(Option::is_some) => match known.as_deref() {
            Ok(Some(known)) => known.clone(),
            Ok(None) | Err(_) => Err(LockError::unavailable("the runtime that awaited a confirmation has ended")),
        },
        () = clock.sleep_until(end) => Err(server.rounds.unconfirmed(wanted, within)),
    };
    match confirmed {
        Ok(history) if history.is_some() && history.as_ref() == link.history() => Ok(()),
        Ok(None) => Err(LockError::misconfigured(format!(
            "{} does not say which history its data have, so no confirmation can be relied on; permit INFO",
            server.name(),
        ))),
        Ok(Some(_)) => {
            // One of the two connections is older than the history, which also changes when a server gets its
            // first replica. The next ones agree.
            server.retire();
            server.rounds.retire();
            Err(LockError::unavailable(format!(
                "another server has taken over {} before the lock was confirmed",
                server.name(),
            )))
        }
        Err(error) if error.kind() == LockErrorKind::Misconfigured => Err(error),
        Err(error) => Err(LockError::unavailable(error.to_string())),
    }
}

/// Turns renewals that are not confirmed into errors, and losses of which only a replica tells.
pub(crate) async fn confirm_renewals(server: &Node, link: &Link, claims: &[Claim], renewals: &mut [Result<Renewal>]) {
    if renewals.contains(&Ok(Renewal::Lost))
        && let Err(error) = check_master(server, link, "renew").await
    {
        for renewal in renewals.iter_mut().filter(|renewal| **renewal == Ok(Renewal::Lost)) {
            *renewal = Err(error.clone());
        }
    }
    let mut asked: Vec<(Durability, Result<()>)> = vec![(Durability::Master, Ok(()))];
    for (claim, renewal) in claims.iter().zip(renewals) {
        if !matches!(renewal, Ok(Renewal::Renewed)) {
            continue;
        }
        let known = asked.iter().position(|(durability, _)| *durability == claim.durability);
        if known.is_none() {
            asked.push((claim.durability, confirm(server, link, claim, command_timeout(claim.ttl)).await));
        }
        if let Err(error) = &asked[known.unwrap_or(asked.len() - 1)].1 {
            *renewal = Err(error.clone().with_key(&claim.key));
        }
    }
}

/// Returns what to ask for; `None` if nothing.
fn wanted_by(server: &Node, durability: Durability) -> Result<Option<Wanted>> {
    let (replicas, on_disk) = match durability {
        Durability::Master => return Ok(None),
        Durability::Acks(replicas) => (u64::from(replicas), None),
        Durability::AllReplicas => (server.replicas()?.max(1), None),
        Durability::Fsync { local, replicas } => (u64::from(replicas), Some(local)),
    };
    let every = durability == Durability::AllReplicas && server.cluster.is_some();
    Ok(Some(Wanted { replicas, on_disk, every }))
}

/// Names the keys of which a round writes as many as the server takes: a node of a cluster takes only those of
/// its slots, and none that is absent from a slot that is being moved.
fn markers(server: &Node, link: &Link, key: &LockKey) -> Vec<String> {
    if !link.is_cluster() {
        return vec![CLOCK.to_owned()];
    }
    let mut slots = vec![slot_of(key)];
    for slot in server.settled_slots() {
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }
    slots.into_iter().map(clock_of_slot).collect()
}
