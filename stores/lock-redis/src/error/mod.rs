//! Decides the meaning of a failure of Redis: not executed, unknown, or a mistake that a retry cannot fix.

#[cfg(feature = "tls")]
mod tls;

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use redis::{ErrorKind, RedisError};

use crate::protocol::keys;
use crate::services;
use lock_store::types::error::{LockError, LockErrorKind};

/// Describes a failed attempt to connect. No command was sent, so none was executed.
pub(crate) fn connecting(node: &str, error: &RedisError) -> LockError {
    match error.kind() {
        ErrorKind::AuthenticationFailed => greeted(node, "WRONGPASS", ""),
        ErrorKind::InvalidClientConfig => LockError::misconfigured(format!(
            "cannot connect to {node}: {}; check the host and the TLS settings of its URL",
            error.detail().unwrap_or("the client refuses these settings"),
        )),
        ErrorKind::Parse if !is_cut_short(error) => LockError::misconfigured(format!(
            "cannot connect to {node}: it does not speak the Redis protocol{}; correct host and port of the URL",
            if is_http(error) { ", but as a web server" } else { "" },
        )),
        ErrorKind::RESP3NotSupported => LockError::misconfigured(format!(
            "cannot connect to {node}: it does not know HELLO; use Redis 6.2 or later",
        )),
        _ => match error.code() {
            Some(code) => greeted(node, code, error.detail().unwrap_or_default()),
            None => unanswered(node, error),
        },
    }
}

/// Describes a connection that the server did not get to answer over.
fn unanswered(node: &str, error: &RedisError) -> LockError {
    // The files of certificates, or the provider of credentials.
    if let Some(ours) = of_this_library(error) {
        let text = format!("cannot connect to {node}: {ours}");
        let is_mistake = ours.kind() == LockErrorKind::Misconfigured;
        let error = if is_mistake { LockError::misconfigured(text) } else { LockError::not_executed(text) };
        return error.with_source(ours.clone());
    }
    #[cfg(feature = "tls")]
    if let Some(advice) = tls::advice(error) {
        return LockError::misconfigured(format!("cannot connect to {node}: {error}; {advice}"));
    }
    LockError::not_executed(format!(
        "cannot connect to {node}: {error}; {}check that the server runs and that {} right",
        if is_hung_up(error) { HUNG_UP } else { "" },
        if node.starts_with('/') { "the path is" } else { "host and port are" },
    ))
}

/// The behaviour of a service that does not know the first command.
const HUNG_UP: &str = "the server there ended the connection at the greeting: it may be another service, take TLS \
    only (rediss://), ask for a client certificate, or have no connection left (maxclients); ";

fn is_hung_up(error: &RedisError) -> bool {
    matches!(
        of_system(error).map(io::Error::kind),
        Some(io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
    )
}

/// Returns whether an answer cannot be read because the connection ended in the middle of it, as any may.
fn is_cut_short(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// Returns whether an answer that cannot be read begins as one of a web server: with HTTP, or with `<`.
fn is_http(error: &RedisError) -> bool {
    let text = error.to_string();
    [b'H', b'<']
        .iter()
        .any(|first| text.contains(&format!("`{first}`")) || text.contains(&format!("`{}`", char::from(*first))))
}

/// Returns what the provider of credentials failed with, or the files of certificates.
fn of_this_library(error: &RedisError) -> Option<&LockError> {
    of_system(error)?.get_ref()?.downcast_ref()
}

/// Returns the error of input and output.
fn of_system(error: &RedisError) -> Option<&io::Error> {
    // The client shares what it was given.
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// Describes a command that failed.
pub(crate) fn executing(node: &str, op: &str, error: &RedisError) -> LockError {
    match error.code() {
        Some(code) => refused(node, op, code, error.detail().unwrap_or_default()),
        None => LockError::unavailable(format!(
            "the connection to {node} broke before it answered the {op}: {error}; \
             it may or may not have been executed, repeat it with the same claim",
        )),
    }
}

/// Describes an error whose text a script returned as its answer.
pub(crate) fn answered(node: &str, op: &str, text: &str) -> LockError {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    refused(node, op, code, detail)
}

/// Describes a server that would not run what renews a lock and gives it back. No lock is taken there.
pub(crate) fn unreleasable(node: &str, why: &str) -> LockError {
    let advice = services::advice(why).unwrap_or(if why.to_ascii_lowercase().contains("unknown") {
        "the command is renamed or disabled there (rename-command), or the service has no scripts; enable it"
    } else {
        "the user may not do that; docs/operations.md#permissions lists what it needs"
    });
    LockError::misconfigured(format!("{node} would not let locks be released, so none is taken: {advice} ({why})"))
}

/// Describes an answer that cannot be read.
pub(crate) fn unreadable(node: &str, op: &str) -> LockError {
    LockError::unavailable(format!(
        "{node} gave an answer to the {op} that cannot be read; check that it is Redis 6.2 or later and that nothing \
         between rewrites the traffic",
    ))
}

/// Describes a key that holds something other than a lock, or a clock key that holds no clock.
pub(crate) fn mistyped(name: &str) -> LockError {
    let advice = if keys::is_reserved(name) {
        "delete it, and find out who writes to it"
    } else {
        "it belongs to another program; choose another key"
    };
    LockError::misconfigured(format!(
        "the Redis key {name:?} holds another type than this library writes there, so no lock can be taken; {advice}",
    ))
    .with_source(WrongType)
}

/// Describes a clock from which no token can be drawn. Nothing is taken.
pub(crate) fn no_clock(node: &str, error: &RedisError) -> LockError {
    match error.code() {
        Some("WRONGTYPE") => mistyped(keys::CLOCK),
        _ => executing(node, "draw a fencing token", error),
    }
}

/// The meaning of an error code for the command, and the advice.
#[derive(Clone, Copy)]
enum Meaning {
    /// Refused before anything was done. Trying later may help.
    NotExecuted(&'static str),
    /// Trying later does not help.
    Misconfigured(&'static str),
}

const FORBIDDEN: Meaning =
    Meaning::Misconfigured("the user may not do that; docs/operations.md#permissions lists what it needs");

const NOT_HERE: &str = "the slot is not, or not wholly, at this node; try again when it has been moved";

/// Every code that says something definite. Any other code means *unknown*.
const CODES: &[(&str, Meaning)] = &[
    ("LOADING", Meaning::NotExecuted("it is loading its data; wait until it has started")),
    ("READONLY", Meaning::NotExecuted("it is a replica; connect to the master, or wait for the failover to end")),
    ("MISCONF", Meaning::NotExecuted("it cannot save its data and refuses writes; see its log and its disk")),
    ("OOM", Meaning::NotExecuted("its memory is full; raise maxmemory or remove data")),
    ("NOREPLICAS", Meaning::NotExecuted("too few replicas are connected; see min-replicas-to-write")),
    ("CLUSTERDOWN", Meaning::NotExecuted("the cluster is down; wait until every slot is served")),
    ("TRYAGAIN", Meaning::NotExecuted("the slot is being moved; try again")),
    ("MOVED", Meaning::NotExecuted("another node of the cluster serves this key; try again when the nodes agree")),
    ("ASK", Meaning::NotExecuted("another node of the cluster is taking over the key's slot; try again later")),
    ("CLEARING", Meaning::NotExecuted("very many leases of this lock have ended and are being removed; try again")),
    ("BUSY", Meaning::NotExecuted("it is busy running a script; stop it with SCRIPT KILL")),
    ("MASTERDOWN", Meaning::NotExecuted("it is a replica without its master; wait for the failover to end")),
    (
        "WRONGTYPE",
        Meaning::Misconfigured(
            "one of the keys of the lock, or the clock, holds another type than this library writes there; TYPE \
             shows which; if the user may use TYPE, this error names it",
        ),
    ),
    ("NOPERM", FORBIDDEN),
    ("NOAUTH", Meaning::Misconfigured("it asks for a password; put it into the URL, as in redis://:password@host")),
    ("WRONGPASS", Meaning::Misconfigured("user or password is wrong; correct them in the URL, percent-encoded")),
    ("DENIED", Meaning::Misconfigured("it runs in protected mode; set a password, or bind it to this network")),
    ("NOPROTO", Meaning::Misconfigured("it does not speak RESP3; use Redis 6.2 or later")),
    (
        "CROSSSLOT",
        Meaning::Misconfigured("the keys lie in different slots of a cluster; write redis+cluster:// in the URL"),
    ),
];

/// The same for errors that only have the general code, by what their text contains.
const TEXTS: &[(&str, Meaning)] = &[
    ("max number of clients", Meaning::NotExecuted("it has no connection left; raise maxclients")),
    // A master that does not serve the slot says it of a script, and some services say it instead of MOVED.
    ("non local key", Meaning::NotExecuted(NOT_HERE)),
    ("do not hash to the same slot", Meaning::NotExecuted(NOT_HERE)),
    ("user executing the script can't", FORBIDDEN),
    // The same from 7.2 on, and in Valkey.
    ("ACL failure in script", FORBIDDEN),
    ("DB index", Meaning::Misconfigured("it has no such database; correct the number at the end of the URL")),
    ("invalid DB", Meaning::Misconfigured("it has no such database; correct the number at the end of the URL")),
    (
        "SELECT is not allowed",
        Meaning::Misconfigured("this cluster has only database 0; remove the number from the URL"),
    ),
    ("without any password", Meaning::Misconfigured("it has no password; remove the one in the URL")),
    ("no password is set", Meaning::Misconfigured("it has no password; remove the one in the URL")),
    ("invalid client certificate", Meaning::Misconfigured("it does not accept the client's certificate; renew it")),
    ("protocol version", Meaning::Misconfigured("it does not speak RESP3; use Redis 6.2 or later")),
];

fn refused(node: &str, op: &str, code: &str, detail: &str) -> LockError {
    known(node, op, code, detail).unwrap_or_else(|| {
        LockError::unavailable(format!(
            "{node} answered the {op} with an error that says nothing definite: {code} {detail}; \
             it may or may not have been executed, repeat it with the same claim",
        ))
    })
}

/// The same while connecting, when nothing was executed.
fn greeted(node: &str, code: &str, detail: &str) -> LockError {
    known(node, "connect", code, detail).unwrap_or_else(|| {
        let told = quoted(code.trim_end_matches(':'), detail);
        LockError::not_executed(format!("{node} refused to connect: {told}; the server says so, or a proxy before it"))
    })
}

/// Takes the password out of what a server says about a log-in: it may repeat what it does not understand.
pub(crate) fn without(error: RedisError, password: Option<&str>) -> RedisError {
    let Some((password, code)) = password.filter(|password| !password.is_empty()).zip(error.code()) else {
        return error;
    };
    let detail = error.detail().unwrap_or_default();
    if !code.contains(password) && !detail.contains(password) {
        return error;
    }
    let hide = |text: &str| text.replace(password, "…");
    redis::make_extension_error(hide(code), Some(hide(detail)))
}

fn known(node: &str, op: &str, code: &str, detail: &str) -> Option<LockError> {
    let (name, meaning) = meaning(code, detail)?;
    // The server does not say which key it was.
    let patterns = if detail.contains("one of the keys") {
        ", among them the patterns of keys, such as ~lock:* ~{lock:*"
    } else {
        ""
    };
    let told = quoted(name, detail);
    let text = |advice: &str| format!("{node} refused to {op}: {advice}{patterns} ({told})");
    Some(match meaning {
        Meaning::NotExecuted(advice) => LockError::not_executed(text(advice)),
        Meaning::Misconfigured(advice) => {
            let error = LockError::misconfigured(text(advice));
            if name == "WRONGTYPE" { error.with_source(WrongType) } else { error }
        }
    })
}

/// Quotes an error of the server: its own words, without what they repeat of a command, and without the script.
fn quoted(code: &str, detail: &str) -> String {
    let end = [", with args", " script: ", ", on @user"].iter().filter_map(|part| detail.find(part)).min();
    let words = detail[..end.unwrap_or(detail.len())].trim_end_matches(['.', ' ']);
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_WORDS).collect();
    if words.is_empty() { code.to_owned() } else { format!("{code}: {words}") }
}

/// How many characters of an error of the server are told.
const MOST_WORDS: usize = 300;

/// Returns the code of an error that says something definite. A script may have put it into the text.
pub(crate) fn code_of(code: &str, detail: &str) -> Option<&'static str> {
    meaning(code, detail).map(|(name, _)| name)
}

/// Reads an error of a server: its code, if it is definite; whether a retry cannot help; the advice; and its words.
#[cfg(feature = "inspect")]
pub(crate) fn read(error: &RedisError) -> (Option<&'static str>, bool, &'static str, String) {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    let told = quoted(code, detail);
    match meaning(code, detail) {
        Some((name, Meaning::Misconfigured(advice))) => (Some(name), true, advice, told),
        Some((name, Meaning::NotExecuted(advice))) => (Some(name), false, advice, told),
        None => (None, false, "", told),
    }
}

/// Returns whether an error says that the server is not a master.
pub(crate) fn is_of_replica(text: &str) -> bool {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    meaning(code, detail).is_some_and(|(name, _)| matches!(name, "READONLY" | "MASTERDOWN"))
}

/// Looks the code up. If a script raised the error, looks inside the text too, because servers
/// before 7 then put the line of the script first and the code behind it.
fn meaning(code: &str, detail: &str) -> Option<(&'static str, Meaning)> {
    let lookup = |word: &str| CODES.iter().find(|(name, _)| *name == word).map(|(name, meaning)| (*name, *meaning));
    if let Some(found) = lookup(code) {
        return Some(found);
    }
    if code.starts_with('@') || detail.contains("script") {
        let words = detail.split_whitespace().map(|word| word.trim_start_matches('-'));
        if let Some(found) = words.filter_map(lookup).next() {
            return Some(found);
        }
    }
    let service = services::advice(detail).or_else(|| services::missing(detail)).map(Meaning::Misconfigured);
    let known = || TEXTS.iter().find(|(part, _)| detail.contains(part)).map(|(_, meaning)| *meaning);
    service.or_else(known).map(|meaning| ("ERR", meaning))
}

/// Marks an error of the server that says no more than that some key is of another type.
#[derive(Debug)]
pub(crate) struct WrongType;

impl WrongType {
    pub(crate) fn is_of(error: &LockError) -> bool {
        error.source().is_some_and(<dyn Error>::is::<Self>)
    }
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WRONGTYPE")
    }
}

impl Error for WrongType {}

#[cfg(test)]
mod tests;
