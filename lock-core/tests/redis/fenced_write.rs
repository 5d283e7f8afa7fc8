//! Writes to Redis that a newer fencing token refuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{FencedWrite, FencingGate, FencingToken, LockManager};
use lock_testing::{RedisServer, Reply, limit};

use crate::support::{SECOND, locks, pttl, take};

/// Above 2^53 two neighbouring integers are the same number to Lua and JSON.
const LARGE: u64 = (1 << 60) + 1;

fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

fn set(token: FencingToken, value: &str) -> FencedWrite {
    FencedWrite::new("stock:7", token, "SET").arg(value)
}

/// Sends a write as any client would.
fn send(server: &RedisServer, write: &FencedWrite) -> Reply {
    let args: Vec<String> = write.eval_args().into_iter().map(|arg| String::from_utf8(arg).unwrap()).collect();
    let words: Vec<&str> = std::iter::once("EVAL").chain(args.iter().map(String::as_str)).collect();
    server.command(&words)
}

fn refused(reply: &Reply) -> Option<(u64, u64)> {
    let Reply::Error(text) = reply else { return None };
    FencedWrite::refusal(text).map(|stale| (stale.token.get(), stale.newest.get()))
}

#[test]
#[limit]
fn an_older_token_writes_nothing() {
    let server = RedisServer::start();
    let value = || server.command(&["GET", "stock:7"]).text().to_owned();
    for (number, newer) in [(9, 10), (99, LARGE - 1), (LARGE - 1, LARGE)] {
        assert_eq!(refused(&send(&server, &set(token(newer), "new"))), None);
        assert_eq!(refused(&send(&server, &set(token(number), "old"))), Some((number, newer)));
        assert_eq!(value(), "new");
        assert_eq!(refused(&send(&server, &set(token(newer), "again"))), None, "a holder writes twice");
        assert_eq!(value(), "again");
    }
    // Any command that writes to one key works, and its answer is returned.
    let count = |value| send(&server, &FencedWrite::new("count", token(value), "INCRBY").arg("5"));
    assert_eq!((count(3), count(4)), (Reply::Int(5), Reply::Int(10)));
    assert_eq!(refused(&count(3)), Some((3, 4)));
    assert_eq!(send(&server, &FencedWrite::new("count", token(5), "DEL")), Reply::Int(1));
    assert_eq!(refused(&count(4)), Some((4, 5)), "the token outlives what it guards");
}

#[test]
#[limit]
fn what_keeps_the_token_is_in_the_slot_of_the_key() {
    let server = RedisServer::builder().with("cluster-enabled", "yes").start();
    let slot = |key: &str| server.command(&["CLUSTER", "KEYSLOT", key]).int();
    for key in ["stock:7", "{shop}:stock", "{shop}", "open{", "x}y{z}"] {
        let beside = String::from_utf8(FencedWrite::new(key, token(1), "DEL").token_key()).unwrap();
        assert_eq!(slot(key), slot(&beside), "{key}, {beside}");
        assert_ne!(key, beside);
    }
}

#[test]
#[limit]
fn each_key_has_a_token_of_its_own() {
    let server = RedisServer::start();
    let keys = ["a", "{a}", "{{a}}", "a:", "{a}:", "a}", "{a", "x{a}", "{}a", "{}", "{a}@", "{a}:@"];
    for (number, key) in (1..).zip(keys) {
        let write = |number, value| FencedWrite::new(key, token(number), "SET").arg(value);
        // The last key had the greatest token of all before it.
        assert_eq!(refused(&send(&server, &write(100 - number, "new"))), None, "{key}");
        assert_eq!(refused(&send(&server, &write(99 - number, "old"))), Some((99 - number, 100 - number)), "{key}");
    }
}

#[test]
#[limit]
fn the_token_is_forgotten_on_request_and_nonsense_is_an_error() {
    let server = RedisServer::start();
    let write = set(token(7), "x").remember_for(600 * SECOND);
    let beside = String::from_utf8(write.token_key()).unwrap();
    send(&server, &write);
    assert!((1..=600_000).contains(&pttl(&server, &beside)));
    send(&server, &set(token(8), "x"));
    assert_eq!(pttl(&server, &beside), -1, "for ever, unless told otherwise");

    server.command(&["SET", &beside, "-"]);
    let reply = send(&server, &set(token(9), "y"));
    let Reply::Error(text) = &reply else { panic!("{reply:?}") };
    assert!(text.contains("holds no fencing token") && FencedWrite::refusal(text).is_none(), "{text}");
    assert_eq!(server.command(&["GET", "stock:7"]).text(), "x");
}

#[tokio::test]
#[limit]
async fn a_holder_whose_lock_has_passed_on_is_refused_through_the_usual_client() {
    let server = RedisServer::start();
    let locks = locks(&server);
    let client = redis::Client::open(server.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let mut write = async |token, value| {
        redis::cmd("EVAL").arg(set(token, value).eval_args()).query_async::<String>(&mut redis).await
    };

    let first = take(&locks, "stock").await;
    assert_eq!(write(first.token(), "11").await.unwrap(), "OK");
    server.command(&["DEL", "stock"]);
    let second = locks.lock("stock").without_handoff().with_wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(write(second.token(), "10").await.unwrap(), "OK");
    let error = write(first.token(), "11").await.unwrap_err();
    let stale = FencedWrite::refusal(&error.to_string()).unwrap();
    assert_eq!((stale.token, stale.newest), (first.token(), second.token()), "{error}");
    assert_eq!(server.command(&["GET", "stock:7"]).text(), "10");
}

/// The machine's uptime would be less than any token of Redis, and so would every token after a reboot.
#[tokio::test]
#[limit]
async fn tokens_of_memory_exceed_those_that_redis_gave_before() {
    let server = RedisServer::start();
    let (redis, memory) = (LockManager::connect(&server.url()).await.unwrap(), LockManager::in_memory());
    let gate = FencingGate::new();
    let token = redis.lock("moved").await.unwrap().token();
    gate.admit(token).unwrap();
    // Within a millisecond the sequence decides, and each store counts its own.
    tokio::time::sleep(Duration::from_millis(2)).await;
    gate.admit(memory.lock("moved").await.unwrap().token()).unwrap();
    let of_day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let drawn = u128::from(memory.lock("moved").await.unwrap().token().get() >> 20);
    assert!(drawn.abs_diff(of_day) < 60_000, "{drawn} ms, {of_day} ms");
}
