//! The settings of this user's sessions: time-outs, isolation, how durable a commit is.

use lock_store::Finding;

use crate::doctor::facts::Facts;
use crate::url::Settings;

/// The limits that end a call, and how short they may be, ms: a call takes milliseconds, but a disk can stall.
const CALLS: [&str; 3] = ["statement_timeout", "lock_timeout", "transaction_timeout"];
const CALL: i64 = 1000;

pub(super) fn times(facts: &Facts) -> Vec<Finding> {
    // A server that does not know one has no such limit.
    let calls = CALLS.into_iter().filter_map(|name| Some(call(facts, name, facts.number(name)?)));
    let idle = ["idle_in_transaction_session_timeout", "idle_session_timeout"];
    let [pinned, listening] = idle.map(|name| (name, facts.number(name)));
    calls
        .chain(pinned.1.map(|ms| transaction(facts, pinned.0, ms)))
        .chain(listening.1.map(|ms| session(listening.0, ms)))
        .collect()
}

/// Sessions of the store set two of these for themselves. Behind a pooler they cannot, and the functions set the second.
fn call(facts: &Facts, name: &'static str, ms: i64) -> Finding {
    let own = match name {
        "statement_timeout" if !facts.pooled => Some("a call of the store ends after 8 s"),
        "lock_timeout" => Some("a call of the store waits for a row for 1 s"),
        _ => None,
    };
    match (own, ms) {
        (Some(own), 0) if name == "lock_timeout" => Finding::works(
            name,
            format!("none for this user's own transactions, in which a pin waits until the one before it ends; {own}"),
        ),
        (Some(own), 0) => Finding::works(name, format!("none for this user's own transactions; {own}")),
        (Some(own), _) => Finding::works(name, format!("{ms} ms for this user's own transactions; {own}")),
        (None, 0) if name == "statement_timeout" => {
            let says = "none: through a pooler no call can set its own, so one that was given up goes on in its session of the server";
            Finding::warning(name, says).with_remedy(facts.set(name, "'8s'"))
        }
        (None, 0) => Finding::works(name, "none; a call waits for its answer for 10 s at most"),
        (None, ..CALL) => {
            let says = format!("{ms} ms: when a disk stalls for as long, calls are cancelled and locks refused");
            Finding::warning(name, says).with_remedy(facts.set(name, "'1s'"))
        }
        (None, _) => Finding::works(name, format!("{ms} ms, and a call takes a few")),
    }
}

fn transaction(facts: &Facts, name: &'static str, ms: i64) -> Finding {
    match ms {
        0 => {
            let says = "none: a transaction that has pinned a lock and stands idle keeps it for ever";
            Finding::warning(name, says).with_remedy(facts.set(name, "'60s'"))
        }
        _ => Finding::works(name, format!("{ms} ms, after which a pin ends that stands idle")),
    }
}

fn session(name: &'static str, ms: i64) -> Finding {
    match ms {
        0 => Finding::works(name, "none"),
        _ => Finding::works(name, format!("{ms} ms for this user's own sessions; those of the store have none")),
    }
}

pub(super) fn isolation(facts: &Facts) -> Finding {
    const NAME: &str = "default_transaction_isolation";
    match facts.setting(NAME) {
        Some("read committed") => Finding::works(NAME, "read committed"),
        Some(level) if facts.pooled => {
            let says = format!(
                "{level}: the calls need read committed, and what is set behind a pooler would stay with others"
            );
            Finding::refused(NAME, says).with_remedy(facts.set(NAME, "'read committed'"))
        }
        Some(level) => Finding::works(NAME, format!("{level}; sessions of the store set theirs to read committed")),
        None => Finding::unknown(NAME, "the server does not tell it"),
    }
}

pub(super) fn commit(settings: &Settings, facts: &Facts) -> Finding {
    const NAME: &str = "synchronous_commit";
    if facts.setting("fsync") == Some("off") {
        let says = "fsync is off: what was committed, locks and data, may be gone after a crash of the machine";
        return Finding::warning(NAME, says).with_remedy("fsync = on");
    }
    // The functions set it for themselves; what the user's sessions have is for the user's own transactions.
    let theirs = facts.setting(NAME).unwrap_or("not told");
    match settings.commit {
        "off" => {
            let says = "off, by commit=off in the URL: a crash of the server forgets locks whose holders go on";
            Finding::warning(NAME, says).with_remedy("leave commit= out of the URL")
        }
        ours => {
            Finding::works(NAME, format!("{ours} for grants and renewals; {theirs} for this user's own transactions"))
        }
    }
}
