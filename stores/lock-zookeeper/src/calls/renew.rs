//! Renews claims: one write, and behind it one read of their nodes.
//!
//! The nodes themselves are never written to. Each write would wake the waiter that watches the node.

use std::sync::Arc;

use lock_store::types::options::command_timeout;
use lock_store::{Claim, LockError, Renewal, Result, Timestamp};
use zookeeper_client::{Error, MultiReadResult};

use crate::error::of_request;
use crate::places::Known;
use crate::session::{Session, within};
use crate::shared::Shared;

/// Renews claims. A claim of an earlier session is lost, even if a server still shows its node.
pub(crate) async fn renew(shared: Arc<Shared>, claims: Vec<Claim>) -> Vec<Result<Renewal>> {
    let shared = &shared;
    let began = shared.now();
    let bound = command_timeout(claims.iter().map(|claim| claim.ttl).min().unwrap_or_default());
    let held: Vec<Option<Known>> =
        claims.iter().map(|claim| shared.places.get(claim.owner).filter(|place| place.granted.is_some())).collect();
    let answers = match held.iter().flatten().next() {
        Some(_) => within(bound, ask(shared, began.after(bound), &held)).await.unwrap_or_else(|| {
            Err(LockError::unavailable(format!("ZooKeeper has not answered a renewal within {bound:?}")))
        }),
        None => Ok((None, Vec::new())),
    };
    let (session, read) = match answers {
        Ok(answers) => answers,
        // A session that ended meanwhile took its claims along.
        Err(error) => {
            let known = |claim: &Claim| shared.places.get(claim.owner).filter(|place| place.granted.is_some());
            return claims.iter().map(|claim| known(claim).map_or(Ok(Renewal::Lost), |_| Err(error.clone()))).collect();
        }
    };
    let mut read = read.into_iter();
    let answer = |(claim, place): (&Claim, Option<Known>)| match (place, &session) {
        (Some(place), Some(session)) if place.session == session.id => {
            let node = read
                .next()
                .ok_or_else(|| LockError::unavailable("ZooKeeper answered for fewer nodes than it was asked"))?;
            one(shared, session, claim, began, node)
        }
        _ => Ok(Renewal::Lost),
    };
    claims.iter().zip(held).map(answer).collect()
}

type Answers = (Option<Arc<Session>>, Vec<MultiReadResult>);

/// Writes to the node of the session, and reads those of the claims that belong to it.
async fn ask(shared: &Shared, until: Timestamp, held: &[Option<Known>]) -> Result<Answers> {
    let session = shared.session(until).await?;
    let mut reader = session.client.new_multi_reader();
    for place in held.iter().flatten().filter(|place| place.session == session.id) {
        reader.add_get_data(&place.path).map_err(of_request)?;
    }
    // Sent in this order before the first answer, and answered in this order.
    let write = shared.write(&session);
    let (written, read) = tokio::join!(write, reader.commit());
    written.map_err(of_request)?;
    let read = read.map_err(of_request)?;
    Ok((Some(Arc::clone(&session)), read))
}

fn one(shared: &Shared, session: &Session, claim: &Claim, began: Timestamp, node: MultiReadResult) -> Result<Renewal> {
    match node {
        MultiReadResult::Data { stat, .. } if stat.ephemeral_owner == session.id => {
            if !shared.places.keep(claim.owner, began.after(claim.ttl)) {
                return Ok(Renewal::Lost);
            }
            Ok(session.promised(claim.ttl).map_or(Renewal::Renewed, Renewal::RenewedFor))
        }
        MultiReadResult::Error { err: Error::NoNode } => {
            shared.places.remove(claim.owner);
            Ok(Renewal::Lost)
        }
        MultiReadResult::Error { err } => Err(of_request(err)),
        _ => Ok(Renewal::Lost),
    }
}
