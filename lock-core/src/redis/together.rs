//! Several locks in one script.

use redis::{ErrorKind, ServerErrorKind, Value};

use crate::backend::{AcquireRequest, AttemptAll};
use crate::clock::Clock;
use crate::error::Result;
use crate::fencing::FencingToken;
use crate::owner::Holder;
use crate::redis::coalesce::FENCE_KEPT;
use crate::redis::keys::Keys;
use crate::redis::reply::time_left;
use crate::redis::scripts::SCRIPTS;
use crate::redis::{RedisStore, STALE_RETRIES, error, value};

/// How many locks one script takes: while it runs, the server serves nobody else.
const MOST: usize = 50;

impl RedisStore {
    /// Takes all locks in one script. A server that is no cluster does so for any keys; a node of a
    /// cluster only for keys of one slot, and refuses others before it does anything.
    pub(super) async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll> {
        let Some(first) = requests.first().filter(|_| requests.len() <= MOST) else { return Ok(AttemptAll::Apart) };
        let claims = requests.iter().map(Written::of).collect::<Result<Vec<_>>>()?;
        let keys: Vec<&str> = claims.iter().flat_map(|claim| claim.keys.all()).collect();
        for _ in 0..=STALE_RETRIES {
            let link = self.pool.link().await?;
            let deadline = link.time.deadline(Clock::system().now(), first.execute_within);
            let answer = link
                .eval(&SCRIPTS.acquire_all, &keys, |command| {
                    command.arg(value::millis(FENCE_KEPT)).arg(deadline);
                    for claim in &claims {
                        command.arg(&claim.owner).arg(claim.ttl).arg(claim.floor).arg(claim.block).arg(&claim.tail);
                    }
                })
                .await;
            let answer = match answer {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) => {
                    return Ok(AttemptAll::Apart);
                }
                answer => answer.map_err(|error| self.failed("acquire", &error))?,
            };
            let received = Clock::system().now();
            match AcquiredAll::read(&answer).ok_or_else(|| self.unreadable("acquire"))? {
                AcquiredAll::Granted { tokens, now } => {
                    link.time.observe(now, received);
                    return Ok(AttemptAll::Granted { tokens });
                }
                AcquiredAll::Held { index, holder, now } => {
                    link.time.observe(now, received);
                    return Ok(AttemptAll::Held { index, holder });
                }
                AcquiredAll::Stale { now } => link.time.observe(now, received),
                AcquiredAll::Mistyped(name) => return Err(error::mistyped(&name)),
                AcquiredAll::Failed(text) => return Err(error::answered(self.pool.node(), "acquire", &text)),
            }
        }
        Err(self.too_late(first.execute_within))
    }
}

/// A claim as the script reads it.
struct Written<'a> {
    keys: Keys<'a>,
    owner: String,
    ttl: u64,
    floor: u64,
    block: u32,
    tail: String,
}

impl<'a> Written<'a> {
    fn of(request: &'a AcquireRequest) -> Result<Self> {
        let claim = &request.claim;
        let keys = RedisStore::check_floor(request.floor).and_then(|()| Keys::of(&claim.key));
        Ok(Self {
            keys: keys.map_err(|error| error.with_key(&claim.key))?,
            owner: claim.owner.to_hex(),
            ttl: value::millis(claim.ttl),
            floor: request.floor.get(),
            block: request.block.max(1),
            tail: value::tail(claim.ttl, &request.info),
        })
    }
}

/// What `acquire_all.lua` answers. `now` is server time in µs.
enum AcquiredAll {
    Granted {
        tokens: Vec<(FencingToken, u32)>,
        now: u64,
    },
    Held {
        index: usize,
        holder: Holder,
        now: u64,
    },
    Stale {
        now: u64,
    },
    /// The key of this name is of another type.
    Mistyped(String),
    /// The text of an error.
    Failed(String),
}

impl AcquiredAll {
    /// Reads the answer. `None` if it makes no sense.
    fn read(answer: &Value) -> Option<Self> {
        let parts = match answer {
            Value::Array(parts) => parts,
            Value::BulkString(refusal) => {
                let (kind, text) = refusal.split_first()?;
                let text = String::from_utf8_lossy(text).into_owned();
                return match kind {
                    b't' => Some(Self::Mistyped(text)),
                    b'e' => Some(Self::Failed(text)),
                    _ => None,
                };
            }
            _ => return None,
        };
        let text = |part: &Value| match part {
            Value::BulkString(text) => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        let number = |part: &Value| text(part)?.parse::<u64>().ok();
        let (kind, rest) = parts.split_first()?;
        match (text(kind)?.as_str(), rest) {
            ("granted", [now, tokens @ ..]) if tokens.len().is_multiple_of(2) => {
                let pair = |pair: &[Value]| {
                    Some((FencingToken::new(number(&pair[0])?), u32::try_from(number(&pair[1])?).ok()?))
                };
                Some(Self::Granted {
                    tokens: tokens.chunks_exact(2).map(pair).collect::<Option<_>>()?,
                    now: number(now)?,
                })
            }
            ("held", [now, Value::Int(place), Value::BulkString(value), Value::Int(left)]) => Some(Self::Held {
                index: usize::try_from(*place).ok()?.checked_sub(1)?,
                holder: value::holder(value, time_left(*left)),
                now: number(now)?,
            }),
            ("stale", [now]) => Some(Self::Stale { now: number(now)? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::AcquiredAll;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        for bad in [
            Value::Nil,
            text(""),
            text("x"),
            Value::Array(vec![]),
            Value::Array(vec![text("granted")]),
            Value::Array(vec![text("granted"), text("1"), text("7")]),
            Value::Array(vec![text("granted"), text("1"), text("7"), text("-1")]),
            Value::Array(vec![text("held"), text("1"), Value::Int(0), text("value"), Value::Int(5)]),
            Value::Array(vec![text("stale")]),
        ] {
            assert!(AcquiredAll::read(&bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_grant_has_a_token_and_a_block_for_each_lock() {
        let answer = Value::Array(vec![text("granted"), text("9"), text("7"), text("1"), text("8"), text("3")]);
        let Some(AcquiredAll::Granted { tokens, now: 9 }) = AcquiredAll::read(&answer) else { panic!("not granted") };
        assert_eq!(tokens.iter().map(|(token, block)| (token.get(), *block)).collect::<Vec<_>>(), [(7, 1), (8, 3)]);
    }
}
