//! Hears of locks that an operator takes away: a note appears in one directory, which every process watches.

use std::time::Duration;

use lock_store::OwnerId;

use crate::data::read_revocation;
use crate::session::{Session, sleep};
use crate::shared::Shared;

/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Tells the holders of this process, until the session ends.
pub(crate) async fn hear(shared: &Shared, session: &Session) {
    while !session.has_ended() {
        match session.client.list_and_watch_children(&shared.paths.revoked).await {
            Ok((names, watcher)) => {
                for owner in names.iter().filter_map(|name| OwnerId::from_hex(name)) {
                    tell(shared, session, owner).await;
                }
                watcher.changed().await;
            }
            Err(error) => {
                tracing::debug!(%error, "notes about locks that are taken away are not read; a holder learns of it when it renews");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn tell(shared: &Shared, session: &Session, owner: OwnerId) {
    if shared.places.get(owner).is_none_or(|place| place.granted.is_none()) {
        return;
    }
    // A note that cannot be read costs the holder the reason and some time.
    let Ok((data, _)) = session.client.get_data(&shared.paths.revoked_from(owner)).await else { return };
    let (Some((actor, reason)), Some(inbox)) = (read_revocation(&data), shared.inbox()) else { return };
    shared.places.remove(owner);
    inbox.revoked(owner, &actor, &reason);
}
