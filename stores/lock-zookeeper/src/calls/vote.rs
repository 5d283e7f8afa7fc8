//! Votes as a member of a quorum. The tokens of a quorum count the time of day, as those of its other members do.

use std::sync::Arc;

use lock_store::{AcquireRequest, Attempt, Claim, FencingToken, Holder, LockError, Result, Timestamp, Vote};
use zookeeper_client::{Error, MultiWriteError};

use crate::calls::TRIES;
use crate::calls::acquire::{acquire, undo};
use crate::error::{foreign, of_request};
use crate::names::KeyHash;
use crate::session::Session;
use crate::shared::Shared;

/// How far ahead of the leader's clock a token may be that others know, in ms.
const AHEAD: u64 = 3_600_000;

/// How many grants a millisecond has numbers for.
const SEQUENCE: u64 = 1 << 13;

/// Takes the lock without waiting, and draws the least token that exceeds the floor and every token that was drawn before.
pub(crate) async fn vote(shared: Arc<Shared>, request: AcquireRequest, until: Timestamp) -> Result<Vote> {
    let (claim, floor) = (request.claim.clone(), request.floor);
    let mut alone = request;
    (alone.ticket, alone.tentative, alone.floor) = (None, false, FencingToken::default());
    let path = || shared.places.get(claim.owner).filter(|place| place.granted.is_some()).map(|place| place.path);
    let before = path();
    let lease = match acquire(Arc::clone(&shared), alone, until).await? {
        Attempt::Granted { lease, .. } => lease,
        Attempt::Held { holder } => return Ok(Vote::Held { holder, history: None }),
        _ => return Ok(Vote::Held { holder: Holder::unseen(), history: None }),
    };
    let session = shared.session(until).await?;
    let drawn = match (lease, path()) {
        (Some(lease), _) => Err(LockError::misconfigured(format!(
            "a session of {:?} promises a lock for {lease:?} at a time; use a shorter ttl in the quorum, or a longer session= in the URL",
            session.lasts
        ))),
        (None, Some(path)) => draw(&shared, &session, &claim, &path, floor).await.map(|drawn| (path, drawn)),
        (None, None) => Err(LockError::not_executed("the claim has ended while it was granted")),
    };
    if drawn.is_err() {
        // A vote without a token is none.
        undo(&shared, &session, &claim).await;
    }
    let (path, (token, time)) = drawn?;
    Ok(Vote::Granted { token, kept: before == Some(path), history: None, time: Some(time) })
}

/// A token, and the time of the leader's clock when it was drawn.
type Drawn = (FencingToken, u64);

/// Draws a token while the claim has its node. The newest one is in the node of the directory, so it outlives every lock in there.
async fn draw(shared: &Shared, session: &Session, claim: &Claim, path: &str, floor: FencingToken) -> Result<Drawn> {
    let folder = shared.paths.shard(KeyHash::of(&claim.key).shard());
    // Other locks of the directory draw theirs.
    for _ in 0..4 * TRIES {
        let (data, stat) = session.client.get_data(&folder).await.map_err(of_request)?;
        let newest = read(&data).ok_or_else(|| foreign(&folder, &claim.key))?;
        let now = u64::try_from(shared.server_now()).unwrap_or(0);
        let token = next(floor.get(), newest, now).ok_or_else(|| {
            LockError::misconfigured(format!(
                "the newest token known, {floor}, lies more than an hour ahead of the time of ZooKeeper's leader, so no token can exceed it; \
                 correct the clocks of the members"
            ))
        })?;
        let mut step = session.client.new_multi_writer();
        let added = step.add_check_version(path, -1);
        let added = added.and_then(|()| step.add_set_data(&folder, token.to_string().as_bytes(), Some(stat.version)));
        added.map_err(of_request)?;
        match step.commit().await {
            Ok(_) => return Ok((FencingToken::new(token), now)),
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => {
                return Err(LockError::not_executed("the claim has ended while it was granted"));
            }
            Err(MultiWriteError::OperationFailed { index: 1, source: Error::BadVersion }) => {}
            Err(error) => return Err(of_request(error)),
        }
    }
    Err(LockError::not_executed("other locks draw tokens all the time; try again"))
}

/// Reads the newest token that a directory has seen. A new directory has seen none.
fn read(data: &[u8]) -> Option<u64> {
    if data.is_empty() { Some(0) } else { std::str::from_utf8(data).ok()?.parse().ok() }
}

/// Returns the least first token of a grant above the floor, the newest one, and every token from before `now`. `None` if the floor lies
/// too far ahead. A newest token that does is the work of a clock that was wrong, and is cut off there.
fn next(floor: u64, newest: u64, now: u64) -> Option<u64> {
    let number = |token: u64| token / FencingToken::PER_GRANT;
    let ahead = now.saturating_add(AHEAD).saturating_mul(SEQUENCE);
    if number(floor) > ahead {
        return None;
    }
    let before = now.saturating_mul(SEQUENCE).saturating_sub(1);
    let above = before.max(number(floor)).max(number(newest).min(ahead));
    above.checked_add(1)?.checked_mul(FencingToken::PER_GRANT)
}

#[cfg(test)]
mod tests {
    use super::{next, read};

    #[test]
    fn the_next_token_is_the_least_that_exceeds_all() {
        let at = |ms: u64, sequence: u64| (ms << 20) + (sequence << 7);
        for (floor, newest, now, token) in [
            (0, 0, 5, Some(at(5, 0))),
            (at(5, 0), 0, 5, Some(at(5, 1))),
            (at(5, 1) - 1, 0, 5, Some(at(5, 1))),
            (at(4, 9), at(7, 8191), 5, Some(at(8, 0))),
            (at(3_600_005, 0), 0, 5, Some(at(3_600_005, 1))),
            (at(3_600_006, 0), 0, 5, None),
            (0, u64::MAX, 5, Some(at(3_600_005, 1))),
        ] {
            assert_eq!(next(floor, newest, now), token, "{floor} {newest}");
        }
    }

    #[test]
    fn a_directory_tells_its_newest_token() {
        assert_eq!([read(b""), read(b"128"), read(b"x")], [Some(0), Some(128), None]);
    }
}
