//! The server may contain data that this library did not write. That data makes no second holder, and stops no caller.

use std::sync::Arc;

use lock_core::{HolderInfo, LockBackend as _, LockErrorKind, LockKey, LockManager, Mode, OwnerId, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Inbox, Release, Renewal, SharedClaims, Ticket};
use lock_testing::{RedisServer, Reply, Reports, limit};

use crate::support::{LONG, SECOND, exists, listening, locked_keys, locks, pttl};

/// A store that hears of its grants, and asks for the lock `k`.
struct Asking {
    store: Arc<RedisStore>,
    inbox: Inbox,
    reports: Reports,
}

impl Asking {
    async fn of(server: &RedisServer) -> Self {
        let store = Arc::new(RedisStore::new(&server.url()).unwrap());
        let (inbox, reports) = listening(&store).await;
        Self { store, inbox, reports }
    }

    /// Asks by the script, so that waiters are seen.
    async fn ask(&self, claim: &Claim) -> Attempt {
        let mut request = AcquireRequest::new(claim.clone(), HolderInfo::new("here", 1, "test"));
        request.ticket = Some(Ticket::new(Arc::clone(self.inbox.id()), 1, LONG));
        request.repeated = true;
        self.store.try_acquire(&request).await.unwrap()
    }

    async fn release(&self, claim: &Claim) -> Freed {
        self.store.release(&Release::new(claim.clone())).await.unwrap()
    }

    async fn granted(&mut self) -> OwnerId {
        let grant = tokio::time::timeout(10 * SECOND, self.reports.next_grant()).await.expect("somebody is granted it");
        grant.expect("the store runs").claim.owner
    }
}

fn claim(mode: Mode) -> Claim {
    Claim::new(LockKey::new("k").unwrap(), LONG).with_mode(mode)
}

fn permit() -> Claim {
    claim(Mode::permits(1, 3).unwrap())
}

fn shares(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Shared { .. })
}

fn waits(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Queued { .. })
}

/// Puts a member into the queue that nobody of ours put there, with what is known of it, if anything is.
fn stray(server: &RedisServer, score: &str, owner: &str, entry: &str) {
    server.command(&["ZADD", "{k}@queue", score, owner]);
    if !entry.is_empty() {
        server.command(&["HSET", "{k}@waiters", owner, entry]);
    }
}

fn owner() -> String {
    OwnerId::random().to_hex()
}

/// Server time, ms.
fn now(server: &RedisServer) -> i64 {
    let Reply::List(time) = server.command(&["TIME"]) else { panic!("no time") };
    time[0].text().parse::<i64>().unwrap() * 1000
}

async fn is_free(server: &RedisServer) {
    let locks = locks(server);
    locks.lock("k").without_waiting().await.unwrap().release().await.unwrap();
    locks.read("k").without_waiting().await.unwrap().release().await.unwrap();
    assert_eq!(locked_keys(server), [""; 0]);
}

#[tokio::test]
#[limit]
async fn a_stray_member_of_the_queue_makes_no_second_holder() {
    for (score, entry) in
        [("-1", ""), ("-1", "x|1|1|0|1|s3/3|0-0|1|h|1|s|"), ("-1", "?"), ("-inf", ""), ("-1e300", "?")]
    {
        let server = RedisServer::start();
        let ours = Asking::of(&server).await;
        let held = [permit(), permit(), permit()];
        for claim in &held {
            assert!(shares(&ours.ask(claim).await));
        }
        stray(&server, score, &owner(), entry);
        stray(&server, score, "not an owner", entry);
        let (fourth, writer) = (permit(), claim(Mode::Exclusive));
        for other in [&fourth, &writer] {
            assert!(waits(&ours.ask(other).await), "{score} {entry}: they are at their limit");
            assert_eq!(ours.release(other).await, Freed::NotHeld);
        }
        for claim in &held {
            assert_eq!(ours.store.renew(std::slice::from_ref(claim)).await, [Ok(Renewal::Renewed)], "{score} {entry}");
        }
        assert!((1..=600_000).contains(&pttl(&server, "k")), "{score} {entry}: {}", pttl(&server, "k"));
        for claim in &held {
            assert_eq!(ours.release(claim).await, Freed::Released, "{score} {entry}");
        }
        is_free(&server).await;
    }
}

#[tokio::test]
#[limit]
async fn a_phase_is_over_only_when_none_of_its_holders_is_left() {
    for counted in ["00000000000000000000000000", "00000000000000000000000001", "00000000000000000000000009"] {
        let server = RedisServer::start();
        let ours = Asking::of(&server).await;
        let held = [permit(), permit(), permit()];
        for claim in &held {
            assert!(shares(&ours.ask(claim).await));
        }
        let value = server.command(&["GET", "k"]);
        server.command(&["SET", "k", &format!("shared{counted}{}", &value.text()[32..]), "KEEPTTL"]);
        for (at, claim) in held.iter().enumerate() {
            let writer = self::claim(Mode::Exclusive);
            assert!(waits(&ours.ask(&writer).await), "{counted}: {} hold it", 3 - at);
            ours.release(&writer).await;
            assert_eq!(ours.release(claim).await, Freed::Released, "{counted}");
        }
        is_free(&server).await;
    }
}

#[tokio::test]
#[limit]
async fn what_only_looks_like_a_phase_belongs_to_somebody_else() {
    let server = RedisServer::start();
    let ours = Asking::of(&server).await;
    let count = "0".repeat(25) + "1";
    for value in [
        format!("shared{}|7-0-0|1|h|1|s|", "x".repeat(26)),
        format!("shared{}|7-0-0|1|h|1|s|", "9".repeat(26)),
        format!("shared{count}"),
        format!("shared{count}|"),
        format!("shared{count}|7|1|h|1|s|"),
        format!("shared{count}|7-0-999|1|h|1|s|"),
        format!("shared{count}|7-9999-0|1|h|1|s|"),
        format!("shared{count}|99999999999999-0-0|1|h|1|s|"),
    ] {
        for mode in [Mode::READ, Mode::permits(1, 9).unwrap(), Mode::Exclusive] {
            let (one, held) = (claim(mode), permit());
            stray(&server, &format!("-{}", now(&server) + 60_000), &held.owner.to_hex(), "");
            server.command(&["SET", "k", &value, "PX", "60000"]);
            assert!(waits(&ours.ask(&one).await), "{value} {mode:?}");
            assert_eq!(ours.store.renew(std::slice::from_ref(&held)).await, [Ok(Renewal::Lost)], "{value}");
            assert_eq!(ours.release(&held).await, Freed::NotHeld, "{value}");
            assert!(ours.store.holders(&one.key).await.is_ok(), "{value}");
            assert_eq!(ours.release(&one).await, Freed::NotHeld, "{value}");
            assert_eq!(server.command(&["GET", "k"]).text(), value);
            // With what is remembered of clients of other libraries, if it was taken for one's.
            server.command(&["DEL", "k", "{k}@waiters"]);
        }
        is_free(&server).await;
    }
}

#[tokio::test]
#[limit]
async fn a_phase_that_nobody_shares_and_nothing_ends_is_over() {
    let server = RedisServer::start();
    server.command(&["SET", "k", &format!("shared{}3|7-0-0|1|h|1|s|", "0".repeat(25))]);
    let locks = locks(&server);
    let writer = locks.write("k").without_waiting().await.unwrap();
    assert!(pttl(&server, "k") > 0, "nothing stays for ever");
    writer.release().await.unwrap();
    is_free(&server).await;
}

/// An unreadable entry of a waiting claim.
fn unreadable(server: &RedisServer) -> Vec<String> {
    let now = now(server) * 1000;
    let entry = |confirmed: &str, grant_ttl: &str, floor: &str| {
        format!("distributed-lock:inbox:1|1|{confirmed}|0|{grant_ttl}|{floor}|1000|h|1|s|")
    };
    let (soon, late) = (now.to_string(), (now + 90_000_000_000).to_string());
    let mut entries = vec![String::new(), "?".to_owned(), entry(&late, "3000", "0-0")];
    for floor in ["5", "-", "0-0-0", "s1/1|5", "s0/3|0-0", "s4/3|0-0", "s1|0-0", "s/|0-0", "s1/99999999999|0-0"] {
        entries.push(entry(&soon, "3000", floor));
    }
    for grant_ttl in ["0", "99999999999999999999999", "9000000000000"] {
        entries.push(entry(&soon, grant_ttl, "0-0"));
    }
    entries.push(entry(&soon, "3000", "0-0") + &"x".repeat(100_000));
    entries
}

#[tokio::test]
#[limit]
async fn a_waiter_that_cannot_be_read_keeps_nobody_waiting() {
    let server = RedisServer::start();
    let mut ours = Asking::of(&server).await;
    for entry in unreadable(&server) {
        let shown: String = entry.chars().take(80).collect();
        for first in [claim(Mode::Exclusive), permit()] {
            let next = [claim(Mode::Exclusive), permit()];
            let attempt = ours.ask(&first).await;
            assert!(!waits(&attempt), "{shown}: {attempt:?}");
            for member in [&*owner(), "not an owner", "others"] {
                stray(&server, "1", member, &entry);
            }
            for claim in &next {
                assert!(waits(&ours.ask(claim).await), "{shown}");
            }
            assert_eq!(ours.release(&first).await, Freed::Released, "{shown}");
            assert_eq!(ours.granted().await, next[0].owner, "{shown}");
            assert_eq!(ours.release(&next[0]).await, Freed::Released, "{shown}");
            assert_eq!(ours.granted().await, next[1].owner, "{shown}");
            assert_eq!(ours.release(&next[1]).await, Freed::Released, "{shown}");
        }
        // It is free, and there are no other waiters.
        stray(&server, "1", &owner(), &entry);
        is_free(&server).await;
    }
}

#[tokio::test]
#[limit]
async fn who_comes_later_stands_behind_whatever_lies_in_the_queue() {
    let server = RedisServer::start();
    let mut ours = Asking::of(&server).await;
    let first = claim(Mode::Exclusive);
    assert!(matches!(ours.ask(&first).await, Attempt::Granted { .. }));
    for score in ["+inf", "1e300", "9e15"] {
        stray(&server, score, &owner(), "");
    }
    let mut next: Vec<Claim> = (0..8).map(|_| claim(Mode::Exclusive)).collect();
    for claim in &next {
        assert!(waits(&ours.ask(claim).await));
    }
    next.insert(0, first);
    for pair in next.windows(2) {
        assert_eq!(ours.release(&pair[0]).await, Freed::Released);
        assert_eq!(ours.granted().await, pair[1].owner, "in the order of arrival");
    }
    assert_eq!(ours.release(&next[8]).await, Freed::Released);
    is_free(&server).await;
}

#[tokio::test]
#[limit]
async fn a_moment_for_other_clients_that_cannot_be_read_is_none() {
    let server = RedisServer::start();
    let mut ours = Asking::of(&server).await;
    for known in ["", "?", "1|", "99999999999999999999|99999999999999999999", "9999999999999999|9999999999999999"] {
        let (first, second) = (claim(Mode::Exclusive), claim(Mode::Exclusive));
        server.command(&["HSET", "{k}@waiters", "others", known]);
        assert!(matches!(ours.ask(&first).await, Attempt::Granted { .. }), "{known}");
        assert!(waits(&ours.ask(&second).await), "{known}");
        // The lock has passed on since a moment that cannot be.
        let value = server.command(&["GET", "k"]);
        server.command(&["SET", "k", &format!("{}|99999999999999999999", value.text()), "KEEPTTL"]);
        server.command(&["HSET", "{k}@waiters", "others", known]);
        assert_eq!(ours.release(&first).await, Freed::Released, "{known}");
        assert_eq!(ours.granted().await, second.owner, "{known}");
        assert!(pttl(&server, "{k}@waiters") <= 600_000, "{known}: {}", pttl(&server, "{k}@waiters"));
        assert_eq!(ours.release(&second).await, Freed::Released, "{known}");
        server.command(&["DEL", "{k}@waiters"]);
        is_free(&server).await;
    }
}

#[tokio::test]
#[limit]
async fn a_writer_that_stands_among_the_readers_is_none_of_them() {
    let server = RedisServer::start();
    let ours = Asking::of(&server).await;
    let (reader, writer) = (claim(Mode::READ), claim(Mode::Exclusive));
    assert!(shares(&ours.ask(&reader).await));
    assert!(waits(&ours.ask(&writer).await));
    server.command(&["ZADD", "{k}@queue", &format!("-{}", now(&server) + 60_000), &writer.owner.to_hex()]);
    assert!(waits(&ours.ask(&writer).await));
    assert_eq!(ours.release(&reader).await, Freed::Released);
    assert!(matches!(ours.ask(&writer).await, Attempt::Granted { .. }));
    assert_eq!(ours.release(&writer).await, Freed::Released);
    is_free(&server).await;
}

/// The managers' own way: whatever a test above finds out step by step.
#[tokio::test]
#[limit]
async fn a_reader_keeps_writers_out_whatever_lies_beside_it() {
    let server = RedisServer::start();
    let managers: [LockManager; 2] = [locks(&server), locks(&server)];
    let reader = managers[0].read("k").with_ttl(LONG).await.unwrap();
    for score in ["-1", "-inf", "0", "1", "+inf"] {
        stray(&server, score, &owner(), "");
        let refused = managers[1].write("k").without_waiting().await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Busy, "{score}: {refused}");
        let refused = managers[1].write("k").with_wait(SECOND / 10).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Timeout, "{score}: {refused}");
        assert!(exists(&server, "k"));
        reader.ensure_held().unwrap();
    }
    reader.release().await.unwrap();
    is_free(&server).await;
}
