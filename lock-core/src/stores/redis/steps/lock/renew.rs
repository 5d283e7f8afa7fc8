//! Raises leases, and has the server report the next change to them: by `PEXPIRE … GT` for each and one
//! `MGET`, or by `renew.lua`.
//!
//! The commands need no transaction. An owner serves one claim, so a value that is the claim's after the
//! `PEXPIRE` was the claim's before it, and `GT` shortens nobody's lease. But they do not look first: on a
//! lease that was lost they lengthen somebody else's. So they are sent at most once without an answer.

use std::sync::LazyLock;

use redis::{Pipeline, Value};

use crate::contract::backend::{Claim, Renewal};
use crate::stores::redis::steps::script::{Eval, Script};
use crate::stores::redis::value;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&[&[include_str!("renew.lua")]]));

/// Renews some claims.
pub(crate) fn renew(claims: &[Claim], track: bool) -> Eval {
    Eval::new(&SCRIPT, claims.iter().map(|claim| claim.key.as_str())).with(|arguments| {
        arguments.arg(if track { "track" } else { "" });
        for claim in claims {
            arguments.arg(&value::head(claim.owner));
        }
        // Usually all ttls are the same, and one argument for all is enough.
        let alike = claims.windows(2).all(|pair| pair[0].ttl == pair[1].ttl);
        for claim in &claims[..if alike { 1 } else { claims.len() }] {
            arguments.arg(value::millis(claim.ttl));
        }
    })
}

/// Renews some claims without a script. There is one answer for each claim, and one more. The reading comes
/// last, because a write ends what was remembered of the key before, our own write too.
pub(crate) fn raise<'a>(claims: impl ExactSizeIterator<Item = &'a Claim> + Clone) -> Pipeline {
    let mut message = Pipeline::with_capacity(claims.len() + 1);
    for claim in claims.clone() {
        message.cmd("PEXPIRE").arg(claim.key.as_str()).arg(value::millis(claim.ttl)).arg("GT");
    }
    let values = message.cmd("MGET");
    for claim in claims {
        values.arg(claim.key.as_str());
    }
    message
}

/// Reads the answers. `None` for a claim whose lease may be ours and was not raised: the script must be asked.
/// `None` for all of them if the values could not be read.
pub(crate) fn raised<'a>(
    answers: &[Value],
    claims: impl ExactSizeIterator<Item = &'a Claim>,
) -> Option<Vec<Option<Renewal>>> {
    let (Value::Array(values), raised) = answers.split_last()? else { return None };
    if values.len() != claims.len() || raised.len() != claims.len() {
        return None;
    }
    let read = |((claim, raised), value): ((&Claim, &Value), &Value)| match (raised, value) {
        // A refusal, as of a replica or by an ACL.
        (Value::ServerError(_), _) => None,
        (raised, Value::BulkString(text)) if text.starts_with(&value::head(claim.owner)) => {
            // Zero: it lasts longer, or has no expiry at all.
            matches!(raised, Value::Int(1)).then_some(Renewal::Renewed)
        }
        // A key of another type reads as nothing.
        (_, Value::BulkString(_) | Value::Nil) => Some(Renewal::Lost),
        _ => None,
    };
    Some(claims.zip(raised).zip(values).map(read).collect())
}

/// Why a claim was not renewed.
pub(crate) enum Unrenewed {
    /// The key is gone or somebody else's.
    Lost,
    /// The text of an error.
    Failed(String),
}

/// Reads the claims that were not renewed, by their place. `None` if it cannot be read.
pub(crate) fn unrenewed(answer: &Value) -> Option<Vec<(usize, Unrenewed)>> {
    let Value::Array(answers) = answer else { return None };
    let read = |pair: &[Value]| match pair {
        [Value::Int(number), answer] => {
            let place = usize::try_from(*number).ok()?.checked_sub(1)?;
            match answer {
                Value::Int(0) => Some((place, Unrenewed::Lost)),
                Value::BulkString(text) => Some((place, Unrenewed::Failed(String::from_utf8_lossy(text).into_owned()))),
                _ => None,
            }
        }
        _ => None,
    };
    answers.chunks(2).map(read).collect()
}
