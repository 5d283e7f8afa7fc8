//! Every step, whatever the server refuses, in every state of a lock.
//!
//! A server refuses all writes (too few replicas, a failed save, a replica), those that take memory until the script has
//! written, or what a user may not do: commands, for ever or for one key. That does not change while a script runs, but
//! which command of a script is the first to be refused does. So each step runs behind a table that refuses as it is told.

pub(super) mod calls;

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use calls::steps;

use crate::error;
use crate::protocol::keys::{BIRTH, CLOCK};
use crate::protocol::steps::script::Eval;
use lock_testing::RedisServer;

/// The longest lease of a state, and longer than it.
const LEASE: Duration = Duration::from_secs(60);
const LONGER: Duration = Duration::from_secs(85);

/// For how long a lock stays taken behind its release.
const KEPT: Duration = Duration::from_secs(20);

/// More commands than any step calls, also where 128 holders are taken out with one.
const MOST_CALLS: i64 = 350;

/// The purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// To take the lock for me: granted, or it holds nothing.
    Take,
    /// To take several locks for me.
    TakeAll,
    /// The same, for a native attempt, after which the script is asked in doubt.
    TakeOrDoubt,
    /// To end my claim, and take the lock for another one.
    Requeue,
    Renew,
    /// To renew by `renew.lua`, which answers with those that it did not renew.
    RenewAll,
    Downgrade,
    Release,
    /// The same, by a script that knows only locks that are not shared.
    FreeOne,
    /// To mark what is done, while I have the lock.
    Mark,
    Other,
}

/// The commands that write.
const WRITES: [&str; 8] = ["SET", "ZADD", "HSET", "XADD", "DEL", "ZREM", "HDEL", "PEXPIRE"];

/// Which commands are refused, and with which words.
fn refusals() -> Vec<[String; 3]> {
    let mut refusals = Vec::new();
    let mut add = |how: &str, which: &str, text: &str| refusals.push([how, which, text].map(str::to_owned));
    add("none", "", "");
    for text in ["NOREPLICAS Not enough good replicas to write.", "MISCONF no", "READONLY You can't write"] {
        add("all", "", text);
    }
    add("growth", "", "OOM command not allowed when used memory > 'maxmemory'.");
    for number in 1..14 {
        add("one", &number.to_string(), "NOPERM no permission for this key");
    }
    let forbidden = "ERR The user executing the script can't run this command or subcommand";
    // The commands that take back earlier work. Pairs of the others need no test of their own.
    const UNDOES: [&str; 4] = ["DEL", "ZREM", "HDEL", "PEXPIRE"];
    for (at, first) in WRITES.into_iter().enumerate() {
        for second in WRITES[at..].iter().filter(|second| **second == first || UNDOES.contains(second)) {
            let both = if *second == first { format!(" {first} ") } else { format!(" {first} {second} ") };
            add("commands", &both, forbidden);
        }
    }
    for read in [
        "EXISTS",
        "GET",
        "GETRANGE",
        "MGET",
        "PTTL",
        "ZRANGE",
        "ZREVRANGE",
        "ZSCORE",
        "ZCARD",
        "HGET",
        "HMGET",
        "HLEN",
        "HKEYS",
        "HGETALL",
        "INFO",
        "PUBLISH",
        "PUBSUB",
    ] {
        add("commands", &format!(" {read} "), forbidden);
    }
    refusals
}

pub(super) const STATES: &str = include_str!("before.lua");

pub(super) fn states() -> Vec<&'static str> {
    STATES.lines().filter_map(|line| line.strip_prefix("  ['")?.split_once("']")).map(|(name, _)| name).collect()
}

/// The text of the script that a step runs.
pub(super) fn script_of(step: &Eval) -> String {
    let whole = step.by_text();
    let Some(redis::Arg::Simple(script)) = whole.args_iter().nth(1) else { panic!("no script") };
    String::from_utf8(script.to_vec()).unwrap()
}

/// The result of a step.
#[derive(Debug)]
struct Outcome {
    answer: Value,
    raised: String,
    calls: i64,
    runaway: bool,
    everlasting: Vec<String>,
    mine: [i64; 2],
    others: [i64; 2],
    used: i64,
    units: i64,
    marked: bool,
}

fn int(value: &Value) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?} is no number") };
    *number
}

fn text(value: &Value) -> String {
    let Value::BulkString(text) = value else { panic!("{value:?} is no text") };
    String::from_utf8_lossy(text).into_owned()
}

fn pair(value: &Value) -> [i64; 2] {
    let Value::Array(pair) = value else { panic!("{value:?} is no pair") };
    [int(&pair[0]), int(&pair[1])]
}

impl Outcome {
    fn read(value: &Value) -> Self {
        let Value::Array(parts) = value else { panic!("{value:?}") };
        let Value::Array(keys) = &parts[4] else { panic!("{parts:?}") };
        let [used, units] = pair(&parts[7]);
        Self {
            answer: parts[0].clone(),
            raised: text(&parts[1]),
            calls: int(&parts[2]),
            runaway: int(&parts[3]) == 1,
            everlasting: keys.iter().map(text).collect(),
            mine: pair(&parts[5]),
            others: pair(&parts[6]),
            used,
            units,
            marked: int(&parts[8]) == 1,
        }
    }

    /// The words of the answer, without the times and numbers before them.
    fn words(&self) -> String {
        match &self.answer {
            Value::Array(parts) => parts.last().map(|last| match last {
                Value::Int(number) => number.to_string(),
                last => text(last),
            }),
            Value::Int(number) => Some(number.to_string()),
            Value::BulkString(_) => Some(text(&self.answer)),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// Returns whether the caller knows nothing definite, so that it undoes what may have been done.
    fn is_ambiguous(&self) -> bool {
        let words = self.words();
        let told = if self.raised.is_empty() { words.strip_prefix('e').unwrap_or_default() } else { &self.raised };
        !told.is_empty() && error::answered("a server", "acquire", told).is_ambiguous()
    }

    /// Returns what is wrong.
    fn judge(&self, aim: Aim, state: &str) -> Option<String> {
        let alone = state.starts_with("mine");
        let (words, ok) = (self.words(), self.raised.is_empty());
        let has = |letter: &str| ok && words.starts_with(letter);
        let [before, after] = self.mine;
        let raised = after > 75_000;
        if self.runaway || self.calls > MOST_CALLS {
            return Some("it does not end".to_owned());
        }
        if let Some(key) = self.everlasting.iter().find(|key| !key.starts_with(CLOCK) && *key != BIRTH) {
            return Some(format!("{key} has no expiry"));
        }
        if self.units > self.used {
            return Some("more units are held than the lock says".to_owned());
        }
        if self.others[0] > 0 && self.others[1] == 0 {
            return Some("another one lost its lease".to_owned());
        }
        let all = matches!(&self.answer, Value::Array(parts) if parts.len() == 3 && parts[1] == Value::Int(0));
        let granted = has("g") || has("j") || has("w") || aim == Aim::TakeAll && ok && all;
        match aim {
            Aim::Take | Aim::TakeAll if granted && !raised => Some("granted, but not held for as long".to_owned()),
            Aim::Take | Aim::TakeAll if !granted && before == 0 && after > 0 && !self.is_ambiguous() => {
                Some("held, but nobody knows".to_owned())
            }
            Aim::TakeOrDoubt if before == 0 && after > 0 && !has("d") && !words.contains('-') => {
                Some("held, but nobody knows".to_owned())
            }
            Aim::Requeue if granted && after > 0 => Some("it goes on to hold what it ended".to_owned()),
            Aim::Renew | Aim::Downgrade if (has("1") || has("2")) && !raised => {
                Some("renewed, but not raised".to_owned())
            }
            Aim::RenewAll if ok && words.is_empty() && !raised => Some("renewed, but not raised".to_owned()),
            Aim::Downgrade | Aim::Renew | Aim::RenewAll if before > 0 && after == 0 => {
                Some("what was held is lost".to_owned())
            }
            Aim::Downgrade if alone && !has("1") && !has("2") && self.used > 0 => Some("refused, but done".to_owned()),
            Aim::Release | Aim::FreeOne
                if (aim == Aim::Release || alone)
                    && ok
                    && matches!(words.as_str(), "0" | "1")
                    && Duration::from_millis(after.unsigned_abs()) > KEPT =>
            {
                Some("released, but held".to_owned())
            }
            Aim::Mark if self.marked != has("1") => Some("marked, and nobody knows, or the other way round".to_owned()),
            Aim::Mark if self.marked && (before == 0 || !alone) => Some("marked by who has no lock".to_owned()),
            _ => None,
        }
    }
}

/// Adds the words of a call to a script of which its own is a part.
fn run(calls: &mut redis::Pipeline, script: &redis::Script, eval: &Eval, refusal: [&str; 4]) {
    let call = calls.cmd("EVALSHA").arg(script.get_hash());
    for word in eval.by_hash().args_iter().skip(2) {
        if let redis::Arg::Simple(word) = word {
            call.arg(word);
        }
    }
    call.arg(&refusal);
}

/// Finds out what is wrong after each step, in each state, with each refusal.
fn all_wrongs(states: &[&str]) -> (usize, BTreeMap<String, (usize, String)>) {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let (mut connection, mut listening) = (client.get_connection().unwrap(), client.get_connection().unwrap());
    let mut inbox = listening.as_pubsub();
    inbox.subscribe("distributed-lock:inbox:listens").unwrap();
    let refusals = refusals();
    let (mut runs, mut wrongs) = (0, BTreeMap::<String, (usize, String)>::new());
    for (number, (name, aim, eval)) in steps().iter().enumerate() {
        let script = [STATES, &script_of(eval), include_str!("after.lua")].concat();
        let script = redis::Script::new(&script);
        script.prepare_invoke().load(&mut connection).unwrap();
        for (at, state) in states.iter().enumerate() {
            let mut calls = redis::Pipeline::new();
            // A third in each state of what differs little: pairs of commands, those that read, and the words of a refusal.
            let drawn = |place: usize, [how, which, text]: &[String; 3]| {
                let one = WRITES.contains(&which.trim()) || how == "all" && text.starts_with("NO");
                !(how == "commands" || how == "all") || one || (number + at + place).is_multiple_of(3)
            };
            let refusals = refusals.iter().enumerate().filter(|(place, refusal)| drawn(*place, refusal));
            let refusals: Vec<&[String; 3]> = refusals.map(|(_, refusal)| refusal).collect();
            for [how, which, text] in &refusals {
                run(&mut calls, &script, eval, [state, how, which, text]);
            }
            let outcomes: Vec<Value> = calls.query(&mut connection).unwrap();
            runs += outcomes.len();
            for (outcome, [how, which, text]) in outcomes.iter().zip(&refusals) {
                let outcome = Outcome::read(outcome);
                if let Some(wrong) = outcome.judge(*aim, state) {
                    let of = wrongs.entry(format!("{name}: {wrong}")).or_default();
                    of.0 += 1;
                    if of.0 == 1 {
                        of.1 = format!("{state}; {how}{which}, {text}: {outcome:?}");
                    }
                }
            }
        }
    }
    (runs, wrongs)
}

#[test]
fn no_step_leaves_anything_half_done_or_goes_on_for_ever_whatever_is_refused() {
    let states = states();
    assert_eq!(states.len(), 49, "{states:?}");
    let (runs, wrongs) = all_wrongs(&states);
    println!("{runs} runs of {} steps in {} states", steps().len(), states.len());
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

/// Steps that meet more holders whose leases are over than one of them takes out.
#[test]
fn a_step_takes_out_so_many_at_once_and_the_next_one_goes_on() {
    let server = RedisServer::start();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let crowd = redis::Script::new(include_str!("crowd.lua"));
    // Still counted by the lock, and left behind without one.
    for lock in ["shared", "gone"] {
        for (name, aim, eval) in steps() {
            crowd.arg(lock).invoke::<()>(&mut connection).unwrap();
            let count = |connection: &mut redis::Connection| -> i64 {
                redis::cmd("ZCARD").arg("{k}@queue").query(connection).unwrap()
            };
            let (mut rounds, mut before) = (0, count(&mut connection));
            loop {
                let _: redis::RedisResult<()> = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut connection);
                let answer: Value = eval.by_text().query(&mut connection).unwrap_or(Value::Nil);
                let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
                let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<i64>().ok();
                let calls: i64 = stats.lines().filter_map(calls).sum();
                assert!(calls < MOST_CALLS, "{name}, {lock}: {calls} commands");
                rounds += 1;
                let left = count(&mut connection);
                let stale =
                    matches!(&answer, Value::Array(parts) if parts.last() == Some(&Value::BulkString(b"s".to_vec())));
                if !stale {
                    let granted = matches!(&answer, Value::Array(parts) if matches!(parts.last(), Some(Value::BulkString(text)) if text.starts_with(b"j")));
                    assert!(!granted || lock == "shared" || left < 3, "{name}, {lock}: granted beside {left}");
                    break;
                }
                assert!(aim != Aim::Release && left < before, "{name}, {lock}: nothing was done");
                before = left;
            }
            assert!(rounds < 10, "{name}, {lock}: {rounds} rounds");
        }
    }
}
