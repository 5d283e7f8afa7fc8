//! The calls beside those of claims: the holder, the runs of jobs, marks of finished work, and an operator's release.

use std::sync::Arc;
use std::time::Duration;

use lock_store::{
    Claim, DoneMark, Freed, Holder, JobRecord, JobVersion, LockKey, Result, Revocation, RevokeFrom, Timestamp,
};

use crate::calls::change::change;
use crate::data;
use crate::names::lease_of;
use crate::record::{Holding, Record, notes_of};
use crate::shared::{Shared, check_key};

/// Describes the holder of a lock.
pub(crate) async fn holder(shared: Arc<Shared>, key: LockKey, until: Timestamp) -> Result<Option<Holder>> {
    let seen = shared.read(&lease_of(&key), until).await?;
    Ok(shared.taken_until(&seen).map(|_| shared.in_the_way(&seen)))
}

/// Reads the Lease of a lock.
pub(crate) async fn read(shared: &Shared, key: &LockKey, until: Timestamp) -> Result<Option<Arc<Record>>> {
    let record = shared.read(&lease_of(key), until).await?.record;
    record.iter().try_for_each(|record| check_key(record, key))?;
    Ok(record)
}

/// Reads the record of a job.
pub(crate) async fn last_run(shared: Arc<Shared>, key: LockKey, until: Timestamp) -> Result<Option<JobRecord>> {
    let record = read(&shared, &key, until).await?;
    Ok(record.and_then(|record| data::job(record.notes(), shared.server_now())))
}

/// Reads a mark.
pub(crate) async fn done(
    shared: Arc<Shared>,
    key: LockKey,
    version: JobVersion,
    until: Timestamp,
) -> Result<Option<DoneMark>> {
    let Some(record) = read(&shared, &key, until).await? else { return Ok(None) };
    data::mark(record.notes(), &version, shared.server_now()).map_err(|error| error.with_key(&key))
}

/// Writes a mark, in one update with the check that the claim still has the lock.
pub(crate) async fn mark_done(
    shared: Arc<Shared>,
    (claim, version, keep): (Claim, JobVersion, Option<Duration>),
    until: Timestamp,
) -> Result<bool> {
    let _turn = shared.turn(claim.owner, until).await?;
    let known = shared.claims.get(claim.owner);
    let marked = change(&shared, &claim.key, known, until, |record, now| {
        let info = record.info().filter(|_| record.owner() == Some(claim.owner));
        let Some(info) = info else { return Ok((None, false)) };
        let mut lease = record.lease().clone();
        data::write_mark(notes_of(&mut lease), &version, &info, now, keep.unwrap_or(DoneMark::KEPT))?;
        Ok((Some(lease), true))
    });
    Ok(marked.await? == Some(true))
}

/// Removes a mark. Returns whether there was one.
pub(crate) async fn forget_done(
    shared: Arc<Shared>,
    key: LockKey,
    version: JobVersion,
    until: Timestamp,
) -> Result<bool> {
    let forgotten = change(&shared, &key, None, until, |record, now| {
        let mut lease = record.lease().clone();
        let was_done = data::remove_mark(notes_of(&mut lease), &version, now);
        Ok((was_done.then_some(lease), was_done))
    });
    Ok(forgotten.await? == Some(true))
}

/// Takes a lock away from the named holder, and from no other.
pub(crate) async fn revoke(
    shared: Arc<Shared>,
    key: LockKey,
    revocation: Revocation,
    until: Timestamp,
) -> Result<Freed> {
    let revoked = change(&shared, &key, None, until, |record, now| {
        let mut lease = record.freed(now);
        match (record.holding(), &revocation.from) {
            (Holding::Claim(owner), RevokeFrom::Owner(from)) if owner == *from => {
                data::write_revocation(notes_of(&mut lease), owner, &revocation.actor, &revocation.reason);
            }
            // That client cannot be told, and notices at its next renewal.
            (Holding::Foreign(holder), RevokeFrom::Foreign(from)) if holder.as_bytes() == from.as_slice() => {}
            _ => return Ok((None, Freed::NotHeld)),
        }
        Ok((Some(lease), Freed::Released))
    });
    Ok(revoked.await?.unwrap_or(Freed::NotHeld))
}
