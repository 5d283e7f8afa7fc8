//! Real servers that refuse writes, or commands, while locks are shared, waited for and passed on.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{FencingToken, LockBackend, LockError, LockErrorKind, LockKey, Mode, RedisStore};
use lock_store::{Attempt, Claim, QuorumMember as _, Release, Renewal, SharedClaims, Ticket};
use lock_testing::{RedisServer, Reply, limit};

use crate::redis_store::{request, store};
use crate::support::{MS, SECOND, eventually, pttl};

fn sharing(mode: Mode, ttl: Duration) -> Claim {
    Claim::new(LockKey::new("k").unwrap(), ttl).with_mode(mode)
}

async fn take(store: &RedisStore, claim: &Claim) -> Result<Attempt, LockError> {
    let mut request = request(claim);
    request.repeated = true;
    request.execute_within = 30 * SECOND;
    request.ticket = Some(Ticket::new("nobody listens".into(), 1, claim.ttl));
    store.try_acquire(&request).await
}

/// Every key but the clock has an expiry.
fn assert_all_expire(server: &RedisServer, told: &str) {
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    for key in keys.iter().map(Reply::text).filter(|key| !key.starts_with("distributed-lock:clock")) {
        assert_ne!(pttl(server, key), -1, "{told}: {key} has no expiry");
    }
}

/// The lease of a reader ends while the server refuses to take it out.
#[tokio::test]
#[limit]
async fn a_lease_that_ends_while_writes_are_refused_holds_nobody_up_since_redis_7() {
    for refused_by in ["too few replicas", "a failed save"] {
        let server = RedisServer::start();
        let (store, probe) = (store(&server), RedisStore::new(&server.url()).unwrap());
        let (short, long) = (sharing(Mode::READ, 200 * MS), sharing(Mode::READ, 60 * SECOND));
        for claim in [&short, &long] {
            assert!(matches!(take(&store, claim).await, Ok(Attempt::Shared { .. })));
        }
        if refused_by == "too few replicas" {
            server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        } else {
            server.command(&["CONFIG", "SET", "save", "3600 1000000"]);
            // Nowhere to write to.
            std::fs::remove_dir_all(server.directory()).unwrap();
            server.command(&["BGSAVE"]);
            let failed = || server.command(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err");
            eventually("the save fails", failed).await;
        }
        let over = || server.command(&["EVAL", OVER, "1", "{k}@queue"]) == Reply::Int(1);
        eventually("the lease of one is over", over).await;
        let next = sharing(Mode::READ, 60 * SECOND);
        for attempt in [take(&store, &next).await, take(&store, &sharing(Mode::Exclusive, SECOND)).await] {
            let error = attempt.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Unavailable, "{refused_by}: {error}");
        }
        assert!(store.renew(std::slice::from_ref(&long)).await[0].is_err(), "{refused_by}");
        assert!(store.release(&Release::new(long.clone())).await.is_err(), "{refused_by}");
        probe.ping().await.unwrap();
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
        assert_eq!(store.renew(std::slice::from_ref(&long)).await, [Ok(Renewal::Renewed)], "{refused_by}");
        store.release(&Release::new(long)).await.unwrap();
        assert!(matches!(take(&store, &next).await, Ok(Attempt::Shared { .. })), "{refused_by}");
    }
}

/// Whether a holder's lease is over.
const OVER: &str = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
                    return redis.call('ZCOUNT', KEYS[1], string.format('%d', -now + 1), '(0')";

/// A user that may do all but one thing.
#[tokio::test]
#[limit]
async fn a_command_that_a_user_lacks_leaves_nothing_half_done() {
    let server = RedisServer::start();
    for denied in
        ["zrem", "pexpire", "hset", "zadd", "set", "del", "hdel", "xadd", "pttl", "zscore", "zrevrange", "hget"]
    {
        server.command(&["FLUSHALL"]);
        server.command(&["ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all"]);
        let store = Arc::new(RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap());
        let permit = Mode::permits(1, 2).unwrap();
        let (short, long) = (sharing(permit, 150 * MS), sharing(permit, 60 * SECOND));
        for claim in [&short, &long] {
            assert!(matches!(take(&store, claim).await, Ok(Attempt::Shared { .. })), "{denied}");
        }
        let over = || server.command(&["EVAL", OVER, "1", "{k}@queue"]) == Reply::Int(1);
        eventually("the lease of one is over", over).await;
        server.command(&["ACL", "SETUSER", "app", &format!("-{denied}")]);
        let reader = sharing(permit, 60 * SECOND);
        let writer = sharing(Mode::Exclusive, 60 * SECOND);
        let granted = [take(&store, &reader).await.is_ok_and(|attempt| matches!(attempt, Attempt::Shared { .. }))];
        let _ = take(&store, &writer).await;
        if let Ok(Renewal::Renewed | Renewal::Wanted) = store.renew(std::slice::from_ref(&long)).await[0] {
            assert!(pttl(&server, "k") > 50_000, "-{denied}: renewed, and not raised");
        }
        assert_all_expire(&server, denied);
        if !granted[0] {
            let score = server.command(&["ZSCORE", "{k}@queue", &reader.owner.to_hex()]);
            assert!(
                !matches!(&score, Reply::Text(score) if score.starts_with('-')),
                "-{denied}: it holds, and was refused"
            );
        }
        let _ = store.release(&Release::new(long)).await;
        let _ = store.release(&Release::new(reader)).await;
        let _ = store.withdraw(&writer).await;
        // A lock that is free, and one that is downgraded.
        server.command(&["DEL", "k", "{k}@queue", "{k}@waiters"]);
        let alone = sharing(Mode::Exclusive, 60 * SECOND);
        if let Ok(Attempt::Granted { token, .. }) = take(&store, &alone).await {
            let _ = take(&store, &sharing(Mode::READ, SECOND)).await;
            let shared = alone.clone().with_mode(permit);
            let downgraded = store.downgrade(&shared, token).await;
            let is_shared = server.command(&["GETRANGE", "k", "0", "5"]) == Reply::Text("shared".to_owned());
            assert_eq!(downgraded.is_ok(), is_shared, "-{denied}: {downgraded:?}");
        }
        assert_all_expire(&server, denied);
        let _ = store.release(&Release::new(alone)).await;
    }
}

/// Another program wrote a score beyond every time.
#[tokio::test]
#[limit]
async fn a_renewal_that_is_answered_ok_has_raised_the_lease() {
    let server = RedisServer::start();
    let store = store(&server);
    for score in ["-inf", "-99999999999999999999"] {
        let (mine, other) = (sharing(Mode::READ, 20 * SECOND), sharing(Mode::READ, 20 * SECOND));
        for claim in [&mine, &other] {
            assert!(matches!(take(&store, claim).await, Ok(Attempt::Shared { .. })));
        }
        server.command(&["ZADD", "{k}@queue", score, &mine.owner.to_hex()]);
        let mut longer = mine.clone();
        longer.ttl = 60 * SECOND;
        assert_eq!(store.renew(std::slice::from_ref(&longer)).await, [Ok(Renewal::Renewed)]);
        for key in ["k", "{k}@queue", "{k}@waiters"] {
            assert!(pttl(&server, key) > 50_000, "{key} with a score of {score}: {}", pttl(&server, key));
        }
        let writer = take(&store, &sharing(Mode::Exclusive, SECOND)).await;
        assert!(matches!(writer, Ok(Attempt::Queued { .. })), "{writer:?}");
        server.command(&["FLUSHALL"]);
    }
}

/// K is written without the renewal having arrived: a later one with a shorter lease raises it.
#[tokio::test]
#[limit]
async fn a_lock_that_ends_before_a_lease_is_raised_by_its_next_renewal() {
    let server = RedisServer::start();
    let store = store(&server);
    let mine = sharing(Mode::READ, 60 * SECOND);
    let token = match take(&store, &mine).await {
        Ok(Attempt::Shared { token, .. }) => token,
        other => panic!("{other:?}"),
    };
    server.command(&["PEXPIRE", "k", "5000"]);
    let mut mine = mine.with_token(token);
    mine.ttl = 30 * SECOND;
    assert_eq!(store.renew(std::slice::from_ref(&mine)).await, [Ok(Renewal::Renewed)]);
    assert!(pttl(&server, "k") > 20_000);
    let other = mine.with_token(FencingToken::new(token.get() + FencingToken::PER_GRANT));
    assert_eq!(store.renew(std::slice::from_ref(&other)).await, [Ok(Renewal::Lost)]);
}

/// Without its release, a lock would stay taken for its ttl, although its work is done.
#[tokio::test]
#[limit]
async fn a_lock_that_could_not_be_given_back_is_not_taken() {
    let forbidding: fn(&str) -> RedisServer = |denied| {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "default", &format!("-{denied}")]);
        server
    };
    let lacking: fn(&str) -> RedisServer =
        |name| RedisServer::builder().with("rename-command", &format!("{name} elsewhere-{name}")).start();
    let cases = ["eval", "evalsha", "del", "pexpire", "zrem", "getrange", "@scripting", "@read"]
        .map(|denied| (forbidding(denied), denied, "permissions lists what it needs"))
        .into_iter()
        .chain(["EVAL", "EVALSHA", "DEL"].map(|name| (lacking(name), name, "renamed or disabled")));
    for (server, denied, advice) in cases {
        let store = store(&server);
        let exclusive = sharing(Mode::Exclusive, SECOND);
        let all = [request(&sharing(Mode::Exclusive, SECOND))];
        let refusals = [
            store.try_acquire(&request(&exclusive)).await.map(drop),
            take(&store, &sharing(Mode::Exclusive, SECOND)).await.map(drop),
            take(&store, &sharing(Mode::READ, SECOND)).await.map(drop),
            store.try_acquire_all(&all).await.map(drop),
            store.vote(&request(&exclusive)).await.map(drop),
        ];
        for refused in refusals {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Misconfigured, "-{denied}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("so none is taken") && text.contains(advice) && !text.contains("6.2"),
                "-{denied}: {text}"
            );
            assert!(
                denied.starts_with('@') || text.to_lowercase().contains(&denied.to_lowercase()),
                "-{denied}: {text}"
            );
        }
        server.command(&["ACL", "SETUSER", "default", "+@all"]);
        assert_eq!(server.command(&["EXISTS", "k", "{k}@queue"]), Reply::Int(0), "-{denied}");
        // An operator has permitted it, and the connection stays. A command that is renamed stays so.
        let granted = store.try_acquire(&request(&exclusive)).await;
        assert_eq!(
            matches!(granted, Ok(Attempt::Granted { .. })),
            advice.contains("permissions"),
            "-{denied}: {granted:?}"
        );
    }
    // If the pattern of keys lacks the examination's key, it is unknown what the user may do. If it lacks the queue, that
    // shows only at the release, which then does without the queue.
    for patterns in [&["~k", "~{k}*", "~distributed-lock:clock"][..], &["~k", "~distributed-lock:clock*"]] {
        let server = RedisServer::start();
        server.command(&[&["ACL", "SETUSER", "app", "on", ">pw", "&*", "+@all"], patterns].concat());
        let store = RedisStore::new(&format!("redis://app:pw@127.0.0.1:{}", server.port())).unwrap();
        for keep_for in [Duration::ZERO, 60 * SECOND] {
            let claim = sharing(Mode::Exclusive, 30 * SECOND);
            assert!(matches!(store.try_acquire(&request(&claim)).await, Ok(Attempt::Granted { .. })), "{patterns:?}");
            let mut release = Release::new(claim);
            release.keep_for = keep_for;
            store.release(&release).await.unwrap();
            assert_eq!(pttl(&server, "k") > 30_000, !keep_for.is_zero(), "{patterns:?}");
        }
    }
}
