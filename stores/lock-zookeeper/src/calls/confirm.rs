//! The write that confirms a claim before it is granted.

use std::time::Duration;

use zookeeper_client::{Error, Stat};

use crate::places::Known;
use crate::session::Session;
use crate::shared::Shared;

/// The state of a confirmed node, and the base of its token.
pub(super) type Confirmed = (Stat, Result<(Vec<u8>, Stat), Error>);

/// Writes to the node of a claim. The number of this transaction exceeds those of all grants before, unlike the number of the one that
/// made the node: the holder before may have been granted its lock again since.
pub(super) async fn confirm(shared: &Shared, session: &Session, place: &Known) -> Result<Confirmed, Error> {
    let (sent, text, base) = (shared.now(), place.data.write(), shared.paths.base());
    let write = session.client.set_data(&place.path, &text, None);
    let read = session.client.get_data(&base);
    let (written, based) = tokio::join!(write, read);
    let stat = written?;
    shared.note_time(sent, stat.mtime);
    Ok((stat, based))
}

/// Returns how long an answered write promises a lock, if that is less than its ttl.
pub(super) fn promised(session: &Session, ttl: Duration) -> Option<Duration> {
    Some(session.lease()).filter(|lease| *lease < ttl)
}
