//! Removes what has ended by the server's clock: locks that nobody asked for since they were kept, records of jobs, and marks.

use std::time::Duration;

use lock_store::Result;
use lock_store::types::system::clock::jitter;
use lock_store::types::system::random;

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
    shared.write(session).await.map_err(of_request)?;
    let folder = shared.paths.shard(shard);
    let is_lasting = |name: &&String| read(name).is_some_and(|(_, child)| matches!(child, Child::Kept | Child::Job));
    for name in session.children(&folder).await?.iter().filter(is_lasting) {
        let ends = |data: &[u8]| {
            KeptData::read(data).map(|kept| kept.until).or_else(|| JobData::read(data).map(|job| job.until))
        };
        remove_if_over(shared, session, &format!("{folder}/{name}"), ends).await?;
    }
    let folder = shared.paths.marks(shard);
    for name in session.children(&folder).await? {
        let ends = |data: &[u8]| MarkData::read(data).map(|mark: MarkData| mark.until);
        remove_if_over(shared, session, &format!("{folder}/{name}"), ends).await?;
    }
    Ok(())
}

async fn remove_if_over(shared: &Shared, session: &Session, path: &str, ends: fn(&[u8]) -> Option<i64>) -> Result<()> {
    match session.read(path).await? {
        Some((data, stat)) if ends(&data).is_some_and(|ends| ends <= shared.server_now()) => {
            session.remove_read(path, &stat).await
        }
        _ => Ok(()),
    }
}
