//! Ends a claim: removes its node, and writes in the same step what outlives it.

use std::sync::Arc;

use lock_store::{Freed, JobRun, LockError, Release, Result, Timestamp};
use zookeeper_client::{Error, MultiWriteError};

use crate::calls::TRIES;
use crate::data::{ClaimData, JobData, KeptData, later};
use crate::error::{Answer, foreign, of_request};
use crate::names::KeyHash;
use crate::session::{Session, lasting};
use crate::shared::Shared;

/// The node of a claim that ends.
struct Ending {
    path: String,
    data: ClaimData,
    /// When the lock was granted, by the server's clock. `None` if the claim does not have it.
    granted: Option<i64>,
}

/// Frees what a claim has, and leaves the queue.
pub(crate) async fn release(shared: &Arc<Shared>, release: &Release, until: Timestamp) -> Result<Freed> {
    let claim = &release.claim;
    // From here on, a renewal is answered that the lock is lost.
    let place = shared.places.end(claim.owner);
    let session = &shared.session(until).await?;
    let ending = match place.filter(|place| place.session == session.id) {
        Some(place) => Some(Ending { path: place.path, data: place.data, granted: place.granted.map(|(_, at)| at) }),
        None => find(shared, session, release).await?,
    };
    let Some(ending) = ending else {
        shared.places.remove(claim.owner);
        return Ok(Freed::NotHeld);
    };
    let leaves = !release.keep_for.is_zero() || release.run.is_some();
    let removed = match ending.granted.filter(|_| leaves) {
        Some(granted) => leave(shared, session, release, &ending, granted).await?,
        None => session.client.delete(&ending.path, None).await,
    };
    let freed = match removed {
        Ok(()) if ending.granted.is_some() => Freed::Released,
        Ok(()) | Err(Error::NoNode) => Freed::NotHeld,
        Err(error) => return Err(of_request(error)),
    };
    shared.places.remove(claim.owner);
    Ok(freed)
}

/// Finds the node of a claim that this process does not know, for example of an earlier session.
async fn find(shared: &Shared, session: &Session, release: &Release) -> Result<Option<Ending>> {
    let (key, hash) = (&release.claim.key, KeyHash::of(&release.claim.key));
    let line = shared.line(session, hash).await?;
    let mut names = line.names_of(release.claim.owner);
    let Some(first) = names.next() else { return Ok(None) };
    let path = shared.paths.beside(hash, first);
    for name in names {
        shared.remove(session, &shared.paths.beside(hash, name)).await;
    }
    let Some((data, stat)) = session.read(&path).await? else { return Ok(None) };
    let data = ClaimData::read(&data).ok_or_else(|| foreign(&path, key))?;
    let is_kept = line.kept && shared.kept(session, key, shared.server_now()).await?.is_some();
    let granted = (line.position(&path) == Some(0) && !is_kept).then_some(stat.mtime);
    Ok(Some(Ending { path, data, granted }))
}

/// Removes the node of a holder. In the same step, it keeps the lock taken, records the run of a job, or both.
async fn leave(
    shared: &Shared,
    session: &Session,
    release: &Release,
    ending: &Ending,
    granted: i64,
) -> Result<Answer<()>> {
    let (key, hash, info) = (&release.claim.key, KeyHash::of(&release.claim.key), &ending.data.info);
    let mut nodes = Vec::new();
    if !release.keep_for.is_zero() {
        let until = later(shared.server_now(), release.keep_for);
        let kept = KeptData { key: key.clone(), until, since: granted, info: info.clone() };
        nodes.push(Put { path: shared.paths.kept(hash), data: kept.write(), exists: false });
        // The next claim watches this node. It hears of this change in place of the removal, and looks before it takes its turn.
        nodes.push(Put { path: ending.path.clone(), data: Vec::new(), exists: true });
    }
    if let Some(run) = release.run {
        let path = shared.paths.job(hash);
        let before = session.read(&path).await?;
        let before = before.map(|(data, _)| JobData::read(&data).ok_or_else(|| foreign(&path, key))).transpose()?;
        let job = record(ending, run, granted, shared.server_now(), before.as_ref());
        nodes.push(Put { path, data: job.write(), exists: before.is_some() });
    }
    let mut tries = 0..TRIES;
    while tries.next().is_some() {
        match write(shared, session, &ending.path, &nodes).await {
            Ok(()) => return Ok(Ok(())),
            Err(MultiWriteError::OperationFailed { index, source }) if index > 0 => {
                let Some(node) = nodes.get_mut(index - 1) else { return Ok(Err(source)) };
                match source {
                    Error::NodeExists => node.exists = true,
                    Error::NoNode => node.exists = false,
                    error => return Ok(Err(error)),
                }
            }
            Err(error) => return Ok(Err(error.into())),
        }
    }
    Err(LockError::not_executed("other processes make and remove the record of this lock all the time; try again")
        .with_key(key))
}

fn record(ending: &Ending, run: JobRun, started: i64, now: i64, before: Option<&JobData>) -> JobData {
    let (key, info) = (ending.data.key.clone(), ending.data.info.clone());
    let before = before.filter(|before| !run.succeeded && before.until > now);
    let succeeded = before.map_or(started, |before| before.succeeded);
    JobData { key, run, started, succeeded, until: later(now, run.kept_for()), info }
}

/// A node to write.
struct Put {
    path: String,
    data: Vec<u8>,
    exists: bool,
}

async fn write(shared: &Shared, session: &Session, gone: &str, nodes: &[Put]) -> Answer<(), MultiWriteError> {
    let mut step = session.client.new_multi_writer();
    // The first part, of any version, so that a claim without a node learns just that.
    step.add_check_version(gone, -1)?;
    for Put { path, data, exists } in nodes {
        if *exists {
            step.add_set_data(path, data, None)?;
        } else {
            step.add_create(path, data, &lasting(&shared.settings))?;
        }
    }
    // The last part, behind the change of this node that the next claim hears of if the lock is kept.
    step.add_delete(gone, None)?;
    step.commit().await.map(drop)
}
