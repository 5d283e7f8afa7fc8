//! Makes a sentence of a refusal of the API server, and says what is known after it.

use http::StatusCode;
use hyper_util::client::legacy::Error;
use kube::core::Status;
use lock_store::LockError;

/// A request, as an error text names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The verb of RBAC: `get`, `create`, `update`, `watch` or `list`.
    pub(crate) verb: &'static str,
    /// The name of the Lease. Empty for all Leases of a namespace.
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
}

impl std::fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, name, namespace } = self;
        if name.is_empty() {
            return write!(f, "{verb} leases.coordination.k8s.io in the namespace {namespace:?}");
        }
        write!(f, "{verb} leases.coordination.k8s.io {name:?} in the namespace {namespace:?}")
    }
}

/// Says what became of a request that the server refused with a status.
pub(crate) fn of_status(status: StatusCode, body: &[u8], asked: Asked<'_>) -> LockError {
    let text = message(body);
    let Asked { verb, namespace, .. } = asked;
    match status.as_u16() {
        401 => LockError::not_executed(format!(
            "the API server does not accept the credentials (401): {text}; the token or certificate may have expired, \
             and is read again for the next request"
        )),
        403 => LockError::misconfigured(format!(
            "the API server does not permit to {asked} (403): {text}; add the verb {verb} for the resource leases of the \
             group coordination.k8s.io to a Role in the namespace {namespace:?}, and bind it to this user"
        )),
        404 => LockError::misconfigured(format!(
            "the API server does not know the namespace {namespace:?} or the resource leases (404): {text}"
        )),
        409 | 412 => {
            LockError::not_executed(format!("another client has changed the Lease meanwhile ({status}): {text}"))
        }
        429 => LockError::not_executed(format!(
            "the API server has too many requests (429) and was asked to {asked}: {text}; see its flow schemas and priority levels"
        )),
        400 | 405 | 413 | 415 | 422 => {
            LockError::misconfigured(format!("the API server refuses to {asked} ({status}): {text}"))
        }
        _ => LockError::unavailable(format!(
            "the API server failed to {asked} ({status}): {text}; whether the request was executed is not known"
        )),
    }
}

/// Reads the sentence of a refusal.
fn message(body: &[u8]) -> String {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if !status.message.is_empty() => status.message,
        _ => String::from_utf8_lossy(body).trim().chars().take(200).collect(),
    }
}

/// Says what became of a request that has no answer.
pub(crate) fn of_transport(error: kube::Error, asked: Asked<'_>) -> LockError {
    let was_sent = match &error {
        kube::Error::Service(inner) => !inner.downcast_ref::<Error>().is_some_and(Error::is_connect),
        // It failed before it left this process.
        kube::Error::Auth(_) | kube::Error::HttpError(_) | kube::Error::InferConfig(_) => false,
        _ => true,
    };
    let why = chain(&error);
    let known = if was_sent {
        LockError::unavailable(format!(
            "the API server has not answered ({why}); whether it did {} is not known",
            asked.verb
        ))
    } else {
        LockError::not_executed(format!("the API server cannot be asked to {asked}: {why}"))
    };
    known.with_source(error)
}

/// Writes an error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use lock_store::LockErrorKind;

    use super::{Asked, of_status};

    #[test]
    fn a_refusal_says_what_to_do_and_a_failure_that_nothing_is_known() {
        let asked = Asked { verb: "update", name: "report", namespace: "jobs" };
        let of = |status: u16| of_status(StatusCode::from_u16(status).unwrap(), br#"{"message":"no","code":1}"#, asked);
        let forbidden = of(403);
        assert_eq!(forbidden.kind(), LockErrorKind::Misconfigured);
        for part in ["update", "\"report\"", "\"jobs\"", "coordination.k8s.io", ": no;"] {
            assert!(forbidden.to_string().contains(part), "{part} in {forbidden}");
        }
        assert_eq!([401, 409, 429].map(|status| of(status).is_ambiguous()), [false; 3], "these were not executed");
        assert_eq!([500, 503, 504].map(|status| of(status).is_ambiguous()), [true; 3], "these may have been");
        assert!(of(401).is_transient() && of(429).is_transient());
    }
}
