//! Makes a sentence of an error of the database: the server's own words, and what to do about them.

use lock_core::LockError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The statements by which an administrator makes the schema, or brings an older one up to date.
pub(crate) const RUN: &str =
    "the files of sql/ of the crate lock-postgres, in the order of their names and in one transaction";

/// Says what became of a command that failed, and what to do.
///
/// An error that the server answers undoes the statement, which was a transaction by itself. Where the connection or the session ends
/// instead, it may have been committed a moment before.
pub(crate) fn of_command(error: Error, schema: &str) -> LockError {
    let refused = match error.as_db_error() {
        None => LockError::unavailable(format!(
            "the connection to PostgreSQL ended before the answer came ({}); whether the command was executed is not known",
            cause(&error)
        )),
        Some(db) if db.routine().is_none() => of_pooler(db, true),
        Some(db) => refusal(db, schema).unwrap_or_else(|| {
            let (code, said) = (db.code().code(), said(db));
            match db.parsed_severity() {
                Some(Severity::Fatal | Severity::Panic) => LockError::unavailable(format!(
                    "PostgreSQL ended the session ({code}): {said}; whether the command was executed is not known"
                )),
                _ => LockError::not_executed(format!("PostgreSQL refused the command ({code}): {said}")),
            }
        }),
    };
    refused.with_source(error)
}

/// Returns the code that the server gave an error, if it was the server's.
fn code_of(error: &LockError) -> Option<&SqlState> {
    let source = std::error::Error::source(error)?;
    // An error may have been told more about, and is the source of that one then.
    source.downcast_ref::<LockError>().map_or_else(|| source.downcast_ref::<Error>()?.code(), code_of)
}

/// Returns whether the server takes no writes any more: another one may be the primary.
pub(crate) fn has_moved_away(error: &LockError) -> bool {
    has_code(error, "25006")
}

/// Returns whether the server refused a value that it was given: the same command with other values may succeed.
pub(crate) fn is_of_a_value(error: &LockError) -> bool {
    has_code(error, "22") || has_code(error, "23")
}

/// Returns whether one of several rows may be the reason: its value, a lock that it waited for, or a trigger that raised an error.
pub(crate) fn may_be_of_one(error: &LockError) -> bool {
    ["22", "23", "40", "55P03", "P0"].iter().any(|code| has_code(error, code))
}

/// Returns whether the server refused the command with a code that begins so.
pub(crate) fn has_code(error: &LockError, code: &str) -> bool {
    code_of(error).is_some_and(|found| found.code().starts_with(code))
}

/// Returns whether the tables of the locks are gone, and every lock with them: another process may make them again and grant anything.
pub(crate) fn is_gone(error: &LockError) -> bool {
    matches!(code_of(error), Some(code) if [SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_TABLE].contains(code))
}

/// Returns whether a prepared statement cannot be used any more: it was thrown away (`DISCARD ALL`), its name is another statement's, or a
/// function was made anew with another result. The server finds out before it executes anything.
pub(crate) fn is_not_prepared(error: &Error) -> bool {
    let codes = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::FEATURE_NOT_SUPPORTED, SqlState::PROTOCOL_VIOLATION];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Returns whether the server gave up waiting for a row, or another lock, that somebody else has.
pub(crate) fn is_blocked(error: &LockError) -> bool {
    has_code(error, "55P03")
}

/// Says why a host has no address.
pub(crate) fn of_address(error: std::io::Error, node: &str) -> LockError {
    LockError::not_executed(format!("there is no PostgreSQL at {node}: {error}")).with_source(error)
}

/// Says why a connection was not opened. `encrypted` tells whether TLS was used.
pub(crate) fn of_connecting(error: Error, node: &str, encrypted: bool) -> LockError {
    let refused = match error.as_db_error() {
        Some(db) if db.routine().is_none() => of_pooler(db, false),
        Some(db) => at_the_door(db, node, encrypted),
        None => of_driver(&cause(&error), node),
    };
    refused.with_source(error)
}

/// Says why the driver gave up.
fn of_driver(cause: &str, node: &str) -> LockError {
    match cause {
        _ if cause.contains("does not support TLS") => LockError::misconfigured(format!(
            "PostgreSQL at {node} has no TLS; set ssl = on there, or leave sslmode= out of the URL"
        )),
        "password missing" => LockError::misconfigured(format!(
            "PostgreSQL at {node} asks for a password, and there is none in the URL, in PGPASSWORD or in a password file (PGPASSFILE, \
             ~/.pgpass)"
        )),
        _ if cause.contains("channel binding") => LockError::misconfigured(format!(
            "PostgreSQL at {node} did not bind the login to its certificate, which channel_binding=require asks for ({cause}); that needs \
             a password of SCRAM-SHA-256 there, and a certificate signed by RSA (PKCS #1) or ECDSA; or leave channel_binding= out of the URL"
        )),
        _ if cause.starts_with("unsupported authentication") || cause.starts_with("unsupported SASL") => {
            LockError::misconfigured(format!(
                "PostgreSQL at {node} lets this user in by a way that this store has not ({cause}); use a password, or a client \
                 certificate, in its pg_hba.conf"
            ))
        }
        _ => LockError::not_executed(format!("there is no PostgreSQL at {node}: {cause}")),
    }
}

/// The innermost reason, which the driver hides behind a word.
fn cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The server's own words.
fn said(db: &DbError) -> String {
    // The hint about a function that is missing speaks of types, which is another mistake.
    let hint = db.hint().filter(|_| *db.code() != SqlState::UNDEFINED_FUNCTION);
    let more: Vec<&str> = db.detail().into_iter().chain(hint).map(|text| text.trim_end_matches('.')).collect();
    match more.is_empty() {
        true => db.message().to_owned(),
        false => format!("{} ({})", db.message(), more.join("; ")),
    }
}

/// Says why a server lets nobody in. The names of its functions are the same in every language.
fn at_the_door(db: &DbError, node: &str, encrypted: bool) -> LockError {
    let (code, said, routine) = (db.code().code(), said(db), db.routine().unwrap_or_default());
    let mend = |text: String| LockError::misconfigured(format!("PostgreSQL at {node} {text}"));
    match code {
        "28000" if said.contains("client certificate") => mend(format!(
            "refuses the user or the password: {said}; name a certificate and its key by sslcert=FILE&sslkey=FILE"
        )),
        "28000" if routine == "ClientAuthentication" && !encrypted => mend(format!(
            "lets nobody in without TLS, or not from this host: {said}; if its pg_hba.conf has a line hostssl for this user, add \
             sslmode=verify-full to the URL, with the cargo feature `tls` of lock-postgres, and otherwise add a line there"
        )),
        "28000" if routine == "ClientAuthentication" => mend(format!(
            "has no rule by which this user comes in from this host: {said}; add a line for user, database and host to its pg_hba.conf"
        )),
        "28P01" => mend(format!(
            "refuses the user or the password: {said}; check both in the URL, or the password in PGPASSWORD or the password file"
        )),
        "28000" => {
            mend(format!("refuses the user or the password: {said}; the user must exist there, and be one with LOGIN"))
        }
        "3D000" => mend(format!("has no such database: {said}; create it, or name another in the URL")),
        "42501" => mend(format!(
            "lets this user into no session: {said}; have an owner run GRANT CONNECT ON DATABASE <database> TO <user>"
        )),
        "53300" => no_connection(&said, routine),
        "57P03" => {
            LockError::not_executed(format!("PostgreSQL at {node} is not ready ({code}): {said}; try again later"))
        }
        _ => LockError::not_executed(format!("PostgreSQL at {node} lets nobody in ({code}): {said}")),
    }
}

/// Says which of the limits on connections was reached.
fn no_connection(said: &str, routine: &str) -> LockError {
    let (whose, remedy) = match routine {
        "InitializeSessionUserId" => ("for this user", "raise its limit with ALTER ROLE <user> CONNECTION LIMIT"),
        "CheckMyDatabase" => ("for this database", "raise its limit with ALTER DATABASE <database> CONNECTION LIMIT"),
        _ => ("", "raise max_connections"),
    };
    let whose = if whose.is_empty() { String::new() } else { format!(" {whose}") };
    LockError::not_executed(format!(
        "PostgreSQL takes no more connections{whose}: {said}; {remedy}, or put a pooler before it"
    ))
}

/// Says what a pooler, or another service before PostgreSQL, says by itself. It has no names of functions, and no language but one.
///
/// If a command was `sent`, it may have been executed although the pooler has ended the session, unless the pooler says that no session of
/// the server had it.
fn of_pooler(db: &DbError, sent: bool) -> LockError {
    let said = said(db);
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let mend = |advice: &str| LockError::misconfigured(refuses(db, &said, advice));
    let later = |advice: &str| LockError::not_executed(refuses(db, &said, advice));
    if says(&["query_wait_timeout"]) {
        return later(
            "no session of the server became free in time: look for transactions that stay open, or raise the size of the pool",
        );
    } else if says(&["server_login_retry", "cannot connect to server", "server login failed"]) {
        return later("it cannot reach PostgreSQL itself: look whether that runs, and whether it lets the pooler in");
    } else if says(&["no more connections allowed"]) {
        return later("raise max_client_conn of the pooler");
    } else if says(&["is disabled", "database removed"]) && !sent {
        return later("an administrator has disabled this database there: run ENABLE at the console of the pooler");
    } else if says(&["unsupported startup parameter"]) {
        return mend("leave options= out of the URL, or name it in ignore_startup_parameters of the pooler");
    } else if says(&["SSL required", "TLS required"]) {
        return mend("add sslmode=verify-full to the URL, with the cargo feature `tls` of lock-postgres");
    } else if says(&["no such user", "auth failed", "authentication failed"]) {
        return mend(
            "the pooler has a list of users and passwords of its own (auth_file, auth_query): check the user there",
        );
    } else if says(&["no such database", "bouncer config error"]) {
        return mend("the pooler has a list of databases of its own: check the database there");
    }
    let advice = if says(&["query timeout", "query_timeout"]) {
        "let its query_timeout be 10s or more, and look for what keeps the database busy"
    } else if says(&["server conn crashed", "server closed"]) {
        "its session of PostgreSQL has ended: look at the log of PostgreSQL"
    } else {
        "look at the log of the pooler"
    };
    match sent {
        true => LockError::unavailable(format!(
            "the pooler before PostgreSQL ended the session ({}): {said}; {advice}; whether the command was executed is not known",
            db.code().code()
        )),
        false => later(advice),
    }
}

fn refuses(db: &DbError, said: &str, advice: &str) -> String {
    format!("the pooler before PostgreSQL refuses ({}): {said}; {advice}", db.code().code())
}

/// Says why the server refuses a command for a reason that a person must mend, or that will pass. `None` for any other reason.
fn refusal(db: &DbError, schema: &str) -> Option<LockError> {
    let said = said(db);
    let mend = |text: String| Some(LockError::misconfigured(text));
    let later = |text: String| Some(LockError::not_executed(text));
    match db.code().code() {
        "42501" => mend(format!(
            "the user may not use the lock store: {said}; have its owner run GRANT USAGE ON SCHEMA {schema} TO <user>; GRANT EXECUTE ON \
             ALL FUNCTIONS IN SCHEMA {schema} TO <user>",
        )),
        "3F000" | "42P01" | "42883" => mend(format!(
            "the lock store is not installed as this version expects: {said}; connect once without migrate=never, as a user who may \
             create the schema {schema}, or run {RUN}",
        )),
        "LK003" => mend(said),
        "22021" | "22P05" => mend(format!("the database cannot write this name: {said}; let its encoding be UTF8")),
        "25006" => later(format!(
            "this server takes no writes ({said}), another may be the primary now; the next attempt connects anew"
        )),
        // No other words tell these two apart. Where they are of another language, both may be meant.
        "57014" if said.contains("user request") => later(format!(
            "PostgreSQL cancelled the command: {said}; an operator or a program did so (pg_cancel_backend)"
        )),
        "57014" => later(format!(
            "PostgreSQL cancelled the command: {said}; look for what keeps the database busy, and let statement_timeout of this user be 1s or more"
        )),
        "55P03" => later(format!(
            "PostgreSQL gave up waiting for a row: {said}; look in pg_stat_activity and pg_prepared_xacts for the transaction that keeps it \
             locked"
        )),
        "53100" | "53200" | "53400" => {
            later(format!("PostgreSQL has no room: {said}; the lock is not granted until it has"))
        }
        "53300" => Some(no_connection(&said, db.routine().unwrap_or_default())),
        _ => None,
    }
}
