//! Several locks in one script.

use redis::Value;

use crate::backend::{AcquireRequest, AttemptAll};
use crate::clock::Clock;
use crate::error::Result;
use crate::fencing::FencingToken;
use crate::redis::coalesce::FENCE_KEPT;
use crate::redis::keys::Keys;
use crate::redis::reply::Acquired;
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
                Err(error) if error.code() == Some("CROSSSLOT") => return Ok(AttemptAll::Apart),
                answer => answer.map_err(|error| self.failed("acquire", &error))?,
            };
            let received = Clock::system().now();
            let (now, answer) = AcquiredAll::read(&answer).ok_or_else(|| self.unreadable("acquire"))?;
            link.time.observe(now, received);
            let (index, why) = match answer {
                AcquiredAll::Granted(tokens) => return Ok(AttemptAll::Granted { tokens }),
                AcquiredAll::Refused(index, why) => (index.min(requests.len() - 1), why),
            };
            let error = match why {
                Acquired::Stale => continue,
                Acquired::Held(holder) => return Ok(AttemptAll::Held { index, holder }),
                Acquired::Mistyped(name) => error::mistyped(&name),
                Acquired::Failed(text) => error::answered(self.pool.node(), "acquire", &text),
                Acquired::Granted(_) | Acquired::Mine(_) | Acquired::Queued(_) => self.unreadable("acquire"),
            };
            return Err(error.with_key(&requests[index].claim.key));
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

/// What `acquire_all.lua` answers.
enum AcquiredAll {
    Granted(Vec<(FencingToken, u32)>),
    /// Why the lock of this number was not taken, and with it none.
    Refused(usize, Acquired),
}

impl AcquiredAll {
    /// Reads server time in µs and the answer. `None` if it makes no sense.
    fn read(answer: &Value) -> Option<(u64, Self)> {
        let Value::Array(parts) = answer else { return None };
        let number = |part: &Value| if let Value::Int(number) = part { u64::try_from(*number).ok() } else { None };
        let (now, rest) = parts.split_first()?;
        let (place, rest) = rest.split_first()?;
        let answer = match (number(place)?, rest) {
            (0, tokens) if tokens.len().is_multiple_of(2) => {
                let pair = |pair: &[Value]| {
                    Some((FencingToken::new(number(&pair[0])?), u32::try_from(number(&pair[1])?).ok()?))
                };
                Self::Granted(tokens.chunks_exact(2).map(pair).collect::<Option<_>>()?)
            }
            (place, [why]) => Self::Refused(usize::try_from(place).ok()?.checked_sub(1)?, Acquired::read(why)?),
            _ => return None,
        };
        Some((number(now)?, answer))
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::{Acquired, AcquiredAll};

    fn array(numbers: &[i64], text: Option<&str>) -> Value {
        let numbers = numbers.iter().map(|number| Value::Int(*number));
        Value::Array(numbers.chain(text.map(|text| Value::BulkString(text.into()))).collect())
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        for bad in [
            Value::Nil,
            array(&[], None),
            array(&[1], None),
            array(&[-1, 0], None),
            array(&[1, 0, 7], None),
            array(&[1, 0, 7, -1], None),
            array(&[1, -1], Some("s")),
            array(&[1, 1], None),
            array(&[1, 1], Some("won")),
        ] {
            assert!(AcquiredAll::read(&bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn all_are_granted_or_one_is_named() {
        let granted = AcquiredAll::read(&array(&[9, 0, 7, 1, 8, 3], None));
        let Some((9, AcquiredAll::Granted(tokens))) = granted else { panic!("not granted") };
        assert_eq!(tokens.iter().map(|(token, block)| (token.get(), *block)).collect::<Vec<_>>(), [(7, 1), (8, 3)]);
        let held = AcquiredAll::read(&array(&[9, 2], Some("h5|value")));
        assert!(matches!(held, Some((9, AcquiredAll::Refused(1, Acquired::Held(_))))));
    }
}
