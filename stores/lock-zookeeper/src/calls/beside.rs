//! The calls beside those of claims: the holder, the runs of jobs, and marks of finished work.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{Claim, DoneMark, Holder, JobRecord, JobVersion, LockError, LockKey, Result, Timestamp};
use zookeeper_client::{Error, MultiWriteError};

use crate::calls::TRIES;
use crate::data::{JobData, MarkData, later};
use crate::error::{foreign, of_request};
use crate::names::KeyHash;
use crate::session::{Session, lasting, make};
use crate::shared::Shared;

/// Describes the holder of a lock.
pub(crate) async fn holder(shared: Arc<Shared>, key: LockKey, until: Timestamp) -> Result<Option<Holder>> {
    let session = shared.session(until).await?;
    for _ in 0..TRIES {
        let line = shared.line(&session, KeyHash::of(&key)).await?;
        // It may have gone since, and the next one is the first.
        let holder = shared.holder(&session, &key, &line).await?;
        if holder.is_some() || line.claims.is_empty() {
            return Ok(holder);
        }
    }
    Ok(Some(Holder::unseen()))
}

/// Reads the record of a job.
pub(crate) async fn last_run(shared: &Shared, session: &Session, key: &LockKey) -> Result<Option<JobRecord>> {
    let path = shared.paths.job(KeyHash::of(key));
    let Some((data, _)) = session.read(&path).await.map_err(|error| error.with_key(key))? else { return Ok(None) };
    let job = JobData::read(&data).filter(|job| job.key == *key).ok_or_else(|| foreign(&path, key))?;
    Ok(job.record(shared.server_now()))
}

/// The work of one version under a key. A mark says that it is done.
type Work = (LockKey, JobVersion);

/// Reads a mark, and the version of its node.
async fn read_mark(shared: &Shared, session: &Session, (key, version): &Work) -> Result<Option<(MarkData, i32)>> {
    let path = shared.paths.mark(KeyHash::of(key), version.as_str());
    let Some((data, stat)) = session.read(&path).await.map_err(|error| error.with_key(key))? else { return Ok(None) };
    let mark = MarkData::read(&data).filter(|mark| mark.key == *key && mark.version == *version);
    mark.map(|mark| Some((mark, stat.version))).ok_or_else(|| foreign(&path, key))
}

pub(crate) async fn done(shared: Arc<Shared>, work: Work, until: Timestamp) -> Result<Option<DoneMark>> {
    let session = &shared.session(until).await?;
    // The server of this process may be behind the one that took the mark. A write of this session is not answered before it has caught up.
    let write = shared.write(session);
    let read = read_mark(&shared, session, &work);
    let (written, read) = tokio::join!(write, read);
    written.map_err(|error| of_request(error).with_key(&work.0))?;
    Ok(read?.and_then(|(mark, _)| mark.mark(shared.server_now())))
}

type Mark = (Claim, JobVersion, Option<Duration>);

/// Writes a mark, in one step with the check that the claim still has its node.
pub(crate) async fn mark_done(shared: Arc<Shared>, (claim, version, keep): Mark, until: Timestamp) -> Result<bool> {
    let session = &shared.session(until).await?;
    let place = shared.places.get(claim.owner).filter(|place| place.session == session.id && place.granted.is_some());
    let Some(place) = place else { return Ok(false) };
    let (key, hash, now) = (&claim.key, KeyHash::of(&claim.key), shared.server_now());
    let mark = MarkData {
        key: key.clone(),
        version: version.clone(),
        at: now,
        until: later(now, keep.unwrap_or(DoneMark::KEPT)),
        info: place.data.info,
    };
    let (path, text) = (shared.paths.mark(hash, version.as_str()), mark.write());
    let mut exists = read_mark(&shared, session, &(key.clone(), version)).await?.is_some();
    for _ in 0..TRIES {
        let mut step = session.client.new_multi_writer();
        let added = step.add_check_version(&place.path, -1).and_then(|()| match exists {
            true => step.add_set_data(&path, &text, None),
            false => step.add_create(&path, &text, &lasting(&shared.settings)),
        });
        added.map_err(of_request)?;
        match step.commit().await {
            Ok(_) => return Ok(true),
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => return Ok(false),
            Err(MultiWriteError::OperationFailed { index: 1, source: Error::NodeExists }) => exists = true,
            Err(MultiWriteError::OperationFailed { index: 1, source: Error::NoNode }) => {
                exists = false;
                let folder = shared.paths.marks(hash.shard());
                make(&session.client, &shared.settings, &folder).await.map_err(of_request)?;
            }
            Err(error) => return Err(of_request(error).with_key(key)),
        }
    }
    Err(LockError::not_executed("other processes make and remove this mark all the time; try again").with_key(key))
}

pub(crate) async fn forget_done(shared: Arc<Shared>, work: Work, until: Timestamp) -> Result<bool> {
    let (session, (key, version)) = (&shared.session(until).await?, &work);
    for _ in 0..TRIES {
        let Some((mark, at)) = read_mark(&shared, session, &work).await? else { return Ok(false) };
        let lasts = mark.mark(shared.server_now()).is_some();
        let path = shared.paths.mark(KeyHash::of(key), version.as_str());
        match session.client.delete(&path, Some(at)).await {
            Ok(()) => return Ok(lasts),
            // It was written again, or removed.
            Err(Error::BadVersion | Error::NoNode) => {}
            Err(error) => return Err(of_request(error).with_key(key)),
        }
    }
    Err(LockError::not_executed("other processes write this mark all the time; try again").with_key(key))
}
