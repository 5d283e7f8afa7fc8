//! The scripts, and what a call of one says.

use std::sync::LazyLock;

use lock_redis::layout::{CLOCK_LUA, Eval, Keys, Script, Step, Unread};
use lock_store::types::key::LockKey;
use redis::Value;

macro_rules! scripts {
    ($($name:ident: $text:expr;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[&[CLOCK_LUA, include_str!("lua/parts.lua"), $text]]));)+
    };
}

scripts! {
    ACQUIRE: include_str!("lua/acquire.lua");
    RENEW: include_str!("lua/renew.lua");
    RELEASE: include_str!("lua/release.lua");
    // Answers `{now}` if the lock is free, and else as acquire.lua.
    READ: "local now = time()\nreturn call('EXISTS', KEYS[1]) == 0 and { now } or seen(now, KEYS[1], KEYS[2])";
    // Removes the latch of an unlock that was answered.
    FORGET: "pcall('DEL', KEYS[1])\nreturn { time() }";
}

/// The answer of a script: server time in us, and the rest.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) now: u64,
    pub(crate) rest: Vec<Value>,
}

impl Told {
    fn read(answer: &Value) -> Result<Self, Unread> {
        let Value::Array(parts) = answer else { return Err(Unread::Nonsense) };
        let Some((Value::Int(now), rest)) = parts.split_first() else { return Err(Unread::Nonsense) };
        Ok(Self { now: u64::try_from(*now).map_err(|_| Unread::Nonsense)?, rest: rest.to_vec() })
    }

    /// Returns the answer in one word, which is empty if something is missing.
    pub(crate) fn word(&self) -> &[u8] {
        if let Some(Value::BulkString(word)) = self.rest.first() { word } else { b"" }
    }

    /// Returns a text of the answer.
    pub(crate) fn text(&self, at: usize) -> Option<&str> {
        if let Some(Value::BulkString(text)) = self.rest.get(at) { std::str::from_utf8(text).ok() } else { None }
    }

    pub(crate) fn number(&self, at: usize) -> Option<i64> {
        if let Some(Value::Int(number)) = self.rest.get(at) { Some(*number) } else { None }
    }
}

/// Makes a call of a script about a lock. The clock follows the keys.
pub(crate) fn step<'a>(
    op: &'static str,
    lock: &'a LockKey,
    script: &'static Script,
    keys: Vec<String>,
    words: Vec<String>,
) -> Step<'a, Told> {
    let call = move |_: &Keys, clock: &str| {
        let all: Vec<&str> = keys.iter().map(String::as_str).chain([clock]).collect();
        words.iter().fold(Eval::new(script, all), Eval::arg)
    };
    let mut step = Step::new(op, lock, call, Told::read);
    step.is_missing = |told| told.rest.is_empty();
    step
}
