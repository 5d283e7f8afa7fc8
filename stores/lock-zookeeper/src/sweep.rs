//! Removes what has ended by the server's clock: locks that nobody asked for since they were kept, records of jobs, and marks.

use std::time::Duration;

use lock_store::Result;
use lock_store::types::system::clock::jitter;
use lock_store::types::system::random;
use zookeeper_client::Error;

use crate::data::{JobData, KeptData, MarkData};
use crate::error::of_request;
use crate::names::{Child, SHARDS, read};
use crate::session::{Session, sleep};
use crate::shared::Shared;

/// How often a process looks into one directory of locks and one of marks. Ten processes look into all of them in an hour.
const PAUSE: Duration = Duration::from_secs(30);

/// Sweeps one directory after the other, until the session ends.
pub(crate) async fn sweep(shared: &Shared, session: &Session) {
    let mut shard = u16::try_from(random::below(u32::from(SHARDS))).unwrap_or(0);
    while !session.has_ended() {
        sleep(jitter(PAUSE / 2, PAUSE * 3 / 2)).await;
        if let Err(error) = sweep_one(shared, session, shard).await {
            tracing::debug!(%error, "nodes in ZooKeeper that have ended are not removed yet");
        }
        shard = (shard + 1) % SHARDS;
    }
}

async fn sweep_one(shared: &Shared, session: &Session, shard: u16) -> Result<()> {
    shared.write(session).await.map_err(|error| of_request(&error))?;
    let folder = shared.paths.shard(shard);
    let is_lasting = |name: &&String| read(name).is_some_and(|(_, child)| matches!(child, Child::Kept | Child::Job));
    for name in children(session, &folder).await?.iter().filter(is_lasting) {
        let ends = |data: &[u8]| {
            KeptData::read(data).map(|kept| kept.until).or_else(|| JobData::read(data).map(|job| job.until))
        };
        remove_if_over(shared, session, &format!("{folder}/{name}"), ends).await?;
    }
    let folder = shared.paths.marks(shard);
    for name in children(session, &folder).await? {
        let ends = |data: &[u8]| MarkData::read(data).map(|mark: MarkData| mark.until);
        remove_if_over(shared, session, &format!("{folder}/{name}"), ends).await?;
    }
    Ok(())
}

/// Lists a directory, which may not exist yet.
pub(crate) async fn children(session: &Session, folder: &str) -> Result<Vec<String>> {
    match session.client.list_children(folder).await {
        Ok(names) => Ok(names),
        Err(Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(of_request(&error)),
    }
}

async fn remove_if_over(
    shared: &Shared,
    session: &Session,
    path: &str,
    ends: impl Fn(&[u8]) -> Option<i64>,
) -> Result<()> {
    let (data, stat) = match session.client.get_data(path).await {
        Ok(found) => found,
        Err(Error::NoNode) => return Ok(()),
        Err(error) => return Err(of_request(&error)),
    };
    if ends(&data).is_none_or(|ends| ends > shared.server_now()) {
        return Ok(());
    }
    // Only what was read: it may have been written again.
    match session.client.delete(path, Some(stat.version)).await {
        Ok(()) | Err(Error::NoNode | Error::BadVersion) => Ok(()),
        Err(error) => Err(of_request(&error)),
    }
}
