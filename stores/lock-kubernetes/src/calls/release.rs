//! Ends a claim: empties the holder of its Lease, and writes in the same update what outlives it.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use lock_store::types::system::random;
use lock_store::{Freed, Release, Result, Timestamp};

use crate::calls::change::{TRIES, change, never_quiet};
use crate::calls::wait::withdraw;
use crate::data::{FENCE, later, write_job};
use crate::names::lease_of;
use crate::record::{Record, notes_of};
use crate::shared::Shared;

/// Frees what a claim has, and leaves the waiters. Afterwards no late write of the claim can take the lock.
pub(crate) async fn release(shared: &Arc<Shared>, release: &Release, until: Timestamp) -> Result<Freed> {
    let (claim, name) = (&release.claim, lease_of(&release.claim.key));
    let waited = shared.waiters.leave(&name, claim.owner);
    // From here on, a renewal is answered that the lock is lost.
    let mut known = shared.claims.end(claim.owner);
    let unsettled = shared.claims.unsettled(claim.owner);
    if waited == Some(true) && known.is_none() {
        shared.runtime.spawn(withdraw(Arc::clone(shared), claim.key.clone(), claim.owner));
    }
    if waited.is_some() && known.is_none() && unsettled.is_none() {
        return Ok(Freed::NotHeld);
    }
    for _ in 0..TRIES {
        let freed = change(shared, &claim.key, known.take(), until, |record, now| {
            if record.owner() == Some(claim.owner) {
                return Ok((Some(ended(shared, release, record, now)), Freed::Released));
            }
            Ok((unsettled.and_then(|based| fence(record, based)), Freed::NotHeld))
        })
        .await?;
        let is_settled = match freed {
            // A Lease may still be created that has no answer yet, but not beside another one.
            None if unsettled == Some(0) => shared.api.write(Record::blank(&claim.key).lease(), until).await?.is_some(),
            _ => true,
        };
        if is_settled {
            shared.claims.remove(claim.owner);
            shared.claims.settle(claim.owner);
            let freed = freed.unwrap_or(Freed::NotHeld);
            if freed == Freed::Released {
                shared.waiters.released(&name, shared.now());
            }
            shared.plan(&name);
            return Ok(freed);
        }
    }
    Err(never_quiet())
}

/// Returns the Lease behind the end of a claim: free, or still taken for a while, with the run of a job.
fn ended(shared: &Shared, release: &Release, record: &Record, now: i64) -> Lease {
    let keep = release.keep_for;
    let mut lease = if keep.is_zero() {
        record.freed(now)
    } else {
        record.kept(later(shared.time().most(shared.now()), keep), keep, now)
    };
    if let (Some(run), Some(info)) = (release.run, record.info()) {
        write_job(notes_of(&mut lease), run, &info, record.times().0.unwrap_or(now), now);
    }
    lease
}

/// Returns the write that a late one must lose against. An update without an answer may still come, but only to a Lease that has not
/// changed since.
fn fence(record: &Record, based: u64) -> Option<Lease> {
    if based != record.version {
        return None;
    }
    let mut lease = record.lease().clone();
    // The server does not execute an update that changes nothing.
    let text = format!("{:08x}{:08x}", random::below(u32::MAX), random::below(u32::MAX));
    notes_of(&mut lease).insert(FENCE.to_owned(), text);
    Some(lease)
}
