//! The contents that a lock's keys may have without this library.

use fastrand::Rng;
use lock_core::OwnerId;
use lock_testing::{RedisServer, Reply};

/// Something that somebody writes.
#[derive(Debug)]
pub(super) struct Garbage {
    pub(super) commands: Vec<Vec<String>>,
    /// Whether it overwrites or removes what holders have.
    pub(super) robs: bool,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn pick<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(0..of.len())]
}

/// Numbers as they should be, and as they should not.
fn number(random: &mut Rng, now: i64) -> String {
    match random.u8(0..8) {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        2 => "99999999999999999999999".to_owned(),
        3 => "9007199254740993".to_owned(),
        4 => String::new(),
        5 => "-1".to_owned(),
        6 => (now + random.i64(-100_000..100_000)).to_string(),
        _ => random.u32(..).to_string(),
    }
}

fn score(random: &mut Rng, now_ms: i64) -> String {
    let near = now_ms + random.i64(-50_000..50_000);
    // A lease that is over, as often as all else.
    if random.bool() {
        return format!("-{}", now_ms - random.i64(1..50_000));
    }
    match random.u8(0..12) {
        0 => "-inf".to_owned(),
        1 => "+inf".to_owned(),
        2 => "0".to_owned(),
        3 => "-1".to_owned(),
        4 => "1".to_owned(),
        5 => "-9.3e18".to_owned(),
        6 => "1e300".to_owned(),
        7 => "-1e-300".to_owned(),
        8 => format!("-{near}.5"),
        9 => format!("-{near}"),
        10 => format!("{near}000"),
        _ => format!("-{}", now_ms + 90_000_000_000_000),
    }
}

/// An entry of `waiters`, most of whose fields are right.
fn entry(random: &mut Rng, now_ms: i64) -> String {
    let now = now_ms * 1000;
    if random.bool() {
        let terms = pick(random, &["s1/3", "s2/3", "s3/3"]);
        return format!("distributed-lock:inbox:nobody|1|{now}|0|3000|{terms}|0-0|1000|host|1|site|lock");
    }
    let mut fields = words(&["distributed-lock:inbox:nobody", "1", &now.to_string(), "0", "3000"]);
    if random.bool() {
        let terms = [
            "s1/3",
            "s2/3",
            "s0/3",
            "s4/3",
            "s1/2147483648",
            "s",
            "s1/",
            "x",
            "s99999999999999999999/99999999999999999999",
        ];
        fields.push(pick(random, &terms).to_owned());
    }
    fields.extend(words(&["0-0", "1000", "host", "1", "site", "lock"]));
    for _ in 0..random.usize(0..3) {
        let at = random.usize(0..fields.len());
        fields[at] = if random.bool() { number(random, now) } else { "?".to_owned() };
    }
    fields.truncate(if random.u8(0..4) == 0 { random.usize(0..fields.len()) } else { fields.len() });
    fields.join("|")
}

/// A value of K, as of a phase, of a holder, or of anybody.
fn value(random: &mut Rng, now_ms: i64) -> String {
    let count = match random.u8(0..4) {
        0 => "0".repeat(26),
        1 => "9".repeat(26),
        2 => "x".repeat(26),
        _ => format!("{:026}", random.u8(0..9)),
    };
    let draw = format!("{now_ms}-0-0");
    let token =
        pick(random, &[&draw, "1-0-0", "7-9999-0", "7-0-999", "99999999999999-0-0", "7", "", "a-b-c"]).to_owned();
    match random.u8(0..8) {
        0..4 => format!("shared{count}|{token}|1000|h|1|s|"),
        4 => format!("{}|{now_ms}|1000|h|1|s|", OwnerId::random().to_hex()),
        5 => format!("{}|{}", OwnerId::random().to_hex(), "|".repeat(random.usize(0..9))),
        6 => "theirs".to_owned(),
        _ => String::new(),
    }
}

/// Puts something of another type there.
fn mistype(random: &mut Rng, name: &str) -> Vec<Vec<String>> {
    let write: &[&str] = match random.u8(0..5) {
        0 => &["RPUSH", "x"],
        1 => &["SADD", "x"],
        2 => &["HSET", "x", "y"],
        3 => &["SET", "x"],
        _ => &["ZADD", "1", "x"],
    };
    vec![words(&["DEL", name]), words(&[&[write[0], name], &write[1..]].concat())]
}

impl Garbage {
    pub(super) fn draw(random: &mut Rng, server: &RedisServer, key: &str, held: bool) -> Self {
        let Reply::List(time) = server.command(&["TIME"]) else { panic!("no time") };
        let now_ms = time[0].text().parse::<i64>().unwrap() * 1000;
        let [queue, waiters, blocked, job] =
            ["queue", "waiters", "blocked", "job"].map(|part| format!("{{{key}}}@{part}"));
        let adds = |commands| Self { commands, robs: false };
        let robs = |commands| Self { commands, robs: true };
        let owner = OwnerId::random().to_hex();
        let name = pick(random, &[&owner, &owner, "others", "not an owner", ""]).to_owned();
        let member = |random: &mut Rng| words(&["ZADD", &queue, &score(random, now_ms), &name]);
        match random.u8(0..16) {
            0..5 => adds(vec![member(random)]),
            5..8 => adds(vec![member(random), words(&["HSET", &waiters, &name, &entry(random, now_ms)])]),
            8 => {
                let known = [number(random, now_ms * 1000), number(random, now_ms * 1000)].join("|");
                adds(vec![words(&["HSET", &waiters, "others", &known])])
            }
            9 => adds(vec![words(&["SET", &job, &entry(random, now_ms)])]),
            10 => adds(vec![words(&["SET", &blocked, &entry(random, now_ms)])]),
            11 => {
                let name = pick(random, &[&blocked, &job]).to_owned();
                adds(mistype(random, &name))
            }
            // While somebody holds it, that takes it away.
            12 if !held => adds(vec![words(&["SET", key, &value(random, now_ms)])]),
            12 => robs(vec![words(&["SET", key, &value(random, now_ms)])]),
            13 => {
                let name = pick(random, &[&queue, &waiters, key]).to_owned();
                robs(mistype(random, &name))
            }
            14 => robs(vec![words(&["DEL", pick(random, &[&queue, &waiters, key])])]),
            _ if random.bool() => {
                let id = pick(random, &["8000000000000-0", "18446744073709551615-18446744073709551615"]);
                adds(vec![words(&["XADD", "distributed-lock:clock", id, "k", "v"])])
            }
            _ => adds(mistype(random, "distributed-lock:clock")),
        }
    }
}
