//! The command that keeps running.

use std::time::Duration;

use lock_core::inspect::FleetReader;
use lock_core::{LockError, LockErrorKind, LockKey};
use serde_json::json;

use crate::args::Wanted;
use crate::end::{End, Failure, complain};
use crate::members::Seen;
use crate::output::{Look, Output};
use crate::screen::{self, Screen};
use crate::{listing, record};

const EVERY: Duration = Duration::from_secs(1);

/// Shows one lock of a fleet, or all of them, every second until Ctrl-C.
pub(crate) async fn watch(
    fleet: &FleetReader,
    key: Option<&LockKey>,
    wanted: &Wanted,
    out: &mut Output,
) -> Result<End, Failure> {
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut first = true;
    let _screen = (!out.is_json() && out.is_terminal()).then(Screen::enter);
    loop {
        let look = tokio::select! {
            _ = &mut stop => return Ok(End::Ok),
            look = look(fleet, key, wanted, out.is_json()) => look,
        };
        match look {
            Ok(Look::Json(document)) => out.record(&document)?,
            Ok(Look::Text(text)) => frame(&text, out)?,
            // When a server fails during `watch`, people still want to see when it comes back.
            Err(error) if !first && error.kind() == LockErrorKind::Unavailable => unavailable(&error, out)?,
            Err(error) => return Err(error.into()),
        }
        first = false;
        tokio::select! {
            _ = &mut stop => return Ok(End::Ok),
            () = pause() => {}
        }
    }
}

async fn look(fleet: &FleetReader, key: Option<&LockKey>, wanted: &Wanted, as_json: bool) -> Result<Look, LockError> {
    let Some(key) = key else {
        let listing = listing::list(fleet, wanted).await?;
        return Ok(if as_json {
            Look::Json(listing.json(fleet, wanted.owners))
        } else if listing.entries.is_empty() {
            Look::Text(listing.summary(fleet))
        } else {
            Look::Text(format!("{}\n{}", record::table(&listing.entries, wanted.owners), listing.summary(fleet)))
        });
    };
    let seen = Seen::read(fleet, key).await?;
    let holders = listing::shared_by(fleet, seen.held()).await?;
    let waiters = fleet.waiters(key).await?;
    if as_json {
        let mut document = seen.json(wanted.owners);
        if !holders.is_empty() {
            document["holders"] = record::holders_json(&holders, wanted.owners);
        }
        document["queue"] = waiters.iter().map(record::waiter_json).collect();
        return Ok(Look::Json(document));
    }
    let mut text = match (&seen.entry, seen.votes(None, wanted.owners)) {
        (_, Some(votes)) => votes,
        (Some(entry), None) => record::table(std::slice::from_ref(entry), wanted.owners),
        (None, None) => seen.summary(),
    };
    if !holders.is_empty() {
        text.push_str(&format!("\n\n{}", record::holders_table(&holders, wanted.owners)));
    }
    if !waiters.is_empty() {
        text.push_str(&format!("\n\n{}", record::waiters_table(&waiters)));
    }
    Ok(Look::Text(text))
}

/// Shows a snapshot in place of the one before, as much of it as the screen has room for. Without a screen, shows it below.
fn frame(text: &str, out: &mut Output) -> Result<(), Failure> {
    let shown = match out.size() {
        Some(size) => format!("\u{1b}[H{}\u{1b}[J", screen::frame(text, size)),
        None => format!("{text}\n"),
    };
    Ok(out.line(&shown)?)
}

fn unavailable(error: &LockError, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return Ok(out.record(&json!({ "error": error.to_string() }))?);
    }
    complain(&format!("{error}; trying again"));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this runtime belongs to the program")]
async fn pause() {
    tokio::time::sleep(EVERY).await;
}
