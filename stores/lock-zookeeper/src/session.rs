//! One session with the servers.
//!
//! The client never replaces a session: after its end, every request fails. So a claim cannot pass into another session unnoticed.

mod banner;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
mod tls {
    pub(crate) type Tls = std::convert::Infallible;
    pub(crate) async fn read(settings: &crate::url::Settings) -> lock_store::Result<Option<Tls>> {
        Ok(settings.tls.as_ref().and(None))
    }
}

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use lock_store::types::system::sync::Mutex;
use lock_store::{Clock, LockError, Result, Timestamp};
use tokio::task::unconstrained;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState, Stat, StateWatcher};

use crate::error::{Answer, of_opening, of_request};
use crate::names::Paths;
use crate::url::Settings;

pub(crate) use banner::{number, versions};
pub(crate) use lock_store::thread::{sleep, within};

/// How long it may take to open a session, over all servers. The callers wait only as long as their own time-outs allow.
const OPEN: Duration = Duration::from_secs(5);

/// A node, or `None` if it does not exist.
pub(crate) type Read = Option<(Vec<u8>, Stat)>;

/// The number that each token adds to the number of a transaction. Without its node, it is the smallest one.
struct Base {
    read: Read,
    /// Ends when the node may have changed since.
    outdated: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A session.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) id: i64,
    /// The ephemeral node that this session writes to.
    pub(crate) beat: String,
    /// How long it lasts, as the servers have agreed.
    pub(crate) lasts: Duration,
    /// Its node was made at this time of the server's clock, by a request that was sent at that time of ours.
    pub(crate) began: (Timestamp, i64),
    /// When the newest answered write of this session was sent.
    written: Mutex<Timestamp>,
    base: Mutex<Option<Base>>,
}

impl Session {
    /// Opens a session. If it `lingers`, it ends only when the servers have not heard of it for its whole time.
    pub(crate) async fn open(settings: &Settings, paths: &Paths, lingers: bool) -> Result<Self> {
        let opened = within(OPEN, Self::open_in_time(settings, paths, lingers)).await;
        opened.unwrap_or_else(|| {
            let text = format!(
                "no session with ZooKeeper at {} within {OPEN:?}; is a majority of its servers up, and do both ends use TLS or neither?",
                settings.hosts
            );
            Err(LockError::not_executed(text))
        })
    }

    async fn open_in_time(settings: &Settings, paths: &Paths, lingers: bool) -> Result<Self> {
        let tls = tls::read(settings).await?;
        banner::check(&settings.hosts, tls.as_ref()).await?;
        let failed = |error: Error| of_opening(error, &settings.hosts);
        // A connection that is silent for a sixth of the session is left, so renewals still have time for another one.
        let silence = (settings.session / 6).max(Duration::from_millis(200));
        let mut connector = Client::connector().with_session_timeout(settings.session).with_connection_timeout(silence);
        if let Some(login) = &settings.login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        if lingers {
            connector = connector.with_detached();
        }
        let connected = match tls {
            #[cfg(feature = "tls")]
            Some(tls) => connector.with_tls(tls.options).secure_connect(&settings.hosts).await,
            _ => connector.connect(&settings.hosts).await,
        };
        let client = connected.map_err(failed)?;
        let (id, lasts) = (client.session_id().0, client.session_timeout());
        let sent = Clock::system().now();
        let stat = make_beat(&client, settings, paths).await.map_err(failed)?;
        let (beat, began, written) = (paths.beat(id), (sent, stat.ctime), Mutex::new(sent));
        Ok(Self { client, id, beat, lasts, began, written, base: Mutex::default() })
    }

    /// Returns how long an answered write promises the locks of this session, from its sending.
    ///
    /// The leader may last have heard of it 0.4 sessions before the write: a follower reports its clients with its answers to pings.
    pub(crate) fn lease(&self) -> Duration {
        self.lasts / 2
    }

    /// Returns how long an answered write promises a lock, if that is less than its ttl.
    pub(crate) fn promised(&self, ttl: Duration) -> Option<Duration> {
        Some(self.lease()).filter(|lease| *lease < ttl)
    }

    /// Notes that a write was answered which was sent at that time.
    pub(crate) fn note_written(&self, sent: Timestamp) {
        let mut written = self.written.lock();
        *written = sent.max(*written);
    }

    /// Returns whether an answered write promises the locks of this session already for a time from that one on.
    pub(crate) fn promises(&self, from: Timestamp, lease: Duration) -> bool {
        from.after(lease) <= self.written.lock().after(self.lease())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    pub(crate) fn states(&self) -> StateWatcher {
        self.client.state_watcher()
    }

    /// Returns the base of tokens, unless it may have changed since it was read. It is at least as new as every answer and event of this
    /// connection.
    ///
    /// Servers send the event of a change before later events, and before the answer to each request that they execute after the
    /// change. So a watch without an event shows that nothing has changed. This does not hold over a new connection: its server may
    /// be older than an event that came over the one before.
    pub(crate) fn known_base(&self) -> Option<Read> {
        known(&mut self.base.lock())
    }

    /// Reads the base of tokens, and watches it.
    pub(crate) async fn learn_base(&self, path: &str) -> Result<Read> {
        let mut states = self.states();
        let (stat, watcher) = self.client.check_and_watch_stat(path).await.map_err(of_request)?;
        let read = if stat.is_some() { self.read(path).await? } else { None };
        // Polled in the middle of other tasks: an empty budget of such a task in tokio must not hide an event.
        let outdated = Box::pin(unconstrained(async move {
            tokio::select! {
                _ = watcher.changed() => {}
                _ = states.changed() => {}
            }
        }));
        *self.base.lock() = Some(Base { read: read.clone(), outdated });
        Ok(read)
    }

    /// Reads a node. `None` if it does not exist.
    pub(crate) async fn read(&self, path: &str) -> Result<Read> {
        match self.client.get_data(path).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(of_request(error)),
        }
    }

    /// Removes a node as it was read. It may have been removed, or written again, meanwhile.
    pub(crate) async fn remove_read(&self, path: &str, read: &Stat) -> Result<()> {
        match self.client.delete(path, Some(read.version)).await {
            Ok(()) | Err(Error::NoNode | Error::BadVersion) => Ok(()),
            Err(error) => Err(of_request(error)),
        }
    }

    /// Lists a directory, which may not exist yet.
    pub(crate) async fn children(&self, folder: &str) -> Result<Vec<String>> {
        match self.client.list_children(folder).await {
            Ok(names) => Ok(names),
            Err(Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(of_request(error)),
        }
    }

    /// Waits until it has a connection. Never returns if it has ended.
    pub(crate) async fn connected(&self) {
        let mut states = self.states();
        while self.client.state() != SessionState::SyncConnected {
            states.changed().await;
        }
    }
}

fn known(base: &mut Option<Base>) -> Option<Read> {
    let is_outdated = base.as_mut()?.outdated.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    // A future that has ended must not be polled again.
    base.take_if(|_| is_outdated);
    base.as_ref().map(|base| base.read.clone())
}

/// Makes the node that a session writes to, and the directories that every session needs.
pub(crate) async fn make_beat(client: &Client, settings: &Settings, paths: &Paths) -> Answer<Stat> {
    let (beat, options) = (paths.beat(client.session_id().0), CreateMode::Ephemeral.with_acls(acls(settings)));
    let mut made = client.create(&beat, &[], &options).await;
    if made == Err(Error::NoNode) {
        for folder in [&paths.beats, &paths.locks, &paths.revoked] {
            make(client, settings, folder).await?;
        }
        made = client.create(&beat, &[], &options).await;
    }
    made.map(|(stat, _)| stat)
}

/// Returns who may use the nodes: everybody, or the user of the URL.
pub(crate) fn acls(settings: &Settings) -> Acls<'static> {
    if settings.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
}

/// Options for nodes that outlive their session.
pub(crate) fn lasting(settings: &Settings) -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(acls(settings))
}

/// Makes a directory and those above it.
pub(crate) async fn make(client: &Client, settings: &Settings, path: &str) -> Answer<()> {
    client.mkdir(path, &lasting(settings)).await
}

#[cfg(test)]
mod tests {
    use super::{Base, known};

    #[test]
    fn a_base_that_may_have_changed_is_not_known_any_more() {
        let mut same = Some(Base { read: None, outdated: Box::pin(std::future::pending()) });
        assert_eq!([known(&mut same), known(&mut same)], [Some(None), Some(None)]);
        let mut changed = Some(Base { read: None, outdated: Box::pin(async {}) });
        assert_eq!([known(&mut changed), known(&mut changed)], [None, None]);
    }
}
