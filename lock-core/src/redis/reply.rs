//! What the scripts answer.

use std::time::Duration;

use redis::Value;

use crate::backend::{Claim, Freed, Grant};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::owner::{Holder, OwnerId};
use crate::redis::value;

/// What `acquire.lua` and `requeue.lua` answer.
pub(super) enum Acquired {
    Granted(FencingToken),
    /// The claim held the lock already: which block was reserved for it is not known.
    Mine(FencingToken),
    Held(Holder),
    Queued(Holder),
    Stale,
    /// The key of this name is of another type.
    Mistyped(String),
    /// The text of an error.
    Failed(String),
}

impl Acquired {
    /// Reads the answer. `None` if it makes no sense.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let text = match answer {
            Value::Int(token) => return Some(Self::Granted(FencingToken::new(u64::try_from(*token).ok()?))),
            Value::BulkString(text) => text,
            _ => return None,
        };
        let (kind, rest) = text.split_first()?;
        let word = || std::str::from_utf8(rest).ok();
        match kind {
            b'm' => Some(Self::Mine(FencingToken::new(word()?.parse().ok()?))),
            b'h' => Some(Self::Held(held(rest)?)),
            b'q' => Some(Self::Queued(held(rest)?)),
            b's' if rest.is_empty() => Some(Self::Stale),
            b't' => Some(Self::Mistyped(word()?.to_owned())),
            b'e' => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

/// Reads `time left|value`, where the value may be any bytes.
fn held(text: &[u8]) -> Option<Holder> {
    let bar = text.iter().position(|byte| *byte == b'|')?;
    let left = std::str::from_utf8(&text[..bar]).ok()?.parse().ok()?;
    Some(value::holder(&text[bar + 1..], time_left(left)))
}

/// Reads what `release.lua` answers: whether the claim held the lock, or the text of an error.
/// `None` if it makes no sense.
pub(super) fn released(answer: &Value) -> Option<Result<Freed, String>> {
    match answer {
        Value::Int(1) => Some(Ok(Freed::Released)),
        Value::Int(0) => Some(Ok(Freed::NotHeld)),
        Value::BulkString(text) => Some(Err(String::from_utf8_lossy(text.strip_prefix(b"e")?).into_owned())),
        _ => None,
    }
}

/// Reads a message about a grant: `owner|token|block|grant_ttl|stamp|key`.
pub(super) fn grant(message: &[u8]) -> Option<Grant> {
    let mut parts = std::str::from_utf8(message).ok()?.splitn(6, '|');
    let owner = OwnerId::from_hex(parts.next()?)?;
    let token = FencingToken::new(parts.next()?.parse().ok()?);
    let block = parts.next()?.parse().ok()?;
    let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
    let stamp = parts.next()?.parse().ok()?;
    let key = LockKey::new(parts.next()?).ok()?;
    Some(Grant::new(Claim { key, owner, ttl }, token, block, stamp))
}

/// Writes a message about a lock that an operator takes away.
pub(super) fn revoking(owner: OwnerId, actor: &str, reason: &str) -> String {
    format!("{}|{}|{reason}", owner.to_hex(), actor.replace('|', "_"))
}

/// Reads such a message: whose lock it is, who takes it away, and why.
pub(super) fn revocation(message: &[u8]) -> Option<(OwnerId, &str, &str)> {
    let (owner, rest) = std::str::from_utf8(message).ok()?.split_once('|')?;
    let (actor, reason) = rest.split_once('|')?;
    Some((OwnerId::from_hex(owner)?, actor, reason))
}

/// Reads an answer of PTTL: -1 is a key that never expires.
pub(super) fn time_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Reads the answer of `holder.lua`. `None` if it makes no sense.
#[expect(clippy::option_option, reason = "no sense and nobody are different answers")]
pub(super) fn holder(answer: &Value) -> Option<Option<Holder>> {
    let Value::Array(parts) = answer else { return None };
    match parts.as_slice() {
        [] => Some(None),
        [Value::BulkString(text), Value::Int(left)] => Some(Some(value::holder(text, time_left(*left)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Value;

    use super::{Acquired, grant, holder, released, revocation, revoking};
    use crate::owner::OwnerId;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        let words = ["", "m", "m1.8e+15", "h1", "hx|value", "q|value", "s1", "won"].map(text);
        for bad in [Value::Nil, Value::Int(-1), Value::Array(vec![])].iter().chain(&words) {
            assert!(Acquired::read(bad).is_none(), "{bad:?}");
        }
        for bad in [Value::Nil, Value::Int(2), text("1"), text("")] {
            assert!(released(&bad).is_none(), "{bad:?}");
        }
        assert!(holder(&Value::Array(vec![text("value")])).is_none());
        assert!(holder(&Value::Array(vec![])).is_some_and(|nobody| nobody.is_none()));
    }

    #[test]
    fn grants_are_read_and_nonsense_is_not() {
        let owner = OwnerId::random();
        let read = grant(format!("{}|7|3|1500|99|a|b:c", owner.to_hex()).as_bytes()).unwrap();
        assert_eq!((read.claim.owner, read.token.get(), read.block, read.stamp), (owner, 7, 3, 99));
        assert_eq!((read.claim.key.as_str(), read.claim.ttl), ("a|b:c", Duration::from_millis(1500)));
        for bad in ["", "x|7|3|1500|99|k", &format!("{}|7|3|1500|99|", owner.to_hex()), &owner.to_hex()] {
            assert!(grant(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(grant(&[0xff]).is_none());
    }

    #[test]
    fn revocations_are_read_as_written() {
        let owner = OwnerId::random();
        let message = revoking(owner, "ana|@web", "stuck | since noon");
        assert_eq!(revocation(message.as_bytes()), Some((owner, "ana_@web", "stuck | since noon")));
        for bad in [&b""[..], b"x|a|b", b"\xff|a|b", &owner.digits()] {
            assert!(revocation(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_without_an_expiry_has_no_time_left() {
        let Some(Acquired::Held(holder)) = Acquired::read(&text("h-1|x")) else { panic!("not held") };
        assert_eq!(holder.ttl_left, None);
    }
}
