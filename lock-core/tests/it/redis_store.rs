//! The Redis store against a real server, without the machinery.

mod bad_days;
mod coalescing;
mod connections;
mod failover;
mod fleet;
mod foreign;

use std::time::Duration;

use lock_core::testing::{RedisServer, Reply, limit};
use lock_core::{
    AcquireRequest, Attempt, Claim, FencingToken, Freed, Holder, HolderInfo, LockBackend, LockError, LockErrorKind,
    LockKey, OwnerId, RedisStore, Release, Renewal,
};

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
async fn acquiring_again_gives_the_same_token_and_raises_the_lease() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim = claim("lock:a");
    let first = granted(&store, &claim).await;
    server.command(&["PEXPIRE", "lock:a", "20000"]);
    assert_eq!(granted(&store, &claim).await, first);
    assert!((20_001..=60_000).contains(&pttl(&server, "lock:a")));
    server.command(&["PEXPIRE", "lock:a", "600000"]);
    assert_eq!(granted(&store, &claim).await, first);
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
    assert!(newest.get() < 1 << 53);
}

#[tokio::test]
#[limit]
async fn a_token_exceeds_the_floor_and_the_fence() {
    let server = RedisServer::start();
    let store = store(&server);
    let claim_a = claim("lock:a");
    let ahead = granted(&store, &claim_a).await.get() + 3_600_000_000;
    release(&store, &claim_a).await;
    let claim_b = claim("lock:a");
    let mut second = request(&claim_b);
    second.floor = FencingToken::new(ahead);
    assert_eq!(token(store.try_acquire(&second).await.unwrap()).get(), ahead + 1);
    release(&store, &claim_b).await;
    assert_eq!(granted(&store, &claim("lock:a")).await.get(), ahead + 2);
}

#[tokio::test]
#[limit]
async fn a_fence_that_is_no_token_counts_for_none() {
    let server = RedisServer::start();
    let store = store(&server);
    for text in ["x", "", "9007199254740992", "1e400", "-1"] {
        server.command(&["SET", "{lock:a}@fence", text]);
        let claim_a = claim("lock:a");
        let token = granted(&store, &claim_a).await;
        assert_eq!(server.command(&["GET", "{lock:a}@fence"]), Reply::Text(token.to_string()), "{text}");
        assert!(pttl(&server, "{lock:a}@fence") > 0);
        release(&store, &claim_a).await;
    }
}

#[tokio::test]
#[limit]
async fn a_block_is_reserved_and_what_is_left_of_it_given_back() {
    let server = RedisServer::start();
    let store = store(&server);
    let fence = || server.command(&["GET", "{lock:a}@fence"]).text().parse::<u64>().unwrap();
    let claim_a = claim("lock:a");
    let mut wide = request(&claim_a);
    wide.block = 65;
    let first = token(store.try_acquire(&wide).await.unwrap()).get();
    assert_eq!(fence(), first + 64);
    let mut used_three = Release::new(claim_a.clone());
    used_three.last_token = Some(FencingToken::new(first + 2));
    assert_eq!(store.release(&used_three).await.unwrap(), Freed::Released);
    assert_eq!(fence(), first + 2);
    assert!(server.command(&["PTTL", "{lock:a}@fence"]).int() > 23 * 3_600_000);

    // Without a last token the whole block counts as used; a repeat gives nothing back.
    let claim_b = claim("lock:a");
    let mut wide = request(&claim_b);
    wide.block = 10;
    wide.floor = FencingToken::new(first + 1_000_000_000);
    let second = token(store.try_acquire(&wide).await.unwrap()).get();
    release(&store, &claim_b).await;
    assert_eq!(fence(), second + 9);
    assert_eq!(store.release(&used_three).await.unwrap(), Freed::NotHeld);
    assert_eq!(fence(), second + 9);
}

#[tokio::test]
#[limit]
async fn a_lock_goes_on_within_a_process_with_tokens_that_only_grow() {
    let server = RedisServer::start();
    let store = store(&server);
    let fence = || server.command(&["GET", "{lock:a}@fence"]).text().parse::<u64>().unwrap();
    let mut before = claim("lock:a");
    granted(&store, &before).await;
    let mut newest = fence();
    // Behind the clock, and an hour ahead of it, where what is left of a block is given back.
    for (ahead, used) in [(0, None), (0, Some(3)), (3_600_000_000, None), (0, Some(3)), (0, Some(64)), (0, None)] {
        let next = claim("lock:a");
        let mut wide = request(&next);
        (wide.block, wide.floor) = (65, FencingToken::new(newest + ahead));
        let mut ended = Release::new(before);
        ended.last_token = Some(FencingToken::new(newest));
        let first = token(store.requeue(&ended, &wide).await.unwrap()).get();
        assert!(first > newest + ahead, "{first} after {newest} and {ahead}");
        assert_eq!(fence(), first + 64);
        assert!(server.command(&["GET", "lock:a"]).text().starts_with(&next.owner.to_hex()));
        assert_eq!(token(store.requeue(&ended, &wide).await.unwrap()).get(), first, "the answer was lost");
        newest = used.map_or(first + 64, |used| first + used);
        before = next;
    }
    // A fence that somebody raised is not forgotten.
    let raised = newest + 7_200_000_000;
    server.command(&["SET", "{lock:a}@fence", &raised.to_string()]);
    let next = claim("lock:a");
    assert!(token(store.requeue(&Release::new(before), &request(&next)).await.unwrap()).get() > raised);
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
    // It frees itself by the server's time, also after the lease would have ended.
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
    let expected = format!("{}|{token}|60000|host-1|42|app::charge|", claim_a.owner.to_hex());
    assert_eq!(text, Reply::Text(expected));
    for holder in [store.holder(&claim_a.key).await.unwrap().unwrap(), held(&store, &claim("lock:a")).await] {
        assert_eq!(holder.info, Some(HolderInfo::new("host-1", 42, "app::charge")));
        assert_eq!((holder.owner, holder.token), (Some(claim_a.owner), Some(token)));
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
    for (key, wrong) in [("lock:a", "lock:a"), ("lock:b", "{lock:b}@fence")] {
        server.command(&["HSET", wrong, "field", "value"]);
        let error = acquire(&store, &claim(key)).await.unwrap_err();
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
    let bad = claim("{lock:a}@fence");
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
    assert_eq!(keys.len(), 6);
    for key in keys {
        assert!(pttl(&server, key.text()) > 0, "{key:?}");
    }
}

fn claim_of(key: &str, owner: OwnerId) -> Claim {
    let mut claim = claim(key);
    claim.owner = owner;
    claim
}

#[tokio::test]
#[limit]
async fn a_floor_that_cannot_be_exceeded_is_refused() {
    let server = RedisServer::start();
    let store = store(&server);
    for floor in [9_000_000_000_000_001, u64::MAX] {
        let mut high = request(&claim("lock:a"));
        high.floor = FencingToken::new(floor);
        let error = store.try_acquire(&high).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    }
    let mut high = request(&claim("lock:a"));
    (high.floor, high.block) = (FencingToken::new(9_000_000_000_000_000), u32::MAX);
    assert_eq!(token(store.try_acquire(&high).await.unwrap()).get(), 9_000_000_000_000_001);
    assert_eq!(server.command(&["GET", "{lock:a}@fence"]), Reply::Text("9000004294967295".to_owned()));
}
