//! What the scripts answer.

use std::time::Duration;

use redis::Value;

use crate::backend::{Claim, Grant};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::owner::{Holder, OwnerId};
use crate::redis::value;

/// What `acquire.lua` answers. `now` is server time in µs.
pub(super) enum Acquired {
    Granted {
        token: FencingToken,
        now: u64,
    },
    /// The claim held the lock already: which block was reserved for it is not known.
    Mine {
        token: FencingToken,
        now: u64,
    },
    Held {
        holder: Holder,
        queued: bool,
        now: u64,
    },
    Stale {
        now: u64,
    },
    Mistyped {
        name: String,
    },
}

impl Acquired {
    /// Reads the answer. `None` if it makes no sense.
    pub(super) fn read(answer: &Value) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let text = |part: &Value| match part {
            Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
            _ => None,
        };
        let number = |part: &Value| text(part)?.parse().ok();
        let (kind, rest) = parts.split_first()?;
        match (text(kind)?.as_str(), rest) {
            ("granted", [token, now]) => {
                Some(Self::Granted { token: FencingToken::new(number(token)?), now: number(now)? })
            }
            ("mine", [token, now]) => Some(Self::Mine { token: FencingToken::new(number(token)?), now: number(now)? }),
            (state @ ("held" | "queued"), [Value::BulkString(value), Value::Int(left), now]) => {
                let holder = value::holder(value, time_left(*left));
                Some(Self::Held { holder, queued: state == "queued", now: number(now)? })
            }
            ("stale", [now]) => Some(Self::Stale { now: number(now)? }),
            ("type", [name]) => Some(Self::Mistyped { name: text(name)? }),
            _ => None,
        }
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

    use super::{Acquired, grant, holder};
    use crate::owner::OwnerId;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![text("granted"), text("1")]),
            Value::Array(vec![text("granted"), text("1.8e+15"), text("1")]),
            Value::Array(vec![text("held"), text("value"), text("1"), text("1")]),
            Value::Array(vec![text("won"), text("1"), text("1")]),
        ] {
            assert!(Acquired::read(&bad).is_none(), "{bad:?}");
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
    fn a_key_without_an_expiry_has_no_time_left() {
        let answer = Value::Array(vec![text("held"), text("x"), Value::Int(-1), text("5")]);
        let Some(Acquired::Held { holder, now: 5, .. }) = Acquired::read(&answer) else { panic!("not held") };
        assert_eq!(holder.ttl_left, None);
    }
}
