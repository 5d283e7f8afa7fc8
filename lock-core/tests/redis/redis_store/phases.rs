//! A replica takes over that knows of an earlier phase of a lock than the last one.

use lock_core::{LockBackend, Mode};
use lock_store::{Attempt, Claim, Freed, Release, Renewal};
use lock_testing::{RedisServer, Reply, limit};

use crate::redis_store::{claim, granted, release, request, store};
use crate::support::eventually;

/// The phase of a reader outlives a failover that lost what came after it: a writer, and its token.
#[tokio::test]
#[limit]
async fn who_joins_a_phase_that_outlived_a_failover_has_a_token_above_what_was_lost() {
    let (mut master, replica) = (RedisServer::start(), RedisServer::start());
    let (old, new) = (store(&master), store(&replica));
    let share = |claim: &Claim| {
        let mut request = request(claim);
        request.repeated = true;
        request
    };
    let token = |attempt| match attempt {
        Ok(Attempt::Shared { token, .. }) => token,
        other => panic!("{other:?}"),
    };
    let reading = || claim("k").with_mode(Mode::READ);
    let (first, lost) = (reading(), claim("k"));
    let before = token(old.try_acquire(&share(&first)).await);
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually("the replica has heard of it", || replica.command(&["EXISTS", "k"]) == Reply::Int(1)).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(release(&old, &first).await, Freed::Released);
    let written_with = granted(&old, &lost).await;
    assert_eq!(release(&old, &lost).await, Freed::Released);
    let again = reading();
    let of_lost_phase = token(old.try_acquire(&share(&again)).await);
    assert!(before < written_with && written_with < of_lost_phase);
    master.kill();

    // By the short way, and by the long one, on which it ends another claim.
    let (joins, follows) = (reading(), reading());
    let after = token(new.try_acquire(&share(&joins)).await);
    assert!(after > of_lost_phase, "{after} after {of_lost_phase}: a fence refuses it");
    assert_eq!(token(new.try_acquire(&share(&follows)).await), after, "one phase, one token");
    let requeued = new.requeue(&Release::new(follows), &share(&reading())).await;
    assert_eq!(token(requeued), after);
    // An earlier member keeps its token. A claim that was not in it is not renewed under its own token.
    let renewed = |claim: &Claim, token| {
        let claim = claim.clone().with_token(token);
        let new = &new;
        async move { new.renew(std::slice::from_ref(&claim)).await.remove(0) }
    };
    assert_eq!(renewed(&first, before).await, Ok(Renewal::Renewed));
    assert_eq!(renewed(&joins, after).await, Ok(Renewal::Renewed));
    assert_eq!(renewed(&again, of_lost_phase).await, Ok(Renewal::Lost));
}

/// The server that takes over knows that a reader waits, and nothing of the phase that it was granted; so it grants it
/// another one, with another token.
#[tokio::test]
#[limit]
async fn a_reader_does_not_go_on_under_the_token_of_a_phase_that_was_lost() {
    let server = RedisServer::start();
    let store = store(&server);
    let reader = claim("k").with_mode(Mode::READ);
    let mut share = request(&reader);
    share.repeated = true;
    let token = |attempt| match attempt {
        Ok(Attempt::Shared { token, .. }) => token,
        other => panic!("{other:?}"),
    };
    let lost = token(store.try_acquire(&share).await);
    server.command(&["DEL", "k", "{k}@queue", "{k}@waiters"]);
    let writer = claim("k");
    granted(&store, &writer).await;
    release(&store, &writer).await;
    let anew = token(store.try_acquire(&share).await);
    assert!(anew > lost);
    let renew = |token| {
        let (store, claim) = (&store, reader.clone().with_token(token));
        async move { store.renew(std::slice::from_ref(&claim)).await.remove(0) }
    };
    assert_eq!(renew(lost).await, Ok(Renewal::Lost), "somebody else may have written in between");
    assert_eq!(renew(anew).await, Ok(Renewal::Renewed));
}
