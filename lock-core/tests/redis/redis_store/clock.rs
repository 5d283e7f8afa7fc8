//! Tokens come from one clock for each server, whatever happens to it.

use lock_core::{FencingToken, LockBackend, LockErrorKind, RedisStore};
use lock_store::{Claim, Freed};
use lock_testing::{RedisServer, Reply, limit};

use crate::redis_store::{acquire, claim, granted, release, request, store, token};

const CLOCK: &str = "distributed-lock:clock";

/// One millisecond of tokens.
const MS: u64 = 1 << 20;

const HOUR: u64 = 3_600_000 * MS;

/// Draws some tokens, and requires that they rise.
async fn rises(store: &RedisStore, newest: &mut FencingToken, what: &str) {
    for round in 0..5 {
        let claim = claim("lock:a");
        let mut asked = request(&claim);
        // Drawn natively and by the script in turn.
        asked.repeated = round % 2 == 1;
        let token = token(store.try_acquire(&asked).await.unwrap());
        assert!(token > *newest, "{token} after {newest}: {what}");
        assert_eq!(token.get() % FencingToken::PER_GRANT, 0);
        assert_eq!(release(store, &claim).await, Freed::Released);
        *newest = token;
    }
    assert!(i64::try_from(newest.get()).is_ok());
}

#[tokio::test]
#[limit]
async fn tokens_rise_whatever_happens_to_the_clock() {
    let mut server = RedisServer::builder().with("appendonly", "yes").with("appendfsync", "always").start();
    let store = store(&server);
    let mut newest = FencingToken::default();
    rises(&store, &mut newest, "at first").await;
    for words in [
        &["FLUSHALL"][..],
        &["DEL", CLOCK],
        &["XTRIM", CLOCK, "MAXLEN", "0"],
        &["SCRIPT", "FLUSH"],
        // The clock is ahead of the time, as after a step back.
        &["XADD", CLOCK, "4102444800000-8190", "k", "v"],
    ] {
        server.command(words);
        rises(&store, &mut newest, words[0]).await;
    }
    server.command(&["DEL", CLOCK]);
    // The process knows tokens of the year 2100, which must not affect it.
    newest = FencingToken::default();
    rises(&store, &mut newest, "after nonsense").await;
    assert!(newest.get() / MS < 4_102_444_800_000);
    server.kill();
    server.restart();
    while acquire(&store, &claim("lock:b")).await.is_err() {}
    rises(&store, &mut newest, "restart").await;
}

#[tokio::test]
#[limit]
async fn a_clock_of_nonsense_breaks_no_key() {
    let server = RedisServer::start();
    let store = store(&server);
    let mut newest = FencingToken::default();
    rises(&store, &mut newest, "at first").await;
    server.command(&["SET", "{lock:a}@fence", "9000000000000000"]);
    for id in ["9000000000000000-0", "18446744073709551615-18446744073709551615", "8796093022207-8191"] {
        server.command(&["XADD", CLOCK, id, "k", "v"]);
        rises(&store, &mut newest, id).await;
        assert!(newest.get() / MS < 4_102_444_800_000, "{newest}");
    }
    // A key that is not a clock at all gives an error that names it, and no lock is taken.
    server.command(&["DEL", CLOCK]);
    server.command(&["SET", CLOCK, "9000000000000000"]);
    for repeated in [false, true] {
        let mut asked = request(&claim("lock:a"));
        asked.repeated = repeated;
        let error = store.try_acquire(&asked).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(CLOCK), "{error}");
        assert_eq!(server.command(&["EXISTS", "lock:a"]), Reply::Int(0));
    }
    server.command(&["DEL", CLOCK]);
    rises(&store, &mut newest, "deleted").await;
}

#[tokio::test]
#[limit]
async fn a_millisecond_that_is_used_up_is_left() {
    let server = RedisServer::start();
    let store = store(&server);
    let mut newest = FencingToken::default();
    // The clock stands still, ahead of the time, at its last number.
    server.command(&["XADD", CLOCK, "4102444800000-8191", "k", "v"]);
    rises(&store, &mut newest, "used up").await;
    assert_eq!(newest.get() / MS, 4_102_444_800_001);
}

#[tokio::test]
#[limit]
async fn a_floor_is_exceeded_up_to_an_hour_ahead() {
    let server = RedisServer::start();
    let store = store(&server);
    let now = granted(&store, &claim("lock:a")).await.get();
    for (key, repeated) in [("lock:b", false), ("lock:c", true)] {
        let mut high = request(&claim(key));
        (high.floor, high.repeated) = (FencingToken::new(now + HOUR / 2), repeated);
        assert!(token(store.try_acquire(&high).await.unwrap()) > high.floor);
    }
    for (key, ahead) in [("lock:d", 2 * HOUR), ("lock:e", u64::MAX - now)] {
        let mut high = request(&claim(key));
        high.floor = FencingToken::new(now + ahead);
        let error = store.try_acquire(&high).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("hour ahead"), "{error}");
        assert_eq!(server.command(&["EXISTS", key]), Reply::Int(0));
    }
    assert!(granted(&store, &claim("lock:f")).await.get() < now + HOUR);
}

#[tokio::test]
#[limit]
async fn names_that_were_locked_leave_the_clock_and_no_other_key() {
    let server = RedisServer::start();
    let store = store(&server);
    let claims = |from: usize| -> Vec<Claim> { (from..from + 500).map(|n| claim(&format!("lock:{n}"))).collect() };
    for from in (0..50_000).step_by(500) {
        let claims = claims(from);
        let tokens = all(claims.iter().map(|claim| granted(&store, claim))).await;
        assert!(tokens.iter().all(|token| token.get() > 0));
        let freed = all(claims.iter().map(|claim| release(&store, claim))).await;
        assert!(freed.iter().all(|freed| *freed == Freed::Released));
    }
    assert_eq!(server.command(&["KEYS", "*"]), Reply::List(vec![Reply::Text(CLOCK.to_owned())]));
    assert!(server.command(&["MEMORY", "USAGE", CLOCK]).int() < 20_000);
}

/// Awaits all of some futures at once.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// The server removes old entries only in blocks, whose size is configured.
#[tokio::test]
#[limit]
async fn the_clock_stays_small_however_the_server_is_configured() {
    let unlimited = RedisServer::builder().with("stream-node-max-entries", "0").with("stream-node-max-bytes", "0");
    let server = unlimited.start();
    let store = store(&server);
    let draw = async |by_script: bool| {
        let claim = claim("lock:a");
        let mut asked = request(&claim);
        asked.repeated = by_script;
        token(store.try_acquire(&asked).await.unwrap());
        assert_eq!(release(&store, &claim).await, Freed::Released);
        server.command(&["XLEN", CLOCK]).int()
    };
    let mut longest = 0;
    for _ in 0..1_200 {
        longest = longest.max(draw(false).await);
    }
    assert!((500..=1_000).contains(&longest), "{longest} entries");
    // The script empties it at a random moment.
    let mut length = draw(true).await;
    loop {
        let before = std::mem::replace(&mut length, draw(true).await);
        if length < before {
            return;
        }
    }
}
