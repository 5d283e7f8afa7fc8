//! Raises leases by `renew.lua`, and has the server report the next change to them.

use std::sync::LazyLock;

use redis::Value;

use crate::protocol::steps::script::{Eval, Script};
use crate::protocol::value;
use lock_store::contract::backend::Claim;

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

/// Why a claim was not renewed.
pub(crate) enum Unrenewed {
    /// The key is gone or somebody else's.
    Lost,
    /// The text of an error.
    Failed(String),
}

/// Reads the claims that were not renewed, by their place. `None` if it makes no sense.
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
