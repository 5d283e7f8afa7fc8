//! The command that tells who blocked whom on which key: waits that are over, as live views remember them.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_core::inspect::FleetReader;
use lock_core::store::text::human;
use serde_json::{Value, json};

use crate::args::Scope;
use crate::args::address::Address;
use crate::commands::why::{addresses, view};
use crate::end::{End, Failure, complain};
use crate::output::{Output, Table};
use crate::{listing, record};

/// The waits that one process remembers.
struct Seen {
    host: Option<String>,
    pid: u64,
    waits: Vec<Value>,
}

/// Asks every live view. The store is asked only for the hosts of those who have locks now, where an address wants them.
pub(crate) async fn contention(
    fleet: &FleetReader,
    views: &[Address],
    scope: &Scope,
    out: &mut Output,
) -> Result<End, Failure> {
    let is_asked = views.iter().any(Address::is_for_each_host);
    let found = if is_asked { listing::scan(fleet, scope).await?.entries } else { Vec::new() };
    let infos: Vec<_> = found.iter().filter_map(|entry| entry.holder.info.as_ref()).collect();
    let ask = |address: String| async move {
        view::document(&address).await.and_then(|document| read(&document).ok_or_else(view::no_view))
    };
    let (mut seen, unread) = view::each(addresses(views, &infos), ask).await;
    for (address, why) in &unread {
        complain(&format!("{address} was not read: {why}"));
    }
    // Two addresses may lead to one process.
    let mut known = BTreeSet::new();
    seen.retain(|view| known.insert((view.host.clone(), view.pid)));
    let mut waits: Vec<Value> = seen.into_iter().flat_map(named).collect();
    waits.retain(|wait| scope.prefix.as_ref().is_none_or(|prefix| text(&wait["key"]).starts_with(prefix.as_str())));
    waits.sort_by(|one, two| ago(one).total_cmp(&ago(two)));
    if out.is_json() {
        let unread: Vec<Value> =
            unread.iter().map(|(address, why)| json!({ "address": address, "why": why })).collect();
        out.document(&json!({ "contention": waits, "unread": unread }))?;
    } else if waits.is_empty() {
        out.line(if unread.is_empty() { "no wait of 10 ms or more is remembered" } else { "nothing is known" })?;
    } else {
        out.line(&table(&waits))?;
    }
    Ok(if unread.is_empty() { End::Ok } else { End::Unavailable })
}

fn read(document: &Value) -> Option<Seen> {
    Some(Seen {
        host: document["process"]["host"].as_str().map(str::to_owned),
        pid: document["process"]["pid"].as_u64()?,
        waits: document["contention"].as_array()?.clone(),
    })
}

/// Says of each wait in which process it was.
fn named(Seen { host, pid, waits }: Seen) -> impl Iterator<Item = Value> {
    waits.into_iter().map(move |mut wait| {
        wait["process"] = json!({ "host": host, "pid": pid });
        wait
    })
}

fn table(waits: &[Value]) -> String {
    let heads = ["KEY", "WAITED", "IN", "FOR", "HELD IN", "TIMES", "TOGETHER", "LONGEST", "LAST", "ENDED"];
    let mut table = Table::new(&heads);
    for wait in waits {
        let holder = &wait["holder"];
        table.row([
            text(&wait["key"]).to_owned(),
            text(&wait["site"]).to_owned(),
            process(&wait["process"]),
            text(&holder["site"]).to_owned(),
            process(holder),
            wait["waits"].to_string(),
            time(&wait["waited_seconds"]),
            time(&wait["longest_seconds"]),
            format!("{} ago", time(&wait["last_seconds_ago"])),
            text(&wait["outcome"]).to_owned(),
        ]);
    }
    table.render()
}

fn process(of: &Value) -> String {
    match (of["pid"].as_u64(), of["host"].as_str()) {
        (Some(pid), Some(host)) => format!("pid {pid} on {host}"),
        (Some(pid), None) => format!("pid {pid}"),
        _ => record::NOTHING.to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or(record::NOTHING)
}

fn time(value: &Value) -> String {
    let time = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map_or(record::NOTHING.to_owned(), human)
}

fn ago(wait: &Value) -> f64 {
    wait["last_seconds_ago"].as_f64().unwrap_or(f64::MAX)
}
