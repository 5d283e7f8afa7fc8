//! Ends a claim in time, and watches for its turn.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{Claim, Grant, OwnerId};
use zookeeper_client::Error;

use crate::names::KeyHash;
use crate::session::{Session, sleep};
use crate::shared::Shared;

/// The pause after a request that failed, and the longest between two looks at a lock that is kept.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the turn of a claim is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives a claim the task that ends it when its time is over. It also tells the claim of its turn if it `watches`.
pub(super) fn tend(shared: &Arc<Shared>, session: &Arc<Session>, owner: OwnerId, watches: bool) {
    if watches && shared.places.watches(owner) {
        return;
    }
    let (of, session) = (Arc::clone(shared), Arc::clone(session));
    let task = shared.runtime.spawn(async move {
        let mut expiry = std::pin::pin!(expire(&of, &session, owner));
        if watches {
            tokio::select! {
                () = &mut expiry => return,
                () = watch(&of, &session, owner) => {}
            }
        }
        expiry.await;
    });
    shared.places.tend(owner, task.abort_handle(), watches);
}

/// Waits until a claim's time is over, and removes its node then.
async fn expire(shared: &Shared, session: &Session, owner: OwnerId) {
    while let Some(expires) = shared.places.expires(owner) {
        shared.clock.sleep_until(expires).await;
        let Ok(_turn) = shared.turn(owner, shared.now().after(PATIENCE)).await else { continue };
        // From here on a renewal is answered that the lock is lost, even if it has seen the node.
        if let Some(place) = shared.places.end_expired(owner, shared.now()) {
            shared.remove(session, &place.path).await;
            shared.places.remove(owner);
        }
    }
}

/// Waits for the turn of a claim, by a watch on the node before its own.
async fn watch(shared: &Shared, session: &Session, owner: OwnerId) {
    while let Some(place) = shared.places.waiting(owner) {
        let hash = KeyHash::of(&place.data.key);
        let Ok(line) = shared.line(session, hash).await else {
            sleep(PAUSE).await;
            continue;
        };
        match line.position(owner) {
            // Its node was taken away. It enters again.
            None => {
                tell(shared, owner);
                shared.places.remove(owner);
            }
            Some(0) => {
                let now = shared.server_now();
                match if line.kept { shared.kept(session, &place.data.key, now).await } else { Ok(None) } {
                    Ok(None) => {
                        if grant(shared, session, owner).await {
                            return;
                        }
                        sleep(PAUSE).await;
                    }
                    Ok(Some(kept)) => sleep(crate::data::between(now, kept.until).min(PAUSE)).await,
                    Err(_) => sleep(PAUSE).await,
                }
            }
            Some(at) => {
                let before = shared.paths.beside(hash, &line.claims[at - 1].name);
                match session.client.check_and_watch_stat(&before).await {
                    // A deletion, a new grant of the holder, or the end of the session.
                    Ok((Some(_), watcher)) => drop(watcher.changed().await),
                    Ok((None, _)) => {}
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }
}

/// Grants the lock to a claim that is the first. Returns whether the claim is told.
async fn grant(shared: &Shared, session: &Session, owner: OwnerId) -> bool {
    let Ok(_turn) = shared.turn(owner, shared.now().after(PATIENCE)).await else { return false };
    // Meanwhile it may have asked by itself, or have ended.
    let Some(place) = shared.places.waiting(owner) else { return true };
    let (Some(ticket), Some(inbox)) = (&place.ticket, shared.inbox()) else { return false };
    let (stat, based) = match shared.confirm(session, &place).await {
        Ok(confirmed) => confirmed,
        Err(error) => {
            if error == Error::NoNode {
                tell(shared, owner);
                shared.places.remove(owner);
            }
            return false;
        }
    };
    let Ok(token) = shared.token(session, based, stat.mzxid, place.floor).await else { return false };
    // The lease counts from the last confirmation of the place, which was sent before this write.
    if shared.places.grant(owner, token, stat.mtime, place.expires) {
        let mut claim = Claim::new(place.data.key.clone(), ticket.grant_ttl.min(session.lease()));
        claim.owner = owner;
        inbox.granted(Grant::new(claim, token, ticket.stamp));
    }
    true
}

fn tell(shared: &Shared, owner: OwnerId) {
    if let Some(inbox) = shared.inbox() {
        inbox.ask_again(owner);
    }
}
