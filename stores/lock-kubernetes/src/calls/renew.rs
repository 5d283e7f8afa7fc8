//! Renews claims. Each has its own Lease, and so its own update. They wait for nothing but one another.

use std::sync::Arc;

use lock_store::thread::within;
use lock_store::types::options::command_timeout;
use lock_store::types::system::together::all;
use lock_store::{Claim, LockError, Renewal, Result, Timestamp};

use crate::calls::change::{change, never_quiet};
use crate::shared::Shared;

/// Renews claims. The answers come in their order.
pub(crate) async fn renew(shared: &Arc<Shared>, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let bound = command_timeout(claims.iter().map(|claim| claim.ttl).min().unwrap_or_default());
    let until = shared.now().after(bound);
    all(claims.iter().map(|claim| async move {
        let renewed = within(bound, one(shared, claim, until)).await;
        let renewed = renewed.unwrap_or_else(|| {
            Err(LockError::unavailable(format!("the API server has not answered a renewal within {bound:?}")))
        });
        renewed.map_err(|error| error.with_key(&claim.key))
    }))
    .await
}

async fn one(shared: &Shared, claim: &Claim, until: Timestamp) -> Result<Renewal> {
    let _turn = shared.turn(claim.owner, until).await?;
    let Ok(_permit) = shared.renewals.acquire().await else { return Err(never_quiet()) };
    // Another process may have taken the lock for this claim. Then this process has no Lease of it, and reads one.
    let (known, sent) = (shared.claims.get(claim.owner), shared.now());
    let left = shared.claims.left(claim.owner, sent);
    let renewed = change(shared, &claim.key, known, until, |record, now| {
        if record.owner() != Some(claim.owner) {
            return Ok((None, false));
        }
        // The lease before may be longer, and is not shortened.
        let lasts = claim.ttl.max(left.unwrap_or_else(|| record.lasts()));
        Ok((Some(record.renewed(lasts, now)), true))
    });
    if renewed.await? != Some(true) {
        shared.claims.remove(claim.owner);
        return Ok(Renewal::Lost);
    }
    let is_held = left.is_none() || shared.claims.renew(claim.owner, sent.after(claim.ttl));
    Ok(if is_held { Renewal::Renewed } else { Renewal::Lost })
}
