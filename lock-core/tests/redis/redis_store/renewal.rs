//! Renewals over the connection that listens: natively where that is safe, else by the script.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockBackend, LockErrorKind, RedisStore};
use lock_store::{Claim, Freed, Inbox, Release, Renewal};
use lock_testing::{Direction, EventLog, FaultProxy, RedisServer, Reports, inbox, limit};
use tokio::task::JoinHandle;

use crate::redis_store::{claim, granted, pttl, release, store};
use crate::support::eventually;

/// A store that listens, as with a keeper on this runtime.
struct Listening {
    store: Arc<RedisStore>,
    inbox: Inbox,
    _reports: Reports,
    task: JoinHandle<()>,
}

impl Listening {
    async fn start(store: RedisStore) -> Self {
        let (store, (inbox, reports)) = (Arc::new(store), inbox(EventLog::default()));
        let task = tokio::spawn({
            let (store, inbox) = (Arc::clone(&store), inbox.clone());
            async move { drop(store.drive(inbox).await) }
        });
        eventually("it listens", || inbox.is_open()).await;
        Self { store, inbox, _reports: reports, task }
    }

    async fn renew(&self, claim: &Claim) -> Renewal {
        self.store.renew(std::slice::from_ref(claim)).await.remove(0).unwrap()
    }
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.text().lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// The value that another client writes to a key of this library.
fn steal(server: &RedisServer, key: &str) {
    server.command(&["SET", key, "theirs", "PX", "20000"]);
}

#[tokio::test]
#[limit]
async fn a_lease_is_raised_by_its_owner_alone_and_never_shortened_since_redis_7() {
    let server = RedisServer::start();
    let us = Listening::start(store(&server)).await;
    let claims: Vec<Claim> = (0..120).map(|n| claim(&format!("lock:{n}"))).collect();
    for claim in &claims {
        granted(&us.store, claim).await;
        server.command(&["PEXPIRE", claim.key.as_str(), "9000"]);
    }
    server.command(&["PEXPIRE", "lock:1", "600000"]);
    server.command(&["PERSIST", "lock:2"]);
    server.command(&["DEL", "lock:3"]);
    steal(&server, "lock:4");
    server.command(&["DEL", "lock:5"]);
    server.command(&["SADD", "lock:5", "another type"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    let answers = us.store.renew(&claims).await;
    for (n, answer) in answers.into_iter().enumerate() {
        let lost = (3..=5).contains(&n);
        assert_eq!(answer, Ok(if lost { Renewal::Lost } else { Renewal::Renewed }), "lock:{n}");
        let left = pttl(&server, &format!("lock:{n}"));
        match n {
            1 => assert!(left > 60_000, "shortened to {left}"),
            3 => assert_eq!(left, -2, "created again"),
            4 => assert!(left <= 20_000, "the lease of another client was lengthened to {left}"),
            5 => assert_eq!(left, -1),
            _ => assert!((20_001..=60_000).contains(&left), "lock:{n}: {left}"),
        }
    }
    // One script for each batch of 50, and one more if the server did not know it yet.
    let scripts = calls(&server, "eval") + calls(&server, "evalsha");
    assert!((3..=4).contains(&scripts), "{scripts}");
}

/// The rest of a lease after an early release has no owner, so no process would notice that it lasts too long.
#[tokio::test]
#[limit]
async fn a_renewal_that_arrives_after_its_release_lengthens_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let us = Listening::start(RedisStore::new(&proxy.url()).unwrap()).await;
    let claim_a = claim("lock:a");
    granted(&us.store, &claim_a).await;
    for delay in [Duration::from_millis(300), Duration::from_secs(3)] {
        granted(&us.store, &claim_a).await;
        proxy.delay(Direction::ToServer, delay);
        let renewing = tokio::spawn({
            let (store, claim) = (Arc::clone(&us.store), claim_a.clone());
            async move { store.renew(&[claim]).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.delay(Direction::ToServer, Duration::ZERO);
        let mut early = Release::new(claim_a.clone());
        early.keep_for = Duration::from_secs(20);
        assert_eq!(us.store.release(&early).await.unwrap(), Freed::Released);
        let _ = renewing.await.unwrap();
        tokio::time::sleep(delay).await;
        let left = pttl(&server, "lock:a");
        assert!((1..=20_000).contains(&left), "{left} ms, the renewal being {delay:?} late");
        // A renewal that was about to be sent.
        assert_eq!(us.renew(&claim_a).await, Renewal::Lost);
        assert!(pttl(&server, "lock:a") <= 20_000, "lengthened by a renewal after the release");
        server.command(&["DEL", "lock:a"]);
    }
}

#[tokio::test]
#[limit]
async fn a_key_that_is_forbidden_does_not_fail_its_neighbours_since_redis_7() {
    let server = RedisServer::start();
    let allow = |rules: &str| {
        let words = format!("ACL SETUSER app on >pw resetkeys ~lock:* ~{{lock:* ~distributed-lock:* &* +@all {rules}");
        assert_eq!(server.command(&words.split(' ').collect::<Vec<_>>()).text(), "OK");
    };
    allow("~other:*");
    let connect = || RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap();
    let us = Listening::start(connect()).await;
    let claims: Vec<Claim> = ["lock:a", "other:b", "lock:c", "lock:d"].map(claim).into();
    for claim in &claims {
        granted(&us.store, claim).await;
    }
    allow("");
    let check = |answers: Vec<Result<Renewal, lock_core::LockError>>| {
        for (claim, answer) in claims.iter().zip(answers) {
            if claim.key.as_str() == "other:b" {
                let error = answer.unwrap_err();
                assert!(
                    error.kind() == LockErrorKind::Misconfigured && error.to_string().contains("other:b"),
                    "{error}"
                );
            } else {
                assert_eq!(answer, Ok(Renewal::Renewed), "{}", claim.key);
            }
        }
    };
    check(us.store.renew(&claims).await);
    assert!(us.store.capabilities().push_loss, "it is the key that is forbidden, not tracking");
    // By itself, too.
    us.store.renew(&claims[1..2]).await.remove(0).unwrap_err();
    assert!(us.store.capabilities().push_loss);
    // And without a connection that tracks.
    check(connect().renew(&claims).await);
    us.task.abort();
}

/// Waiters would go on queueing for grants that nobody hears.
#[tokio::test]
#[limit]
async fn an_inbox_closes_with_the_task_that_listens() {
    let server = RedisServer::start();
    let us = Listening::start(store(&server)).await;
    us.task.abort();
    let _ = us.task.await;
    assert!(!us.inbox.is_open());
    assert_eq!(release(&us.store, &claim("lock:a")).await, Freed::NotHeld);
}
