//! From the answer to one question to a finding. An answer that says nothing definite is *unknown*, never *works*.

use redis::{RedisError, Value};

use crate::error;
use lock_store::contract::backend::Finding;
use lock_store::types::error::{LockError, LockErrorKind};

/// Why a check has no answer that it can use.
pub(super) enum Failure {
    /// The reason why the answer is unknown.
    Silent(String),
    /// The error that the server answered.
    Refused(RedisError),
}

impl Failure {
    pub(super) fn unreadable() -> Self {
        Self::Silent("its answer cannot be read".to_owned())
    }
}

/// The part of this library that a check stands for.
pub(super) enum Need {
    /// No lock can be taken without it.
    Required,
    /// Without it, this is lost. The second text cures that.
    Lost(&'static str, &'static str),
}

/// The refusals after which no lock can be taken now, although nothing is set wrongly.
const NOT_NOW: [&str; 6] = ["READONLY", "OOM", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN"];

/// Makes a finding of the outcome of a check.
pub(super) fn judge(subject: &'static str, need: &Need, outcome: Result<Finding, Failure>) -> Finding {
    let refusal = match outcome {
        Ok(found) => return found,
        Err(Failure::Silent(why)) => return Finding::unknown(subject, why),
        Err(Failure::Refused(refusal)) => refusal,
    };
    let (code, is_set, advice, told) = error::read(&refusal);
    // The user may use other keys and channels than those of the check.
    let has = |parts: &[&str]| parts.iter().any(|part| told.contains(part));
    if has(&["permission", "can't access"]) && has(&["access"]) && has(&["key", "channel"]) {
        let says = format!("this user may not touch the key or the channel of the check ({told})");
        return Finding::unknown(subject, says)
            .with_remedy("examine with a user who has the permissions that docs/operations.md#permissions lists");
    }
    match need {
        Need::Required if is_set || code.is_some_and(|code| NOT_NOW.contains(&code)) => {
            Finding::refused(subject, format!("the server refuses it: {told}")).with_remedy(advice)
        }
        Need::Lost(lost, remedy) if is_set => {
            let permit = if code == Some("NOPERM") { "permit the command to this user" } else { remedy };
            Finding::warning(subject, format!("{lost} ({told})")).with_remedy(permit)
        }
        _ => Finding::unknown(subject, format!("the answer says nothing definite: {told}")),
    }
}

/// Makes a finding of an error of this library.
pub(super) fn failed(subject: &'static str, error: &LockError) -> Finding {
    match error.kind() {
        LockErrorKind::Misconfigured => Finding::refused(subject, error.to_string()),
        _ => Finding::unknown(subject, error.to_string()),
    }
}

/// Returns an answer, unless it is an error.
pub(super) fn answer(value: Value) -> Result<Value, Failure> {
    value.extract_error().map_err(Failure::Refused)
}

/// Returns some answers, unless one is an error.
pub(super) fn all(values: Vec<Value>) -> Result<Vec<Value>, Failure> {
    values.into_iter().map(answer).collect()
}
