//! Keeping the connections of a server: opened again when they end, led to another address, logged in again.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::calls::release::repeat_releases;
use crate::connection::credentials::Credentials;
use crate::server::checks::{check_eviction, check_state};
use crate::server::node::{BACKOFF, Node};
use lock_store::contract::backend::Inbox;
use lock_store::contract::event::Notice;
use lock_store::types::error::{LockError, LockErrorKind};
use lock_store::types::system::clock::Clock;

/// How often it is asked how many replicas there are, and which slots are being moved.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// How long to wait after a provider has failed.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long logging in again may take, on all connections together.
const LOG_IN_WITHIN: Duration = Duration::from_secs(5);

impl Node {
    /// Keeps the connections for background work open, until that can never succeed.
    pub(crate) async fn drive(&self, inbox: &Inbox) -> LockError {
        let _kept = self.renewals.keep_here();
        tokio::select! {
            error = self.keep_connected(inbox) => error,
            () = self.follow(inbox) => LockError::unavailable("following the master ended"),
            () = self.rotate_credentials() => LockError::unavailable("renewing the credentials ended"),
            () = self.listen(inbox) => LockError::unavailable("listening for grants ended"),
            () = self.listen_in_slots(inbox) => LockError::unavailable("listening in slots ended"),
        }
    }

    /// Keeps a connection open on the keeper, and ends only when that can never succeed.
    async fn keep_connected(&self, inbox: &Inbox) -> LockError {
        let clock = Clock::system();
        let node = self.name();
        let (mut was_up, mut told_down, mut backoff) = (false, false, BACKOFF);
        let mut failovers = self.pool.history.changes();
        loop {
            let mut retirements = self.pool.retirements();
            match self.pool.connection().await {
                Ok(connection) => {
                    let link = &connection.link;
                    inbox.notice(&Notice::Connection { node, up: true });
                    tracing::debug!(node, generation = link.generation, "connected");
                    if was_up || told_down {
                        // Callers whom the server has not answered pause until then.
                        inbox.reconnected();
                    }
                    if std::mem::replace(&mut failovers, self.pool.history.changes()) != failovers {
                        inbox.notice(&Notice::Failover { node });
                        tracing::warn!(node, "the server's history has changed: it may have lost locks");
                        self.taken_over.notify_one();
                    }
                    (was_up, told_down) = (true, false);
                    let opened_at = clock.now();
                    let mut ended = std::pin::pin!(link.ended());
                    self.answered();
                    check_eviction(self, link, inbox).await;
                    check_state(self, link, inbox).await;
                    // Dropped here, because a connection that was given up must be able to close.
                    drop(connection);
                    loop {
                        tokio::select! {
                            () = &mut ended => break,
                            _ = retirements.changed() => break,
                            () = self.taken_over.notified() => {
                                tokio::select! {
                                    () = repeat_releases(self) => continue,
                                    () = &mut ended => {}
                                    _ = retirements.changed() => {}
                                }
                                // On the next connection.
                                self.taken_over.notify_one();
                                break;
                            }
                            () = clock.sleep_until(clock.now().after(CHECK_EVERY)) => self.renewals.pool.close_if_idle(),
                        }
                        if let Ok(connection) = self.pool.connection().await {
                            check_state(self, &connection.link, inbox).await;
                        }
                    }
                    // A connection that is closed while it opens does not count as a success.
                    backoff.went_well_for(clock.now().since(opened_at));
                    tracing::debug!(node, "disconnected");
                }
                Err(error) if error.kind() == LockErrorKind::Misconfigured => return error,
                Err(error) => tracing::debug!(node, %error, "cannot connect"),
            }
            self.doubt();
            if !told_down {
                inbox.notice(&Notice::Connection { node, up: false });
                told_down = true;
            }
            self.pause(&mut backoff).await;
        }
    }

    /// Follows the server from address to address. Never returns.
    async fn follow(&self, inbox: &Inbox) {
        self.rounds.report_to(inbox);
        let moves = async {
            loop {
                self.pool.place.moved().await;
                inbox.notice(&Notice::Moved { node: self.name() });
            }
        };
        tokio::join!(self.pool.place.follow(), moves);
    }

    /// Logs every open connection in again before its credentials expire. Never returns.
    async fn rotate_credentials(&self) {
        let Some(provider) = self.pool.target().provider() else { return pending().await };
        let clock = Clock::system();
        loop {
            let before = self.logged_in.load(Ordering::Relaxed);
            match provider.after(before).await {
                Ok((number, credentials)) => {
                    // With the first, connections are opened.
                    if before > 0 {
                        self.log_in_again(&credentials).await;
                        self.slot_inboxes.reopen();
                    }
                    self.logged_in.store(number, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::warn!(node = self.name(), ?error, "cannot renew the credentials, trying again");
                    clock.sleep_until(clock.now().after(ASK_AGAIN)).await;
                }
            }
        }
    }

    async fn log_in_again(&self, credentials: &Credentials) {
        let mut log_in = redis::cmd("AUTH");
        if let Some(username) = &credentials.username {
            log_in.arg(username);
        }
        log_in.arg(&credentials.password);
        let everywhere = async {
            let pools =
                [self.pool.open_connections(), self.renewals.pool.open_connections(), self.rounds.open_connections()];
            let (connections, listeners) = (pools.concat(), self.listeners.all());
            let links = connections.iter().map(|connection| &connection.link);
            let mut refused = Vec::new();
            for link in links.chain(listeners.iter().map(|listener| &listener.link)) {
                refused.extend(link.send(&log_in).await.err());
            }
            refused
        };
        // A connection that does not answer is given up by its next user.
        #[expect(clippy::disallowed_methods, reason = "bounds a task of the keeper that no caller drives")]
        let refused = tokio::time::timeout(LOG_IN_WITHIN, everywhere).await;
        for error in refused.unwrap_or_default() {
            tracing::warn!(
                node = self.name(),
                code = error.code(),
                "new credentials are refused; the connection stays on the old ones until the server ends it",
            );
        }
    }
}
