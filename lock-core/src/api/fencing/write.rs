//! A write to Redis that is refused if the lock of its writer has passed to another holder.

use std::time::Duration;

use lock_store::contract::event::{Notice, notify_all};
use lock_store::types::fencing::{FencingToken, StaleToken};

const SCRIPT: &str = include_str!("write.lua");

/// The first word of the error with which Redis refuses a stale token.
const STALE: &str = "STALETOKEN";

/// A hundred years. Redis rejects much longer times as an invalid expiry.
const FOR_EVER_MS: u128 = 100 * 365 * 86_400_000;

/// One write to a key in Redis that happens only if no newer fencing token has been seen there.
///
/// The newest token is kept in a key beside the written key, in the same slot of a cluster. (A cluster refuses keys
/// with a `}` outside of a hash tag.) Check and write are one script. It protects only if every writer of that key uses
/// it. The result is the arguments of `EVAL`, for any Redis client:
///
/// ```no_run
/// # use lock_core::{FencedWrite, LockError, LockManager};
/// # async fn demo(locks: LockManager, mut redis: redis::aio::MultiplexedConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = locks.lock("stock:7").await?;
/// let write = FencedWrite::new("stock:7:left", guard.token(), "SET").arg("11");
/// let written: Result<(), redis::RedisError> = redis::cmd("EVAL").arg(write.eval_args()).query_async(&mut redis).await;
/// if let Err(error) = written {
///     // `Some`: the lock has passed to another holder, so stop. `None`: anything else that can go wrong.
///     return Err(FencedWrite::refusal(&error.to_string()).map_or(error.into(), Into::into));
/// }
/// # Ok(())
/// # }
/// ```
///
/// A write that fails for another reason still records its token as the newest, because it is the newest.
#[derive(Clone, Debug)]
#[must_use = "nothing is written until the arguments are sent"]
pub struct FencedWrite {
    key: Vec<u8>,
    token: FencingToken,
    /// The command, and its arguments after the key.
    command: Vec<Vec<u8>>,
    remember: Option<Duration>,
}

impl FencedWrite {
    /// Prepares a command that writes to one key, for example `SET key …`, `HSET key …`, `INCRBY key …` or `DEL key`.
    pub fn new(key: impl AsRef<[u8]>, token: FencingToken, command: &str) -> Self {
        Self { key: key.as_ref().to_vec(), token, command: vec![command.as_bytes().to_vec()], remember: None }
    }

    /// Appends an argument after the key.
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.command.push(argument.as_ref().to_vec());
        self
    }

    /// Forgets the token this long after the last write. Default: never.
    ///
    /// For data that expires by itself. Make it longer than any process can be paused: a stale writer that returns
    /// later is admitted.
    pub fn remember_for(mut self, time: Duration) -> Self {
        self.remember = Some(time);
        self
    }

    /// Returns the key that keeps the newest token.
    #[must_use]
    pub fn token_key(&self) -> Vec<u8> {
        let key = &self.key;
        let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
            let length = key[open + 1..].iter().position(|byte| *byte == b'}')?;
            (length > 0).then_some(())
        });
        match tag {
            // Redis hashes the text in the first braces, which stays the same.
            Some(()) => [key, &b":@token"[..]].concat(),
            // The ending differs, so that the keys `a` and `{a}` have different token keys.
            None => [&b"{"[..], key, b"}@token"].concat(),
        }
    }

    /// Returns the arguments of `EVAL`: the script, and all values of this write.
    #[must_use]
    pub fn eval_args(&self) -> Vec<Vec<u8>> {
        notify_all(&Notice::FencingChecked { token: self.token });
        let remember =
            self.remember.map_or_else(String::new, |time| time.as_millis().clamp(1, FOR_EVER_MS).to_string());
        let mut args = vec![SCRIPT.into(), b"2".to_vec(), self.key.clone(), self.token_key()];
        args.extend([self.token.to_string().into_bytes(), remember.into_bytes()]);
        args.extend(self.command.iter().cloned());
        args
    }

    /// Reads the text of an error from Redis. `None` if the error is not about a stale token.
    #[must_use]
    pub fn refusal(error: &str) -> Option<StaleToken> {
        let said = &error[error.find(STALE)? + STALE.len()..];
        let mut numbers = said.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        let (token, newest) = (numbers.next()?, numbers.next()?);
        Some(StaleToken::new(FencingToken::new(token), FencingToken::new(newest)))
    }
}
