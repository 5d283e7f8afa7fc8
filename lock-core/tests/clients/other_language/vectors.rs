//! `docs/protocol-vectors.json`: calls, their answers, and the keys before and after them, in the words of
//! `docs/protocol.md`. After a wanted change: `LOCK_VECTORS=overwrite`, and read the difference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_core::{FencingToken, HolderInfo, LockBackend, LockError, LockErrorKind, LockKey, Mode, OwnerId, RedisStore};
use lock_store::{AcquireRequest, Attempt, Claim, Freed, Release, Renewal, SharedClaims, Ticket};
use lock_testing::{RedisServer, Reply, limit};
use serde_json::{Value, json};

use super::scenarios;
use super::symbols::{Symbols, a_second_later};

const INBOX: &str = "distributed-lock:inbox:";
const KEYS: [&str; 3] = ["k", "{k}@queue", "{k}@waiters"];

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

fn owner(call: &Value, name: &str) -> OwnerId {
    OwnerId::from_hex(text(call, name)).unwrap()
}

fn time(call: &Value, name: &str) -> Duration {
    Duration::from_millis(call[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {call}")))
}

fn token(text: &str) -> (u64, u64) {
    let (ms, seq) = text.split_once('-').unwrap();
    (ms.parse().unwrap(), seq.parse().unwrap())
}

fn number((ms, seq): (u64, u64)) -> FencingToken {
    FencingToken::new((ms * 8192 + seq) * 128)
}

fn drawn(token: FencingToken) -> String {
    let numbers = token.get() / 128;
    format!("{}-{}", numbers / 8192, numbers % 8192)
}

fn mode(call: &Value) -> Mode {
    match call["mode"].as_str().and_then(|mode| mode.strip_prefix('s')?.split_once('/')) {
        None => Mode::Exclusive,
        Some((units, limit)) => Mode::Shared { units: units.parse().unwrap(), limit: limit.parse().unwrap() },
    }
}

fn claim(call: &Value) -> Claim {
    let ttl = call.get("ttl").map_or(Duration::ZERO, |_| time(call, "ttl"));
    let mut claim = Claim::new(LockKey::new(text(call, "key")).unwrap(), ttl).with_mode(mode(call));
    claim.owner = owner(call, "owner");
    claim
}

fn request(call: &Value) -> AcquireRequest {
    let words: Vec<&str> = text(call, "tail").split('|').collect();
    let mut request = AcquireRequest::new(claim(call), HolderInfo::new(words[1], words[2].parse().unwrap(), words[3]));
    // By script, also the first time.
    request.repeated = true;
    request.floor = number(token(text(call, "floor")));
    request.execute_within = Duration::from_secs(60);
    if let Some(ticket) = call.get("ticket") {
        let inbox = text(ticket, "inbox").strip_prefix(INBOX).unwrap().into();
        request.ticket = Some(Ticket::new(inbox, ticket["stamp"].as_u64().unwrap(), time(ticket, "grant_ttl")));
    }
    request
}

fn attempt(answer: Result<Attempt, LockError>) -> Value {
    match answer {
        Ok(Attempt::Granted { token, .. }) => json!({ "granted": drawn(token) }),
        Ok(Attempt::Shared { token, wanted }) => {
            json!({ "shares": format!("{}-{}", drawn(token), token.get() % 128), "wanted": wanted })
        }
        Ok(Attempt::Queued { .. }) => "queued".into(),
        Ok(_) => "held".into(),
        Err(error) if error.kind() == LockErrorKind::Misconfigured => "refused".into(),
        Err(error) => panic!("{error}"),
    }
}

fn renewal(answer: Result<Renewal, LockError>) -> Value {
    match answer.unwrap() {
        Renewal::Renewed | Renewal::RenewedFor(_) => "renewed".into(),
        Renewal::Wanted => "renewed, and somebody waits".into(),
        Renewal::Lost => "lost".into(),
    }
}

async fn execute(store: &RedisStore, call: &Value) -> Value {
    match text(call, "step") {
        "acquire" => {
            let request = request(call);
            let Some(mode) = call.get("ended_mode") else { return attempt(store.try_acquire(&request).await) };
            let mut ended = request.claim.clone().with_mode(self::mode(&json!({ "mode": mode })));
            ended.owner = owner(call, "ended");
            attempt(store.requeue(&Release::new(ended), &request).await)
        }
        "release" => {
            let mut release = Release::new(claim(call));
            release.keep_for = call.get("keep").map_or(Duration::ZERO, |_| time(call, "keep"));
            let freed = store.release(&release).await.unwrap();
            if freed == Freed::Released { "released" } else { "not held" }.into()
        }
        "renew" => renewal(store.renew(&[claim(call)]).await.remove(0)),
        "downgrade" => {
            let (token, n) = text(call, "token").rsplit_once('-').unwrap();
            let token = FencingToken::new(number(self::token(token)).get() + n.parse::<u64>().unwrap());
            renewal(store.downgrade(&claim(call), token).await)
        }
        other => panic!("no step is called {other}"),
    }
}

/// The server's time in µs, and when a key expires, in ms, or -1.
fn expiry(server: &RedisServer, key: &str) -> (u64, i64) {
    let script = "local t = redis.call('TIME') return {t[1] * 1000000 + t[2], redis.call('PTTL', KEYS[1])}";
    let Reply::List(read) = server.command(&["EVAL", script, "1", key]) else { panic!("no list") };
    let now = u64::try_from(read[0].int()).unwrap();
    let left = read[1].int();
    (now, if left < 0 { left } else { i64::try_from(now / 1000).unwrap() + left })
}

/// The number of the server's history, as a phase has it.
fn history(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "replication"]);
    let id = info.text().lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap();
    u64::from_str_radix(&id[..6], 16).unwrap()
}

/// Maps every text.
fn each_text(value: &Value, map: &mut impl FnMut(&str) -> String) -> Value {
    match value {
        Value::String(text) => map(text).into(),
        Value::Array(parts) => parts.iter().map(|part| each_text(part, map)).collect(),
        Value::Object(parts) => {
            Value::Object(parts.iter().map(|(name, part)| (name.clone(), each_text(part, map))).collect())
        }
        other => other.clone(),
    }
}

/// Writes the keys. Returns when each of them expires.
fn install(server: &RedisServer, keys: &Value, now: u64) -> Vec<(i64, i64)> {
    let mut expiries = Vec::new();
    for (key, content) in keys.as_object().unwrap() {
        if let Some(value) = content["string"].as_str() {
            server.command(&["SET", key, value]);
        }
        for member in content["zset"].as_array().into_iter().flatten() {
            server.command(&["ZADD", key, member[1].as_str().unwrap(), member[0].as_str().unwrap()]);
        }
        for (field, value) in content["hash"].as_object().into_iter().flatten() {
            server.command(&["HSET", key, field, value.as_str().unwrap()]);
        }
        if let Some(left) = content["pttl"].as_i64() {
            let at = i64::try_from(now / 1000).unwrap() + left;
            server.command(&["PEXPIREAT", key, &at.to_string()]);
            expiries.push((at, left));
        }
    }
    expiries
}

fn list(reply: Reply) -> Vec<String> {
    let Reply::List(parts) = reply else { panic!("no list: {reply:?}") };
    parts.iter().map(|part| part.text().to_owned()).collect()
}

fn read_keys(server: &RedisServer, now: u64, expiries: &[(i64, i64)]) -> Value {
    let mut keys = serde_json::Map::new();
    for key in KEYS {
        let kind = server.command(&["TYPE", key]).text().to_owned();
        let (name, content) = match kind.as_str() {
            "none" => continue,
            "string" => ("string", json!(server.command(&["GET", key]).text())),
            "zset" => {
                let members = list(server.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]));
                ("zset", members.chunks(2).map(|pair| json!(pair)).collect())
            }
            _ => {
                let fields = list(server.command(&["HGETALL", key]));
                ("hash", Value::Object(fields.chunks(2).map(|pair| (pair[0].clone(), json!(pair[1]))).collect()))
            }
        };
        let at = expiry(server, key).1;
        // A reader of a key and then of its remaining time reads them at two moments. Times of a scenario differ by whole seconds.
        let known = expiries.iter().find(|(known, _)| known.abs_diff(at) <= 400).map(|(_, left)| *left);
        let new = || (at - i64::try_from(now / 1000).unwrap() + 3).div_euclid(10_000) * 10_000;
        let pttl = if at < 0 { Value::Null } else { known.unwrap_or_else(new).into() };
        keys.insert(key.to_owned(), json!({ name: content, "pttl": pttl }));
    }
    keys.into()
}

/// Executes a call on a server with these keys. Returns its answer, the messages, and the keys after it.
async fn run(server: &RedisServer, vector: &Value) -> [Value; 3] {
    server.command(&["FLUSHALL"]);
    let now = expiry(server, "k").0;
    let mut symbols = Symbols::at(now, history(server));
    let expiries = install(server, &each_text(&vector["before"], &mut |text| symbols.numbers(text)), now);
    let call = each_text(&vector["call"], &mut |text| symbols.numbers(text));
    if let Some(floor) = call.get("floor").and_then(Value::as_str) {
        symbols.exceed(token(floor));
    }
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut channels = connection.as_pubsub();
    for channel in vector["listens"].as_array().unwrap() {
        channels.subscribe(channel.as_str().unwrap()).unwrap();
    }
    channels.subscribe("end").unwrap();
    let answer = execute(&RedisStore::new(&server.url()).unwrap(), &call).await;
    server.command(&["PUBLISH", "end", ""]);
    let mut messages = Vec::new();
    loop {
        let message = channels.get_message().unwrap();
        if message.get_channel_name() == "end" {
            break;
        }
        messages.push(json!([message.get_channel_name(), message.get_payload::<String>().unwrap()]));
    }
    let after = read_keys(server, now, &expiries);
    [answer, messages.into(), after].map(|part| each_text(&part, &mut |text| symbols.names(text)))
}

/// Executes a scenario, a second passing between its calls. Returns each call with what came of it.
async fn vectors_of(server: &RedisServer, scenario: scenarios::Scenario) -> Vec<Value> {
    let (mut keys, mut vectors) = (scenario.keys, Vec::new());
    for (about, listens, call) in scenario.calls {
        let listens: Vec<String> = listens.iter().map(|name| format!("{INBOX}{name}")).collect();
        let mut vector = json!({ "about": about, "listens": listens, "before": keys, "call": call });
        let [answer, messages, after] = run(server, &vector).await;
        keys = a_second_later(&after);
        let more = [("answer", answer), ("messages", messages), ("after", after)];
        vector.as_object_mut().unwrap().extend(more.map(|(name, part)| (name.to_owned(), part)));
        vectors.push(vector);
    }
    vectors
}

/// Sorts names, which is done or not by what else is built with this.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(parts) => parts.iter().map(sorted).collect(),
        Value::Object(parts) => {
            let parts: BTreeMap<_, _> = parts.iter().collect();
            Value::Object(parts.into_iter().map(|(name, part)| (name.clone(), sorted(part))).collect())
        }
        other => other.clone(),
    }
}

/// One part a line, in the order in which they are read.
fn render(vectors: &[Value]) -> String {
    let part = |vector: &Value, name: &str| format!("\"{name}\": {}", sorted(&vector[name]));
    let vector = |vector: &Value| {
        let names = ["about", "listens", "before", "call", "answer", "messages", "after"];
        format!("{{ {} }}", names.map(|name| part(vector, name)).join(",\n  "))
    };
    format!("[\n{}\n]\n", vectors.iter().map(vector).collect::<Vec<_>>().join(",\n"))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol-vectors.json")
}

#[tokio::test]
#[limit]
async fn the_vectors_of_the_protocol_are_what_the_store_does() {
    let (server, mut vectors) = (RedisServer::start(), Vec::new());
    for scenario in scenarios::all() {
        vectors.extend(vectors_of(&server, scenario).await);
    }
    let generated = render(&vectors);
    if std::env::var("LOCK_VECTORS").is_ok_and(|wish| wish == "overwrite") {
        std::fs::write(file(), &generated).unwrap();
    }
    let written = std::fs::read_to_string(file()).unwrap();
    let differs = generated.lines().zip(written.lines()).find(|(generated, written)| generated != written);
    assert!(generated == written, "generated, and written: {differs:#?}; LOCK_VECTORS=overwrite writes the file anew");
}

/// The author of a client has the file, and not these scenarios.
#[tokio::test]
#[limit]
async fn each_vector_can_be_replayed_by_itself() {
    let server = RedisServer::start();
    let vectors: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file()).unwrap()).unwrap();
    for vector in vectors.iter().rev() {
        let [answer, messages, after] = run(&server, vector).await;
        let about = text(vector, "about");
        assert_eq!((&answer, &messages), (&vector["answer"], &vector["messages"]), "{about}");
        assert_eq!(after, vector["after"], "{about}");
    }
}
