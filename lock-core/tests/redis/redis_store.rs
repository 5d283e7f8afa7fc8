//! The Redis store against a real server, without the machinery.

mod bad_days;
mod clock;
mod coalescing;
mod connections;
mod failover;
mod fleet;
mod foreign;
mod native;
mod neighbours;
mod pass;
mod phases;
mod probes;
mod refused;
mod renewal;
mod silence;
mod words;
mod wrong_type;

use std::time::Duration;

use lock_core::{
    FencingToken, Holder, HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, OwnerId, RedisStore,
};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Renewal};
use lock_testing::{RedisServer, Reply, limit};

/// Longer than any stall of the machine.
const TTL: Duration = Duration::from_secs(60);

fn store(server: &RedisServer) -> RedisStore {
    RedisStore::new(&server.url()).unwrap()
}

fn claim(key: &str) -> Claim {
    Claim::new(LockKey::new(key).unwrap(), TTL)
}

fn request(claim: &Claim) -> AcquireRequest {
    AcquireRequest::new(claim.clone(), HolderInfo::new("host-1", 42, "app::charge"))
}

async fn acquire(store: &RedisStore, claim: &Claim) -> Result<Attempt, LockError> {
    store.try_acquire(&request(claim)).await
}

/// Acquires a lock that must be free.
async fn granted(store: &RedisStore, claim: &Claim) -> FencingToken {
    token(acquire(store, claim).await.unwrap())
}

fn token(attempt: Attempt) -> FencingToken {
    match attempt {
        Attempt::Granted { token, .. } => token,
        other => panic!("not granted: {other:?}"),
    }
}

/// Tries a lock that must be taken.
async fn held(store: &RedisStore, claim: &Claim) -> Holder {
    match acquire(store, claim).await.unwrap() {
        Attempt::Held { holder } => holder,
        other => panic!("not held: {other:?}"),
    }
}

async fn release(store: &RedisStore, claim: &Claim) -> Freed {
    store.release(&Release::new(claim.clone())).await.unwrap()
}

fn pttl(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

#[tokio::test]
#[limit]
async fn acquiring_again_draws_anew_and_raises_the_lease() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim = claim("lock:a");
    let first = granted(&store, &claim).await;
    server.command(&["PEXPIRE", "lock:a", "20000"]);
    let second = granted(&store, &claim).await;
    assert!(second > first);
    assert!((20_001..=60_000).contains(&pttl(&server, "lock:a")));
    server.command(&["PEXPIRE", "lock:a", "600000"]);
    assert!(granted(&store, &claim).await > second);
    assert!(pttl(&server, "lock:a") > 60_000, "never shortened");
}

#[tokio::test]
#[limit]
async fn tokens_grow_over_release_expiry_and_flush() {
    let server = RedisServer::start();
    let store = store(&server);
    let mut newest = FencingToken::default();
    for round in 0..30 {
        let claim = claim("lock:a");
        let token = granted(&store, &claim).await;
        assert!(token > newest, "{token} after {newest}");
        newest = token;
        match round % 3 {
            0 => assert_eq!(release(&store, &claim).await, Freed::Released),
            1 => drop(server.command(&["FLUSHALL"])),
            _ => drop(server.command(&["DEL", "lock:a"])),
        }
    }
    assert!(i64::try_from(newest.get()).is_ok());
}

#[tokio::test]
#[limit]
async fn release_is_idempotent_and_frees_only_its_own() {
    let server = RedisServer::start();
    let store = store(&server);
    let (mine, other) = (claim("lock:a"), claim("lock:a"));
    granted(&store, &mine).await;
    assert_eq!(release(&store, &other).await, Freed::NotHeld);
    assert_eq!(store.withdraw(&other).await.unwrap(), Freed::NotHeld);
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(1));
    assert_eq!(release(&store, &mine).await, Freed::Released);
    assert_eq!(release(&store, &mine).await, Freed::NotHeld);
    granted(&store, &other).await;
    assert_eq!(release(&store, &mine).await, Freed::NotHeld, "a late repeat hits nobody else");
    assert_eq!(store.withdraw(&other).await.unwrap(), Freed::Released);
    assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(0));
}

#[tokio::test]
#[limit]
async fn a_min_hold_keeps_the_key_but_not_the_claim() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    let first = granted(&store, &claim_a).await;
    let mut early = Release::new(claim_a.clone());
    early.keep_for = Duration::from_secs(4);
    assert_eq!(store.release(&early).await.unwrap(), Freed::Released);
    assert_eq!(store.release(&early).await.unwrap(), Freed::NotHeld);
    assert!((1..=4_000).contains(&pttl(&server, "lock:a")));
    assert_eq!(store.renew(std::slice::from_ref(&claim_a)).await, [Ok(Renewal::Lost)]);
    let holder = held(&store, &claim_a).await;
    assert_eq!((holder.site(), holder.owner), ("app::charge", None));
    // The key frees itself by the server's time, even if that is after the lease would have ended.
    early.keep_for = TTL * 10;
    let claim_b = claim("lock:b");
    granted(&store, &claim_b).await;
    early.claim = claim_b;
    store.release(&early).await.unwrap();
    assert!((500_000..=600_000).contains(&pttl(&server, "lock:b")));
    while server.command(&["EXISTS", "lock:a"]) == Reply::Int(1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(granted(&store, &claim("lock:a")).await > first);
}

#[tokio::test]
#[limit]
async fn renewing_never_creates_never_shortens_and_spares_the_neighbours() {
    let server = RedisServer::start();
    let store = store(&server);
    let [gone, long, short, stolen, list, eternal] = ["gone", "long", "short", "stolen", "list", "eternal"].map(claim);
    for claim in [&gone, &long, &short, &stolen, &eternal] {
        granted(&store, claim).await;
    }
    server.command(&["DEL", "gone"]);
    server.command(&["PEXPIRE", "long", "600000"]);
    server.command(&["PEXPIRE", "short", "20000"]);
    server.command(&["SET", "stolen", "somebody else", "PX", "20000"]);
    server.command(&["RPUSH", "list", "x"]);
    server.command(&["PERSIST", "eternal"]);
    let answers = store.renew(&[gone, list, long, stolen, short, eternal]).await;
    let (renewed, lost) = (Ok(Renewal::Renewed), Ok(Renewal::Lost));
    assert_eq!(answers, [lost.clone(), lost.clone(), renewed.clone(), lost, renewed.clone(), renewed]);
    assert_eq!(server.command(&["EXISTS", "gone"]), Reply::Int(0));
    assert!(pttl(&server, "long") > 60_000);
    assert!((20_001..=60_000).contains(&pttl(&server, "short")));
    assert!(pttl(&server, "stolen") <= 20_000);
    assert!((1..=60_000).contains(&pttl(&server, "eternal")), "a lock must not outlive its holder");
}

#[tokio::test]
#[limit]
async fn large_batches_are_split_and_answered_in_order() {
    let server = RedisServer::start();
    let store = store(&server);
    let claims: Vec<Claim> = (0..250).map(|n| claim(&format!("lock:{n}"))).collect();
    for claim in claims.iter().step_by(2) {
        granted(&store, claim).await;
    }
    let answers = store.renew(&claims).await;
    assert_eq!(answers.len(), 250);
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Ok(if n % 2 == 0 { Renewal::Renewed } else { Renewal::Lost }), "{n}");
    }
    assert_eq!(store.renew(&[]).await, []);
}

#[tokio::test]
#[limit]
async fn the_holder_is_told_with_everything_known() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    assert!(store.holder(&claim_a.key).await.unwrap().is_none());
    let token = granted(&store, &claim_a).await;
    let text = server.command(&["GET", "lock:a"]);
    let parts: Vec<&str> = text.text().split('|').collect();
    assert_eq!((parts[0], &parts[2..]), (&*claim_a.owner.to_hex(), &["60000", "host-1", "42", "app::charge", ""][..]));
    // It is the millisecond of its token, or shortly before: the client estimates the time, and is never
    // ahead.
    let since: u64 = parts[1].parse().unwrap();
    assert!((since..since + 60_000).contains(&(token.get() >> 20)), "{since} {token}");
    for holder in [store.holder(&claim_a.key).await.unwrap().unwrap(), held(&store, &claim("lock:a")).await] {
        assert_eq!(holder.info, Some(HolderInfo::new("host-1", 42, "app::charge")));
        assert_eq!((holder.owner, holder.token), (Some(claim_a.owner), None), "only the holder knows its token");
        assert_eq!(holder.since, Some(std::time::UNIX_EPOCH + Duration::from_millis(since)));
        assert!(holder.ttl_left.unwrap() > Duration::from_secs(20));
    }
    server.command(&["PERSIST", "lock:a"]);
    assert_eq!(held(&store, &claim("lock:a")).await.ttl_left, None);
}

#[tokio::test]
#[limit]
async fn classic_clients_exclude_us_and_we_them() {
    let server = RedisServer::start();
    let store = store(&server);
    let classic = || server.command(&["SET", "lock:a", "classic-token", "NX", "PX", "60000"]);
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
    let claim_a = claim("lock:a");
    let holder = held(&store, &claim_a).await;
    assert_eq!((holder.site(), holder.owner, holder.token), ("foreign", None, None));
    assert!(holder.ttl_left.unwrap() <= Duration::from_secs(60));
    assert_eq!(release(&store, &claim_a).await, Freed::NotHeld);
    assert_eq!(store.renew(std::slice::from_ref(&claim_a)).await, [Ok(Renewal::Lost)]);
    let compare_and_delete =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    let classic_release = || server.command(&["EVAL", compare_and_delete, "1", "lock:a", "classic-token"]);
    assert_eq!(classic_release(), Reply::Int(1));
    granted(&store, &claim_a).await;
    assert_eq!(classic(), Reply::Nil);
    assert_eq!(classic_release(), Reply::Int(0));
    assert_eq!(release(&store, &claim_a).await, Freed::Released);
    assert_eq!(classic(), Reply::Text("OK".to_owned()));
}

#[tokio::test]
#[limit]
async fn a_value_that_only_begins_like_ours_is_not_ours() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    server.command(&["SET", "lock:a", &format!("{}x", claim_a.owner.to_hex())]);
    assert_eq!(held(&store, &claim_a).await.site(), "foreign");
    assert_eq!(release(&store, &claim_a).await, Freed::NotHeld);
}

#[tokio::test]
#[limit]
async fn keys_of_another_type_are_a_mistake_not_a_wait() {
    let server = RedisServer::start();
    let store = store(&server);
    for (key, wrong) in [("lock:a", "lock:a"), ("lock:b", "{lock:b}@queue")] {
        server.command(&["HSET", wrong, "field", "value"]);
        // A broken queue only affects waiters.
        let mut asked = request(&claim(key));
        asked.ticket = Some(lock_store::Ticket::new("somebody".into(), 1, TTL));
        if key != wrong {
            granted(&store, &claim(key)).await;
        }
        let error = store.try_acquire(&asked).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
        assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        assert_eq!(error.key().map(LockKey::as_str), Some(key));
        assert_eq!(server.command(&["TYPE", wrong]), Reply::Text("hash".to_owned()));
        assert_eq!(release(&store, &claim(key)).await, Freed::NotHeld);
    }
    let error = store.holder(&LockKey::new("lock:a").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
}

#[tokio::test]
#[limit]
async fn names_of_companions_are_refused() {
    let server = RedisServer::start();
    let store = store(&server);
    let bad = claim("{lock:a}@queue");
    let errors = [
        acquire(&store, &bad).await.unwrap_err(),
        store.withdraw(&bad).await.unwrap_err(),
        store.holder(&bad.key).await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == LockErrorKind::InvalidKey), "{errors:?}");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

#[tokio::test]
#[limit]
async fn nothing_is_left_without_an_expiry() {
    let server = RedisServer::start();
    let store = store(&server);
    for key in ["lock:a", "lock:{b}", "c"] {
        let claim = claim(key);
        granted(&store, &claim).await;
        release(&store, &claim).await;
        granted(&store, &claim_of(key, OwnerId::random())).await;
    }
    let Reply::List(keys) = server.command(&["KEYS", "*"]) else { panic!("no list") };
    assert_eq!(keys.len(), 4);
    for key in keys.iter().map(Reply::text).filter(|key| *key != "distributed-lock:clock") {
        assert!(pttl(&server, key) > 0, "{key:?}");
    }
}

fn claim_of(key: &str, owner: OwnerId) -> Claim {
    let mut claim = claim(key);
    claim.owner = owner;
    claim
}
