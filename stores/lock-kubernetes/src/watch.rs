//! Watches the Leases of the namespace, with one request for the whole process, and wakes waiters.
//!
//! The watch is a hint. A waiter that hears nothing asks by itself, and no lock is taken by what the watch says alone.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::core::WatchEvent;
use lock_store::thread::{sleep, within};
use lock_store::types::system::backoff::Backoff;
use lock_store::types::system::clock::jitter;
use lock_store::{LockError, LockErrorKind, Notice, Result, Timestamp};

use crate::calls::wait::announce;
use crate::data::revocation;
use crate::record::Record;
use crate::shared::Shared;

/// How long the server lets one watch last, at least and at most. A watch that is cut without a sign lasts no longer.
const LASTS: (Duration, Duration) = (Duration::from_secs(45), Duration::from_secs(60));

/// How long a watch may be silent behind its end.
const SPARE: Duration = Duration::from_secs(5);

/// How long a watch may take to begin.
const BEGIN: Duration = Duration::from_secs(5);

/// How long one event may be. A Lease has at most 256 KiB of annotations.
const LONGEST: usize = 4 << 20;

/// Why a watch has ended without an error.
enum Ended {
    /// The server ends each watch after a while. The next one begins behind the last event.
    InTime,
    /// The server does not know the changes since the last event any more (410). The next one begins with the present state.
    Compacted,
}

/// The place in the changes of the namespace.
struct Place {
    /// Behind which version the next watch begins. Empty for the present state.
    version: String,
    /// When the changes were last known from their present state.
    began: Timestamp,
}

/// Watches until this is dropped.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut pause = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    let mut place = Place { version: String::new(), began: shared.now() };
    let mut is_up = None;
    loop {
        match one(&shared, &mut place, &mut is_up).await {
            Ok(Ended::InTime) => pause.reset(),
            Ok(Ended::Compacted) => {
                tracing::debug!(
                    "the API server does not know older changes any more; the watch begins with the present state"
                );
                place.version.clear();
                sleep(pause.pause()).await;
            }
            Err(error) => {
                tell(&shared, &mut is_up, false, Some(&error));
                sleep(pause.long_pause()).await;
            }
        }
    }
}

/// Whether changes are heard, and whether the server answers. A server that permits no watch answers too.
type Told = Option<(bool, bool)>;

/// Tells whether changes are heard, if that has changed.
fn tell(shared: &Shared, before: &mut Told, open: bool, error: Option<&LockError>) {
    // Credentials that cannot be used give the same kind of error, and leave no connection.
    let answered = shared.api.open_connection().and(error);
    let refused = answered.is_some_and(|error| error.kind() == LockErrorKind::Misconfigured);
    let up = open || refused;
    if before.replace((open, up)) == Some((open, up)) {
        return;
    }
    match error {
        Some(error) if refused => {
            tracing::warn!(%error, "the Leases of the namespace cannot be watched, so waiters poll");
        }
        Some(error) => tracing::debug!(%error, "the watch of Leases has ended; waiters poll until it is back"),
        None => {}
    }
    if let Some(inbox) = shared.inbox() {
        inbox.set_open(open);
        inbox.notice(&Notice::Connection { node: &shared.api.settings.node, up });
        if open {
            // Messages may be missing. Holders and waiters ask again.
            inbox.reconnected();
        }
    }
}

/// Runs one watch to its end.
async fn one(shared: &Arc<Shared>, place: &mut Place, is_up: &mut Told) -> Result<Ended> {
    let lasts = jitter(LASTS.0, LASTS.1);
    if place.version.is_empty() {
        place.began = shared.now();
    }
    let answer = shared.api.watch(&place.version, lasts, shared.now().after(BEGIN)).await?;
    let Some(answer) = answer else { return Ok(Ended::Compacted) };
    if *is_up != Some((true, true)) {
        tell_server(shared).await;
    }
    tell(shared, is_up, true, None);
    let ends = shared.now().after(lasts + SPARE);
    let (mut body, mut line): (Body, Vec<u8>) = (answer.into_body(), Vec::new());
    loop {
        let frame = match within(ends.since(shared.now()), body.frame()).await {
            None => return Err(LockError::unavailable("the watch was silent for too long")),
            Some(None) => return Ok(Ended::InTime),
            Some(Some(Err(error))) => return Err(LockError::unavailable("the watch was cut").with_source(error)),
            Some(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") {
                if let Some(ended) = event(shared, place, &line)? {
                    return Ok(ended);
                }
                line.clear();
            }
        }
        if line.len() > LONGEST {
            return Err(LockError::unavailable("an event of the watch is longer than any Lease"));
        }
    }
}

/// Works on one event. Returns why the watch has ended, if it has.
fn event(shared: &Arc<Shared>, place: &mut Place, line: &[u8]) -> Result<Option<Ended>> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let (lease, is_deleted) = match serde_json::from_slice::<WatchEvent<Lease>>(line) {
        Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => (lease, false),
        Ok(WatchEvent::Deleted(lease)) => (lease, true),
        Ok(WatchEvent::Bookmark(mark)) => {
            place.version = mark.metadata.resource_version;
            return Ok(None);
        }
        Ok(WatchEvent::Error(status)) if status.code == 410 => return Ok(Some(Ended::Compacted)),
        Ok(WatchEvent::Error(status)) => {
            let text = format!("the API server has ended the watch ({}): {}", status.code, status.message);
            return Err(LockError::unavailable(text));
        }
        Err(error) => return Err(LockError::unavailable("an event of the watch cannot be read").with_source(error)),
    };
    if let Some(version) = &lease.metadata.resource_version {
        place.version.clone_from(version);
    }
    if let Ok(record) = Record::of(lease) {
        hear(shared, place, record, is_deleted);
    }
    Ok(None)
}

/// Notes how a Lease looks now, tells a holder that has lost it, and wakes waiters.
fn hear(shared: &Arc<Shared>, place: &Place, record: Record, is_deleted: bool) {
    let name = record.name().to_owned();
    if !shared.known.hear(record, is_deleted, place.began, shared.now()) {
        return;
    }
    let now = shared.known.get(&name).and_then(|seen| seen.record);
    now.iter().for_each(|record| shared.claims.see(record));
    if let (Some(owner), Some(inbox)) = (shared.claims.of_lease(&name), shared.inbox())
        && now.as_ref().and_then(|record| record.owner()) != Some(owner)
    {
        if let Some((actor, reason)) = now.as_ref().and_then(|record| revocation(record.notes(), owner)) {
            shared.claims.remove(owner);
            inbox.revoked(owner, &actor, &reason);
        } else if let Some(key) = shared.claims.get(owner).and_then(|record| record.key()) {
            inbox.suspect(key);
        }
    }
    shared.plan(&name);
}

/// Reports which server it is, by the namespace. Its name is all that a user without further rights knows of a cluster.
async fn tell_server(shared: &Shared) {
    let until = shared.now().after(BEGIN);
    let (Some(inbox), Ok(connection)) = (shared.inbox(), shared.api.connection(until).await) else { return };
    let (node, version) = (&*shared.api.settings.node, format!("kubernetes {}", connection.version));
    inbox.notice(&Notice::Server { node, id: &connection.namespace, version: &version, kind: "server" });
}

/// Wakes waiters when their time has come. Never returns.
pub(crate) async fn wake(shared: Arc<Shared>) {
    loop {
        let due = shared.waiters.due(shared.now());
        if let Some(inbox) = shared.inbox() {
            due.told.into_iter().for_each(|owner| inbox.ask_again(owner));
        }
        for (name, waiter) in due.announced {
            let seen = shared.known.get(&name).and_then(|seen| seen.record);
            if let Some(key) = seen.and_then(|record| record.key()) {
                shared.runtime.spawn(announce(Arc::clone(&shared), key, waiter));
            }
        }
        tokio::select! {
            () = shared.clock.sleep_until(due.next) => {}
            () = shared.waiters.changed.notified() => {}
        }
    }
}
