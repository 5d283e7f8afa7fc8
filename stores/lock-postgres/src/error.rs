//! What an error of the database says about a command, in a sentence.

use lock_core::LockError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// What an administrator runs to make the schema, or to bring an older one up to date.
pub(crate) const RUN: &str =
    "the files of sql/ of the crate lock-postgres, in the order of their names and in one transaction";

/// Says what became of a command that failed, and what to do.
///
/// An error that the server answers undoes the statement, which was a transaction by itself. Only where the connection ends
/// instead of an answer it is not known.
pub(crate) fn of_command(error: Error, schema: &str) -> LockError {
    let Some(db) = error.as_db_error() else {
        return LockError::unavailable(
            "the connection to PostgreSQL ended before the answer came; whether the command was executed is not known",
        )
        .with_source(error);
    };
    let (code, said) = (db.code().clone(), db.message().to_owned());
    refusal(&code, &said, schema)
        .unwrap_or_else(|| match code.code() {
            // The session is ended, perhaps after the commit and before its answer.
            code if code.starts_with("57P") => LockError::unavailable(format!(
                "PostgreSQL ended the session: {said}; whether the command was executed is not known"
            )),
            code => LockError::not_executed(format!("PostgreSQL refused the command ({code}): {said}")),
        })
        .with_source(error)
}

/// Returns whether the server takes no writes any more: another one may be the primary.
pub(crate) fn has_moved_away(error: &LockError) -> bool {
    has_code(error, "25006")
}

/// Returns whether the server refused a value that it was given: the same command with other values may succeed.
pub(crate) fn is_of_a_value(error: &LockError) -> bool {
    has_code(error, "22") || has_code(error, "23")
}

/// Returns whether the server refused the command with a code that begins so.
pub(crate) fn has_code(error: &LockError, code: &str) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    cause.and_then(Error::code).is_some_and(|found| found.code().starts_with(code))
}

/// Returns whether the server gave up waiting for a row, or another lock, that somebody else has.
pub(crate) fn is_blocked(error: &LockError) -> bool {
    has_code(error, "55P03")
}

/// Says why a host has no address.
pub(crate) fn of_address(error: std::io::Error, node: &str) -> LockError {
    LockError::not_executed(format!("there is no PostgreSQL at {node}: {error}")).with_source(error)
}

/// Says why there is no connection.
pub(crate) fn of_connecting(error: Error, node: &str) -> LockError {
    let text = match error.as_db_error() {
        Some(db) => match refusal(db.code(), db.message(), "the schema") {
            Some(refused) => return refused.with_source(error),
            None => format!("PostgreSQL at {node} lets nobody in ({}): {}", db.code().code(), db.message()),
        },
        None if cause(&error).contains("does not allow writes") => format!(
            "PostgreSQL at {node} is a standby, which grants no locks; name the primary in the URL, or both hosts, of which the one \
             that takes writes is used"
        ),
        None if cause(&error).contains("certificate") => {
            return LockError::misconfigured(format!(
                "PostgreSQL at {node} does not prove its name: {}; name the host for which its certificate is, and the authority that \
                 signed it by ?ca=FILE, or install that on this machine",
                cause(&error)
            ))
            .with_source(error);
        }
        None if cause(&error).contains("does not support TLS") => {
            return LockError::misconfigured(format!(
                "PostgreSQL at {node} has no TLS; set ssl = on there, or leave sslmode= out of the URL"
            ))
            .with_source(error);
        }
        None => format!("there is no PostgreSQL at {node}: {}", cause(&error)),
    };
    LockError::not_executed(text).with_source(error)
}

/// The innermost reason, which the driver hides behind a word.
fn cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// What the server refuses for a reason that a person must mend, or that will pass. `None` if it is neither.
fn refusal(code: &SqlState, said: &str, schema: &str) -> Option<LockError> {
    let mend = |text: String| Some(LockError::misconfigured(text));
    let later = |text: String| Some(LockError::not_executed(text));
    match code.code() {
        "28000" if said.contains("no encryption") => mend(format!(
            "PostgreSQL lets nobody in without TLS: {said}; add sslmode=verify-full to the URL, with the cargo feature `tls` of lock-postgres"
        )),
        "28P01" | "28000" => mend(format!("PostgreSQL refuses the user or the password: {said}")),
        "3D000" => mend(format!("there is no such database: {said}; create it, or name another in the URL")),
        "42501" => mend(format!(
            "the user may not use the lock store: {said}; have its owner run GRANT USAGE ON SCHEMA {schema} TO <user>; GRANT EXECUTE ON \
             ALL FUNCTIONS IN SCHEMA {schema} TO <user>",
        )),
        "3F000" | "42P01" | "42883" => mend(format!(
            "the lock store is not installed as this version expects: {said}; connect once without migrate=never, as a user who may \
             create the schema {schema}, or run {RUN}",
        )),
        "LK003" => mend(said.to_owned()),
        "22021" | "22P05" => mend(format!("the database cannot write this name: {said}; let its encoding be UTF8")),
        "25006" => later(
            "this server takes no writes, another may be the primary now; the next attempt connects anew".to_owned(),
        ),
        "57014" => later(format!(
            "PostgreSQL cancelled the command: {said}; look for what keeps the database busy, and let statement_timeout of this user be 1s or more"
        )),
        "55P03" => later(format!(
            "PostgreSQL gave up waiting for a row: {said}; look in pg_stat_activity for the transaction that keeps it locked"
        )),
        "53100" | "53200" | "53400" => {
            later(format!("PostgreSQL has no room: {said}; the lock is not granted until it has"))
        }
        "53300" => later(format!(
            "PostgreSQL takes no more connections: {said}; raise max_connections, or put a pooler before it"
        )),
        _ => None,
    }
}
