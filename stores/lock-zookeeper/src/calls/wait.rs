//! Ends a claim in time, and watches for its turn.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{Claim, Grant, OwnerId};
use zookeeper_client::{Error, EventType, OneshotWatcher, StateWatcher, WatchedEvent};

use crate::calls::token::token;
use crate::names::{KeyHash, Line};
use crate::session::{Session, sleep};
use crate::shared::{Numbers, Shared};

/// The pause after a request that failed, and the longest between two looks at a lock that is kept.
const PAUSE: Duration = Duration::from_millis(100);

/// How long after a grant its time is noted. A shorter hold needs no note.
const NOTED_AFTER: Duration = Duration::from_millis(5);

/// The pause between two looks of a claim that has no room for watches.
const UNWATCHED: Duration = Duration::from_secs(1);

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
            let turn = async {
                if watch(&of, &session, owner).await == Some(false) {
                    note(&of, &session, owner).await;
                }
            };
            tokio::select! {
                () = &mut expiry => return,
                () = turn => {}
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

/// Waits for the turn of a claim, by a watch on the node before its own. Returns whether its node tells already since when it holds
/// the lock. `None` if somebody else has ended its waiting.
async fn watch(shared: &Shared, session: &Session, owner: OwnerId) -> Option<bool> {
    while let Some(place) = shared.places.waiting(owner) {
        let hash = KeyHash::of(&place.data.key);
        let (line, numbers) = match shared.standing(session, hash).await {
            // Its directory was taken away.
            Err(Error::NoNode) => (Line::default(), (0, None)),
            Ok(standing) => standing,
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        match line.position(&place.path) {
            // Its node was taken away. It enters again.
            None => {
                tell(shared, owner);
                shared.places.remove(owner);
            }
            Some(0) => {
                let now = shared.server_now();
                match if line.kept { shared.kept(session, &place.data.key, now).await } else { Ok(None) } {
                    Ok(None) => {
                        let granted = grant(shared, session, owner, numbers).await;
                        if granted.is_some() {
                            return granted;
                        }
                        sleep(PAUSE).await;
                    }
                    Ok(Some(kept)) => sleep(crate::data::between(now, kept.until).min(PAUSE)).await,
                    Err(_) => sleep(PAUSE).await,
                }
            }
            Some(at) => {
                let before = shared.paths.beside(hash, &line.claims[at - 1].name);
                let is_next = at == 1 && !line.kept;
                let bytes = before.len() + if is_next { place.path.len() } else { 0 };
                let Ok(_room) = shared.watched.try_acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX)) else {
                    sleep(UNWATCHED).await;
                    continue;
                };
                let next = if is_next { Next::watch(shared, session, &place.path).await } else { None };
                match session.client.check_and_watch_stat(&before).await {
                    Ok((Some(_), watcher)) => {
                        // A deletion, a new grant of the holder, or the end of the session.
                        let event = watcher.changed().await;
                        if let Some(next) = next
                            && let Some(turn) = next.turn(session, event).await
                            && let Some(noted) = grant(shared, session, owner, turn).await
                        {
                            return Some(noted);
                        }
                    }
                    Ok((None, _)) => {}
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }
    None
}

/// The knowledge of a claim that has only the holder before it. The removal of the holder's node is its turn, without another look.
struct Next {
    /// Watches its own node: two claims would have the lock if it was gone.
    own: OneshotWatcher,
    /// After a reconnection, the events of watches that are set again do not come in the order of the changes.
    states: StateWatcher,
}

impl Next {
    /// `None` if its own node is gone already.
    async fn watch(shared: &Shared, session: &Session, own: &str) -> Option<Self> {
        let states = session.states();
        let (stat, own) = session.client.check_and_watch_stat(own).await.ok()?;
        if session.known_base().is_none() {
            session.learn_base(&shared.paths.base).await.ok()?;
        }
        stat.map(|_| Self { own, states })
    }

    /// Returns the number and the base for the token of this claim if the event is its turn. The number is that of the removal.
    ///
    /// Servers before 3.9 do not send it, nor does any server that tells of a removal late, over a new connection. Events come in the
    /// order of the changes, so an older change of its own node is known already. A holder that keeps the lock taken changes its node
    /// before it removes it, so its event is another one.
    async fn turn(mut self, session: &Session, event: WatchedEvent) -> Option<Numbers> {
        tokio::select! {
            biased;
            _ = self.own.changed() => return None,
            _ = self.states.changed() => return None,
            () = std::future::ready(()) => {}
        }
        let is_removal = event.event_type == EventType::NodeDeleted && event.zxid > 0;
        // Not read from here on: over another connection, it may be older than the event.
        is_removal.then_some((event.zxid, Some(session.known_base()?)))
    }
}

/// Grants the lock to a claim that was the first when its directory was read. `None` if it still waits.
///
/// A write of this session that was answered not long ago promises the node of the claim for the whole lease: nothing is written then.
/// Until its time is noted, others see since when it waited.
async fn grant(shared: &Shared, session: &Session, owner: OwnerId, (newest, known): Numbers) -> Option<bool> {
    let Ok(_turn) = shared.turn(owner, shared.now().after(PATIENCE)).await else { return None };
    // Meanwhile it may have asked by itself, or have ended.
    let place = shared.places.waiting(owner)?;
    let (ticket, inbox) = (place.ticket.as_ref()?, shared.inbox()?);
    let lease = ticket.grant_ttl.min(session.lease());
    let (zxid, known, at, noted) = if session.promises(place.asked, lease) {
        (newest, known, shared.server_now(), false)
    } else {
        match shared.rewrite(session, &place).await {
            Ok(stat) => (stat.mzxid, session.known_base(), stat.mtime, true),
            Err(error) => {
                if error == Error::NoNode {
                    tell(shared, owner);
                    shared.places.remove(owner);
                }
                return None;
            }
        }
    };
    let token = token(shared, session, &place, (zxid, known)).await.ok()?;
    // For its caller, the lease counts from the last request, and ends at most half a session after the newest answered write was sent.
    if shared.places.grant(owner, token, at, place.expires) {
        let mut claim = Claim::new(place.data.key.clone(), lease);
        claim.owner = owner;
        inbox.granted(Grant::new(claim, token, ticket.stamp));
    }
    Some(noted)
}

/// Writes to the node of a holder, so that its time tells others since when the lock is held.
async fn note(shared: &Shared, session: &Session, owner: OwnerId) {
    sleep(NOTED_AFTER).await;
    while let Some(place) = shared.places.get(owner) {
        match shared.rewrite(session, &place).await {
            Ok(_) | Err(Error::NoNode) => return,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn tell(shared: &Shared, owner: OwnerId) {
    if let Some(inbox) = shared.inbox() {
        inbox.ask_again(owner);
    }
}
