//! ZooKeeper as a member of a quorum of unlike stores.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{FencingToken, HolderInfo, LockBackend as _, LockErrorKind, LockKey};
use lock_store::{AcquireRequest, Claim, Freed, QuorumMember as _, Release, Vote};
use lock_testing::limit;
use lock_zookeeper::ZooKeeper;

use crate::servers::{NEWEST, Pace, Servers, is_installed};
use crate::support::{LONG, SECOND};

const TTL: Duration = Duration::from_secs(10);

fn request(key: &str, floor: u64) -> AcquireRequest {
    let mut request =
        AcquireRequest::new(Claim::new(LockKey::new(key).unwrap(), TTL), HolderInfo::new("here", 1, "test"));
    (request.floor, request.execute_within, request.repeated) = (FencingToken::new(floor), LONG, true);
    request
}

/// Returns the token of a vote, and whether the claim had the lock before.
async fn granted(store: &ZooKeeper, request: &AcquireRequest) -> (u64, bool) {
    match store.vote(request).await.unwrap() {
        Vote::Granted { token, kept, history: None, time: Some(_) } => (token.get(), kept),
        vote => panic!("{vote:?}"),
    }
}

/// The first token of a time from now on.
fn token_in(time: Duration) -> u64 {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + time;
    u64::try_from(then.as_millis()).unwrap() << 20
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit(120)]
async fn members_with_one_floor_give_one_token_and_never_a_lower_one_again() {
    let Some(mut servers) = Servers::one(Pace::PATIENT) else { return };
    let [one, two] = ["/one", "/two"].map(|root| ZooKeeper::new(&servers.url(root)).unwrap());
    let floor = token_in(LONG);
    let [ours, theirs] = [request("k", floor), request("k", floor)];
    let least = floor + FencingToken::PER_GRANT;
    assert_eq!([granted(&one, &ours).await, granted(&two, &ours).await], [(least, false); 2]);
    assert!(
        matches!(one.vote(&theirs).await.unwrap(), Vote::Held { holder, .. } if holder.owner == Some(ours.claim.owner))
    );
    // The second round raises both to the token of another member.
    let mut again = ours.clone();
    again.floor = FencingToken::new(least + 5 * FencingToken::PER_GRANT);
    let raised = again.floor.get() + FencingToken::PER_GRANT;
    assert_eq!([granted(&one, &again).await, granted(&two, &again).await], [(raised, true); 2]);
    assert_eq!(one.release(&Release::new(ours.claim)).await, Ok(Freed::Released));
    // Also after the server was killed, and by a process that knows nothing of it.
    servers.kill(0);
    servers.restart(0);
    let one = ZooKeeper::new(&servers.url("/one")).unwrap();
    assert_eq!(granted(&one, &request("k", 0)).await, (raised + FencingToken::PER_GRANT, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[limit]
async fn a_vote_that_a_quorum_cannot_count_leaves_nothing() {
    if !is_installed(NEWEST) {
        return;
    }
    let servers = Servers::shared(NEWEST, 1);
    let store = ZooKeeper::new(&servers.url("/uncounted?session=20s")).unwrap();
    let far = request("k", token_in(Duration::from_secs(2 * 3600)));
    let mut long = request("k", 0);
    long.claim.ttl = TTL + SECOND;
    for (request, says) in [(far, "more than an hour ahead"), (long, "a shorter ttl in the quorum")] {
        let error = store.vote(&request).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(store.holder(&request.claim.key).await.unwrap().is_none());
    }
    let now = [token_in(Duration::ZERO), granted(&store, &request("k", 0)).await.0, token_in(LONG)];
    assert!(now.is_sorted(), "a token without a floor counts the time of day: {now:?}");
}
