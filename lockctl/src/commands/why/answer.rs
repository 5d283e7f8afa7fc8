//! Puts the findings into words, and into JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::inspect::{EntryState, LockEntry};
use serde_json::{Value, json};

use crate::commands::why::blocked;
use crate::commands::why::findings::{Callers, Findings, Life};
use crate::commands::why::view::View;
use crate::commands::why::votes::Votes;
use crate::end::End;
use crate::listing::job;
use crate::output::Table;
use crate::record::{self, free_json, release_command};
use lock_core::store::text::{human, visible};

pub(crate) fn text(key: &LockKey, found: &Findings) -> String {
    let mut table = Table::new(&["", "", ""]);
    let mut line = |name: &str, value: String| table.row([String::new(), name.to_owned(), value]);
    if let Some(entry) = &found.stored.entry {
        if entry.state == EntryState::Held {
            line("process", process(found));
            if let Some(trace) = found.hold().and_then(|hold| hold.trace.clone()) {
                line("trace", trace);
            }
        }
        line("lease", lease(entry));
        if let Some(pin) = &entry.holder.kept_by {
            line("pinned", format!("by {pin}"));
        }
    }
    for text in found.stored.votes.iter().flat_map(Votes::members) {
        line("member", text);
    }
    if let Some(votes) = &found.stored.votes {
        line("grants", votes.grants());
    }
    for text in found.stored.votes.iter().flat_map(|votes| votes.seen.strays()) {
        line("beware", text);
    }
    for text in blocked::lines(key, &found.stored.blocked) {
        line("blocked", text);
    }
    if let Some(job) = &found.stored.job {
        line("job", job::sentence(job));
    }
    for view in found.strangers() {
        line("beware", stranger(view, found.stored.entry.as_ref()));
    }
    let callers = found.callers();
    line("waiting", waiting(&callers, found));
    if let Some(entry) = &found.stored.entry {
        line("force", force(entry, found));
        if let Some(command) = release_command(entry) {
            line("", command);
        }
    }
    for (address, why) in &found.unread {
        line("unread", format!("{address}: {why}"));
    }
    // The first line of the table is that of its headings, which are empty.
    let headline = match &found.stored.votes {
        None => visible(&headline(key, found)),
        Some(votes) => match votes.seen.held() {
            Some(_) => visible(&headline(key, found)) + &votes.seen.at(),
            None => votes.seen.summary(),
        },
    };
    headline + &table.render()
}

fn headline(key: &LockKey, found: &Findings) -> String {
    let Some(entry) = &found.stored.entry else { return format!("{key} is free") };
    let lasted = entry.held_for.map(|age| format!(" for {}", human(age))).unwrap_or_default();
    match (entry.state, &entry.holder.info) {
        (EntryState::Held, Some(info)) => {
            // Its process knows better which of its callers has the lease now.
            let site = found.hold().map_or(&*info.site, |hold| &hold.site);
            match entry.is_only_pinned() {
                true => format!(
                    "{key} is pinned by a transaction; its lease has ended, of {site}, {}",
                    record::process(info)
                ),
                false => format!("{key} is held{lasted} by {site}, {}", record::process(info)),
            }
        }
        (EntryState::Shared, _) => {
            let holders = entry.units.unwrap_or_default();
            format!("{key} is shared{lasted}: {holders} readers or permits; `lockctl show` lists who has them")
        }
        (EntryState::Kept, _) if entry.is_only_pinned() => {
            format!("{key} was released, and stays taken until the transaction that has pinned it ends")
        }
        (EntryState::Kept, _) => format!("{key} was released, and stays taken for the rest of its min_hold"),
        _ => format!("{key} is held by a client of another library, which leaves no name"),
    }
}

fn process(found: &Findings) -> String {
    let entry = found.stored.entry.as_ref();
    let ago = entry.and_then(LockEntry::renewed_ago).map(human).unwrap_or_default();
    let mut text = match found.life() {
        Life::Shown => {
            let stuck = found.hold().and_then(|hold| hold.stuck_for);
            let stuck = stuck.map(|time| format!(", stuck for {}", human(time))).unwrap_or_default();
            format!("alive: its live view has the hold{stuck}")
        }
        Life::LetGo => {
            "its live view answers, but does not show the hold: it released the lock, or restarted with the same \
             pid"
            .to_owned()
        }
        Life::Leased => {
            "none: this is a lease, and its holder renews and releases it by name, from any process".to_owned()
        }
        Life::Renews => format!("seems alive: its lease was renewed {ago} ago; its live view would show what it does"),
        Life::Overdue => format!(
            "dead, hanging or cut off: its lease was last renewed {ago} ago, which should happen every third of it \
             (unless it asked for no renewal)"
        ),
        Life::Unknown if entry.is_some_and(LockEntry::is_only_pinned) => {
            "its lease has ended: it holds the lock no longer, and its transaction does".to_owned()
        }
        Life::Unknown => "unknown whether it is alive; look at its live view or at its host".to_owned(),
    };
    match found.skew() {
        None => {}
        Some(0.0) => text.push_str("; its clock agrees with the store's"),
        Some(ahead) => {
            let way = if ahead > 0.0 { "ahead of" } else { "behind" };
            let apart = human(Duration::from_secs_f64(ahead.abs()));
            text.push_str(&format!("; its clock is {apart} {way} the store's, so that times in its log are off"));
        }
    }
    text
}

fn lease(entry: &LockEntry) -> String {
    if entry.is_only_pinned() {
        return "ended; nobody else is granted the lock while it is pinned".to_owned();
    }
    if entry.is_without_ttl() {
        return "none: this key never expires".to_owned();
    }
    match (entry.ttl, entry.renewed_ago()) {
        (Some(ttl), Some(ago)) => {
            format!("{} left of {}, renewed {} ago", record::lease_left(entry), human(ttl), human(ago))
        }
        _ => format!("{} left", record::lease_left(entry)),
    }
}

fn stranger(view: &View, entry: Option<&LockEntry>) -> String {
    let stored = if entry.is_some() { "another holder" } else { "it free" };
    format!(
        "pid {} on {} also believes to hold it, while the store has {stored}: it stops within its lease",
        view.pid,
        view.host.as_deref().unwrap_or("?")
    )
}

fn waiting(callers: &Callers, found: &Findings) -> String {
    let least = if callers.at_least { "at least " } else { "" };
    let sites: Vec<String> =
        callers.sites.iter().map(|(site, (count, hosts))| format!("{count} at {site} on {}", named(hosts))).collect();
    match callers.total {
        0 if found.stored.votes.is_some() => {
            let read = if found.views.is_empty() { "" } else { "none in the views that were read; " };
            format!("{read}a quorum keeps no queue: its waiters poll, and only views show them (--live-view)")
        }
        0 if callers.at_least => "none in the store's queue; views that were not read may show callers".to_owned(),
        0 => "none in the store's queue or in the views that were read; callers that poll are seen only in views"
            .to_owned(),
        1 => format!("{least}1 caller: {}, for {}", sites.join(", "), human(callers.longest)),
        total => format!("{least}{total} callers: {}; the longest for {}", sites.join(", "), human(callers.longest)),
    }
}

/// Names a few hosts, and counts the others.
fn named(hosts: &BTreeSet<String>) -> String {
    let mut names: Vec<&str> = hosts.iter().map(String::as_str).take(3).collect();
    let more = format!("{} more", hosts.len().saturating_sub(3));
    if hosts.len() > 3 {
        names.push(&more);
    }
    names.join(" and ")
}

fn force(entry: &LockEntry, found: &Findings) -> String {
    let token = found.hold().map(|hold| format!(" (its token is {})", hold.token)).unwrap_or_default();
    let free = format!("it is free by itself in {}", record::lease_left(entry));
    if found.stored.votes.as_ref().is_some_and(|votes| votes.seen.end() == End::Unavailable) {
        return "not before more members answer: nobody can tell whether it is held, and none is granted".to_owned();
    }
    if let Some(pin) = &entry.holder.kept_by {
        return format!("`lockctl release` does not free it while it is pinned by {pin}");
    }
    match (entry.state, found.life()) {
        (EntryState::Shared, _) => {
            format!("one holder at a time, with the owner that `lockctl show` prints; {free} if nobody renews it")
        }
        (EntryState::Kept, _) => "nobody works under it; if it must go before its time, delete the key".to_owned(),
        (EntryState::Foreign, _) => "only if its client is gone: it is not told, and has no fencing token".to_owned(),
        (_, Life::Shown) if found.hold().is_some_and(|hold| hold.fenced) => format!(
            "safe: its writes are fenced, since its process checks the tokens of this lock{token}; it is told, and stops"
        ),
        (_, Life::Shown | Life::Renews) => {
            format!("safe only if all that it writes to checks fencing tokens{token}; its process is told, and stops")
        }
        (_, Life::Leased) => {
            format!("only after you have asked its holder, who gets no message; {free} unless it is renewed")
        }
        (_, Life::LetGo) => format!("safe: the process that took it no longer works under it; {free}"),
        _ if entry.is_without_ttl() => {
            "safe if its process is gone, or all that it writes to checks fencing tokens".to_owned()
        }
        _ => format!(
            "hardly worth it: {free}, unless it is renewed; safe if its process is gone or its writes are fenced"
        ),
    }
}

pub(crate) fn json(key: &LockKey, found: &Findings) -> Value {
    let mut document = found.stored.entry.as_ref().map_or_else(|| free_json(key), |entry| record::json(entry, true));
    let callers = found.callers();
    let sites =
        callers.sites.iter().map(|(site, (count, hosts))| json!({ "site": site, "callers": count, "hosts": hosts }));
    document["waiting"] = json!({
        "callers": callers.total,
        "at_least": callers.at_least,
        "longest_seconds": callers.longest.as_secs_f64(),
        "sites": sites.collect::<Vec<_>>(),
    });
    if let Some(entry) = &found.stored.entry {
        let hold = found.hold();
        document["process"] = json!({
            "life": found.life().as_str(),
            "renewed_seconds_ago": entry.renewed_ago().map(|ago| ago.as_secs_f64()),
            "clock_ahead_seconds": found.skew(),
            "site": hold.map(|hold| &hold.site),
            "held_for_seconds": hold.map(|hold| hold.age.as_secs_f64()),
            "stuck_for_seconds": hold.and_then(|hold| hold.stuck_for).map(|time| time.as_secs_f64()),
            "token": hold.map(|hold| &hold.token),
            "fenced": hold.map(|hold| hold.fenced),
            "trace": hold.and_then(|hold| hold.trace.as_ref()),
        });
        document["force"] = json!({ "advice": force(entry, found), "command": release_command(entry) });
    }
    if let Some(votes) = &found.stored.votes {
        votes.add_to(&mut document);
    }
    blocked::add_to(&mut document, &found.stored.blocked);
    document["job"] = found.stored.job.as_ref().map(job::json).into();
    let strangers: Vec<Value> =
        found.strangers().iter().map(|view| json!({ "host": view.host, "pid": view.pid })).collect();
    document["also_believe_to_hold"] = json!(strangers);
    let read = found.views.iter().map(|view| json!({ "address": view.address, "host": view.host, "pid": view.pid }));
    let unread = found.unread.iter().map(|(address, why)| json!({ "address": address, "error": why }));
    document["views"] = read.chain(unread).collect();
    document
}
