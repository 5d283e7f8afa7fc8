//! The session that hears of grants.

use std::time::Duration;

use lock_core::{LockError, LockKey, Notice, OwnerId, Result};
use lock_store::{Claim, Grant, Inbox};
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use crate::pin::unsigned;
use crate::session::{Opened, Session, open, within};
use crate::url::Settings;

/// How often the session is asked whether it is still there, and the tables are swept.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a message to oneself may take.
const HEARD: Duration = Duration::from_secs(5);

/// Listens until the connection fails. Grants reach the inbox from the moment at which a message to oneself has come.
/// Now and then it has the tables swept.
pub(crate) async fn listen<F: Future<Output = Result<()>>>(
    settings: &Settings,
    sweep: impl Fn() -> F,
    inbox: &Inbox,
) -> LockError {
    let _closed = Closed(inbox);
    match hear(settings, sweep, inbox).await {
        Ok(()) => LockError::unavailable("the session that hears of grants has ended"),
        Err(error) => error,
    }
}

/// Closes the inbox however listening ends.
struct Closed<'a>(&'a Inbox);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.set_open(false);
    }
}

async fn hear<F: Future<Output = Result<()>>>(settings: &Settings, sweep: impl Fn() -> F, inbox: &Inbox) -> Result<()> {
    let config = settings.listen.as_ref().unwrap_or(&settings.config);
    let (told, mut messages) = mpsc::unbounded_channel();
    let Opened { session, pooled, .. } = open(settings, config, true, move |message| {
        if let AsyncMessage::Notification(notification) = message {
            let _ = told.send(notification.payload().to_owned());
        }
    })
    .await?;
    tell_server(&session, &settings.node, inbox).await;
    if pooled {
        // The presence would stay in the pool when this process is gone.
        return Err(not_heard());
    }
    let (channel, id) = (format!("{}_{}", settings.schema, inbox.id()), inbox.id().to_string());
    // Messages to all processes come over the other channel.
    session.run(&format!("LISTEN \"{channel}\"; LISTEN \"{}_revoked\"", settings.schema)).await?;
    session.ask("SELECT pg_catalog.pg_notify($1, 'hello')", &[(&channel, Type::TEXT)]).await?;
    loop {
        match within(HEARD, messages.recv()).await.flatten() {
            Some(text) if text == "hello" => break,
            Some(text) => deliver(inbox, &text),
            None => return Err(not_heard()),
        }
    }
    // Held for as long as this process listens. A session that grants a lock tries to get it.
    session
        .ask(&format!("SELECT pg_catalog.pg_advisory_lock({}.presence_v1($1))", settings.schema), &[(&id, Type::TEXT)])
        .await?;
    inbox.set_open(true);
    inbox.reconnected();
    // Beside the messages: many of them keep nobody from sweeping, and a sweep keeps no grant waiting.
    let mut tended = std::pin::pin!(tend(&session, sweep));
    let mut last = settings.hosts.last();
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(text) => deliver(inbox, &text),
                // The connection has ended.
                None => return Ok(()),
            },
            error = &mut tended => return Err(error),
            _ = last.changed(), if !session.is_left() => {}
        }
        if session.is_left() {
            return Err(LockError::unavailable("another host of the URL has become the primary"));
        }
    }
}

/// Reports which server it is: two may have one name. A failover changes its timeline, and no restart changes anything.
async fn tell_server(session: &Session, node: &str, inbox: &Inbox) {
    let look = "SELECT c.system_identifier, pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8), \
                pg_catalog.current_setting('server_version') FROM pg_catalog.pg_control_system() c";
    // A user may have been forbidden to ask. Then the server stays unknown.
    let Ok(rows) = session.ask(look, &[]).await else { return };
    let Some(row) = rows.first() else { return };
    let (system, timeline, version): (i64, &str, &str) = (row.get(0), row.get(1), row.get(2));
    // The first digits are shown. The high half of the identifier is a time in seconds, which servers of one fleet may share.
    let id = format!("{}-{:08x}", timeline.trim_start_matches('0'), system & 0xffff_ffff);
    let version = format!("postgres {}", version.split(' ').next().unwrap_or(version));
    inbox.notice(&Notice::Server { node, id: &id, version: &version, kind: "server" });
}

/// Has the tables swept now and then, for as long as the session answers.
async fn tend<F: Future<Output = Result<()>>>(session: &Session, sweep: impl Fn() -> F) -> LockError {
    loop {
        pause().await;
        if let Err(error) = session.run("SELECT 1").await {
            return error;
        }
        if let Err(error) = sweep().await {
            tracing::debug!(%error, "locks that were freed long ago have not been removed from PostgreSQL");
        }
    }
}

fn not_heard() -> LockError {
    LockError::misconfigured(
        "PostgreSQL is reached through a pooler by transaction, in which nobody can listen, so waiters poll; name the server itself with \
         ?listen=host:5432",
    )
}

/// Reads `granted|owner|token|stamp|grant_ms|key`, or `revoked|owner|actor|reason`.
fn deliver(inbox: &Inbox, text: &str) {
    let revoked = || {
        let mut parts = text.splitn(4, '|');
        let is_revoked = parts.next()? == "revoked";
        let owner = OwnerId::from_hex(&parts.next()?.replace('-', ""));
        is_revoked.then_some((owner?, parts.next()?, parts.next()?))
    };
    if let Some((owner, actor, reason)) = revoked() {
        return inbox.revoked(owner, actor, reason);
    }
    let read = || {
        let mut parts = text.splitn(6, '|');
        if parts.next()? != "granted" {
            return None;
        }
        let owner = OwnerId::from_hex(&parts.next()?.replace('-', ""))?;
        let token = unsigned(parts.next()?.parse().ok()?);
        let stamp: i64 = parts.next()?.parse().ok()?;
        let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
        let mut claim = Claim::new(LockKey::new(parts.next()?).ok()?, ttl);
        claim.owner = owner;
        Some(Grant::new(claim, token, stamp.cast_unsigned()))
    };
    match read() {
        Some(grant) => inbox.granted(grant),
        None => {
            tracing::debug!("a message that is neither a grant nor a revocation came to the inbox of a lock manager");
        }
    }
}

async fn pause() {
    #[expect(clippy::disallowed_methods, reason = "runs on the keeper, which has a timer")]
    tokio::time::sleep(PAUSE).await;
}
