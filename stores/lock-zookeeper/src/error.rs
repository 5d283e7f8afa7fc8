//! Makes a sentence of an error of ZooKeeper, and says what is known after it.

use lock_store::{LockError, LockKey};
use zookeeper_client::Error;

/// The answer to a request.
pub(crate) type Answer<T, E = Error> = Result<T, E>;

/// Says what became of a request that failed.
///
/// The client fails every request in flight when its connection ends, and sends none of them again.
pub(crate) fn of_request(error: impl Into<Error>) -> LockError {
    let error = error.into();
    let text = error.to_string();
    let known = match &error {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => LockError::misconfigured(format!(
            "ZooKeeper refuses this user: {text}; every process needs the user and password with which the nodes of the locks were made, \
             as in zookeeper://user:password@host/path"
        )),
        Error::Unimplemented => LockError::misconfigured(format!(
            "the server does not know a request that the lock store needs: {text}; use Apache ZooKeeper 3.6 or later"
        )),
        Error::QuotaExceeded => LockError::not_executed(format!(
            "ZooKeeper has no room for another node: {text}; raise the quota at the path of the URL or above it, or remove nodes there"
        )),
        Error::Throttled | Error::NotReadOnly => {
            LockError::not_executed(format!("ZooKeeper refused the request: {text}; try again later"))
        }
        Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => LockError::unavailable(format!(
            "the session with ZooKeeper has ended ({text}), and its locks with it; whether the request was executed before is not known"
        )),
        _ => LockError::unavailable(format!(
            "ZooKeeper has not answered ({text}); whether the request was executed is not known"
        )),
    };
    known.with_source(error)
}

/// Says why no session was opened.
pub(crate) fn of_opening(error: Error, node: &str) -> LockError {
    match error {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl | Error::Unimplemented | Error::QuotaExceeded => {
            of_request(error)
        }
        _ => LockError::not_executed(format!("no session with ZooKeeper at {node}: {error}")).with_source(error),
    }
}

/// Says that a node has data that no lock store has written.
pub(crate) fn foreign(path: &str, key: &LockKey) -> LockError {
    LockError::misconfigured(format!(
        "the node {path} has data that no lock store has written; find out which program wrote it, and remove it"
    ))
    .with_key(key)
}
