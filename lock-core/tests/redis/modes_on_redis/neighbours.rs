//! Locks that are shared, beside what other parts do with the same keys: members of a quorum, confirmations, leases
//! that are raised without a script, and moments that are left free for clients of other libraries.

use std::sync::Arc;

use lock_core::{
    FencingToken, HolderInfo, LockBackend, LockErrorKind, LockKey, LockManager, MemoryStore, Mode, RedisStore,
};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, QuorumMember, Release, Ticket, Vote};
use lock_testing::{RedisServer, Report, limit};

use crate::support::{LONG, MS, SECOND, eventually, exists, listening, locked_keys, locks, pttl};

fn claim(mode: Mode) -> Claim {
    Claim::new(LockKey::new("k").unwrap(), LONG).with_mode(mode)
}

fn ask(claim: &Claim) -> AcquireRequest {
    AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"))
}

async fn votes_for_nobody_while_it_is_shared(store: impl LockBackend + QuorumMember) {
    let (reader, member) = (claim(Mode::READ), claim(Mode::Exclusive));
    assert!(matches!(store.try_acquire(&ask(&reader)).await, Ok(Attempt::Shared { .. })));
    for _ in 0..2 {
        assert!(matches!(store.vote(&ask(&member)).await, Ok(Vote::Held { .. })));
    }
    assert_eq!(store.release(&Release::new(reader.clone())).await, Ok(Freed::Released));
    assert!(matches!(store.vote(&ask(&member)).await, Ok(Vote::Granted { .. })));
    assert!(matches!(store.try_acquire(&ask(&reader)).await, Ok(Attempt::Held { .. })), "and a vote excludes readers");
}

#[tokio::test]
#[limit]
async fn a_member_of_a_quorum_has_no_vote_for_a_lock_that_is_shared() {
    let server = RedisServer::start();
    votes_for_nobody_while_it_is_shared(RedisStore::new(&server.url()).unwrap()).await;
    votes_for_nobody_while_it_is_shared(MemoryStore::new()).await;
}

#[tokio::test]
#[limit]
async fn a_reader_counts_only_when_it_is_confirmed_where_it_must_be() {
    let server = RedisServer::start();
    // No replica has it, ever.
    let locks = LockManager::connect(&format!("{}?acks=1", server.url())).await.unwrap();
    for request in [locks.read("k"), locks.semaphore("k", 4)] {
        let error = request.with_ttl(SECOND).without_waiting().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("that a replica has the lock"), "{error}");
        eventually("it is undone", || !exists(&server, "k")).await;
    }
}

#[tokio::test]
#[limit]
async fn a_writer_whose_lease_was_raised_becomes_a_reader() {
    let server = RedisServer::start();
    let (one, two) = (locks(&server), locks(&server));
    let writer = one.write("k").with_ttl(1_200 * MS).await.unwrap();
    tokio::time::sleep(1_500 * MS).await;
    writer.downgrade().await.unwrap();
    let reader = two.read("k").with_ttl(LONG).await.unwrap();
    assert_eq!(reader.token(), writer.token(), "one phase");
    tokio::time::sleep(1_500 * MS).await;
    writer.ensure_held().unwrap();
    reader.release().await.unwrap();
    let left = pttl(&server, "k");
    assert!((1..=1_200).contains(&left), "the key is kept for the one that is left: {left}");
    writer.release().await.unwrap();
    assert_eq!(locked_keys(&server), [""; 0]);
}

/// A client of another library had the key a moment ago, so a lock that passes on is left free for a moment. A reader
/// that comes just then stands behind the waiter, and its arrival grants the lock to the waiter at the latest.
#[tokio::test]
#[limit]
async fn a_moment_that_is_left_free_ends_with_a_reader_who_passes_nobody() {
    let server = RedisServer::start();
    let store = Arc::new(RedisStore::new(&server.url()).unwrap());
    let (inbox, mut reports) = listening(&store).await;
    let ask = |claim: &Claim| {
        let mut request = ask(claim);
        request.ticket = Some(Ticket::new(Arc::clone(inbox.id()), 1, LONG));
        request.repeated = true;
        request
    };
    let (first, second, reader) = (claim(Mode::Exclusive), claim(Mode::Exclusive), claim(Mode::READ));
    server.command(&["SET", "k", "theirs", "PX", "60000"]);
    // A reader notes them as well as a writer would.
    let mut passing = ask(&reader);
    passing.ticket = None;
    assert!(matches!(store.try_acquire(&passing).await, Ok(Attempt::Held { .. })));
    assert!(exists(&server, "{k}@waiters"), "they are expected");
    server.command(&["DEL", "k"]);
    assert!(matches!(store.try_acquire(&ask(&first)).await, Ok(Attempt::Granted { .. })));
    assert!(matches!(store.try_acquire(&ask(&second)).await, Ok(Attempt::Queued { .. })));
    tokio::time::sleep(150 * MS).await;
    // The entries of a phase whose key was deleted must not get messages.
    server.command(&["ZADD", "{k}@queue", "-1", &claim(Mode::READ).owner.to_hex()]);
    assert_eq!(store.release(&Release::new(first)).await, Ok(Freed::Released));
    assert_eq!(reports.next().await, Some(Report::AskAgain(second.owner)), "the key is left free");
    assert!(matches!(store.try_acquire(&ask(&reader)).await, Ok(Attempt::Queued { .. })));
    let grant = tokio::time::timeout(10 * SECOND, reports.next_grant()).await.expect("whoever came first is granted");
    let grant = grant.unwrap();
    assert_eq!(grant.claim.owner, second.owner);
    assert_eq!(store.release(&Release::new(second)).await, Ok(Freed::Released));
    let next = tokio::time::timeout(10 * SECOND, reports.next_grant()).await.expect("then the reader");
    assert_eq!(next.as_ref().map(|grant| grant.claim.owner), Some(reader.owner));
    assert!(next.map_or(FencingToken::default(), |grant| grant.token) > grant.token);
}
