//! One connection: it runs scripts, notices its own silence, and knows the server's time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};
use tokio::sync::watch;

use lock_store::types::system::clock::{Clock, Timestamp};
use lock_store::types::system::sync::Mutex;

/// How long a connection may leave every command unanswered before it is given up. None of our
/// commands takes a millisecond, so this is a stalled server or a dead path.
const SILENCE: Duration = Duration::from_secs(1);

/// A command that is dropped sooner than this was cancelled by its caller, which by itself says
/// nothing about the connection.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the clock is emptied: emptying costs the server as much as a draw. As in `layout.lua`.
const EMPTIED_EVERY: u64 = 1000;

/// After how many refusals in a row no batch is tried any more. One may come of a slot that has just arrived.
const REFUSED_BATCHES: u32 = 3;

/// How the server identifies a connection. Ids start again when the server restarts, so the address
/// is part of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    pub(crate) id: u64,
    pub(crate) address: String,
}

impl ClientId {
    /// Reads the answer of `CLIENT INFO`.
    pub(crate) fn read(info: &str) -> Option<Self> {
        let field = |name: &str| info.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Some(Self { id: field("id")?.parse().ok()?, address: field("addr")?.to_owned() })
    }
}

/// An open connection of one runtime.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    /// Counts the connections of the store: what was sent on one is not ordered with another.
    pub(crate) generation: u64,
    /// When it was begun to open it: what was known of the server before need not be true of this one.
    pub(crate) opened_at: Timestamp,
    /// The server's clock, as last read on this connection.
    pub(crate) time: ServerTime,
    /// When the oldest command was sent that has had no answer after it, in ns; 0 if there is none.
    silent_since: AtomicU64,
    /// When the first command was sent that was cancelled early and has had no answer after it, in
    /// ns; 0 if there is none.
    first_cancelled: AtomicU64,
    /// When the last command was cancelled early.
    last_cancelled: AtomicU64,
    /// Closes when the driver of the connection has ended.
    gone: watch::Receiver<()>,
    /// How the server identifies the connection. Without this, the server cannot be asked to close it, so
    /// no command may be sent over it that could be executed too late.
    client: Option<ClientId>,
    /// Whether the server refuses transactions.
    refuses_native: AtomicBool,
    /// How many scripts without declared keys in a row a node of a cluster refused, though it ran their calls one by one.
    refused_batches: AtomicU32,
    /// How many draws from the clock were sent without a script.
    draws: AtomicU64,
    /// Whether the server is a node of a cluster, which takes only keys of one slot at a time.
    cluster: AtomicBool,
    /// Changes when the server to talk to is at another address, if that can happen.
    moves: Option<watch::Receiver<u64>>,
    /// The name of the history of the server's data.
    history: Option<Arc<str>>,
    /// Whether the server refused what gives a lock back.
    refuses_release: AtomicBool,
}

impl Link {
    pub(crate) fn new(
        connection: MultiplexedConnection,
        generation: u64,
        opened_at: Timestamp,
        time: ServerTime,
        gone: watch::Receiver<()>,
        client: Option<ClientId>,
    ) -> Self {
        Self {
            connection,
            generation,
            opened_at,
            time,
            silent_since: AtomicU64::new(0),
            first_cancelled: AtomicU64::new(0),
            last_cancelled: AtomicU64::new(0),
            gone,
            client,
            refuses_native: AtomicBool::new(false),
            refused_batches: AtomicU32::new(0),
            draws: AtomicU64::new(0),
            cluster: AtomicBool::new(false),
            moves: None,
            history: None,
            refuses_release: AtomicBool::new(false),
        }
    }

    /// Returns whether the server refused what gives a lock back.
    pub(crate) fn refuses_release(&self) -> bool {
        self.refuses_release.load(Ordering::Relaxed)
    }

    pub(crate) fn note_release(&self, refused: bool) {
        self.refuses_release.store(refused, Ordering::Relaxed);
    }

    /// Says which history the server's data have. Gives the connection up when `moves` changes, with every command
    /// that is still unanswered.
    pub(crate) fn to(mut self, history: Option<Arc<str>>, moves: Option<watch::Receiver<u64>>) -> Self {
        (self.history, self.moves) = (history, moves);
        self
    }

    /// Returns the name of the history of the server's data, if it told.
    pub(crate) fn history(&self) -> Option<&Arc<str>> {
        self.history.as_ref()
    }

    /// Returns whether the server to talk to is at another address.
    pub(crate) fn has_moved(&self) -> bool {
        self.moves.as_ref().is_some_and(|moves| moves.has_changed().unwrap_or(true))
    }

    /// Returns whether commands have gone unanswered for so long that a new connection is due.
    pub(crate) fn is_silent(&self, now: Timestamp) -> bool {
        let lasted = |since: &AtomicU64, until: Timestamp| match since.load(Ordering::Relaxed) {
            0 => false,
            since => until.since(Timestamp::from_nanos(since)) >= SILENCE,
        };
        // With very short leases, commands are given up early, so one cancellation follows another.
        let last_cancelled = Timestamp::from_nanos(self.last_cancelled.load(Ordering::Relaxed));
        lasted(&self.silent_since, now) || lasted(&self.first_cancelled, last_cancelled)
    }

    /// Returns a handle that closes when the connection has ended. It does not keep it alive.
    pub(crate) fn gone(&self) -> watch::Receiver<()> {
        self.gone.clone()
    }

    /// Waits until the connection has ended, or the server to talk to is at another address. Does not keep the
    /// connection alive.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut gone, moves) = (self.gone.clone(), self.moves.clone());
        async move {
            tokio::select! {
                _ = gone.changed() => {}
                () = moved(moves) => {}
            }
        }
    }

    /// Returns how the server identifies this connection, if it can be asked to close it.
    pub(crate) fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }

    /// Returns whether locks may be taken without a script.
    pub(crate) fn takes_natively(&self) -> bool {
        self.client.is_some() && !self.refuses_native.load(Ordering::Relaxed) && !self.is_cluster()
    }

    pub(crate) fn refuse_native(&self) {
        self.refuses_native.store(true, Ordering::Relaxed);
    }

    /// Returns whether a node of a cluster runs scripts without declared keys, as far as is known.
    pub(crate) fn runs_batches(&self) -> bool {
        self.refused_batches.load(Ordering::Relaxed) < REFUSED_BATCHES
    }

    /// Notes whether calls of such a script were refused that were served by themselves.
    pub(crate) fn note_batch(&self, refused: bool) {
        if refused {
            self.refused_batches.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused_batches.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a draw from the clock. Returns whether it is one of those that empty the clock.
    pub(crate) fn empties_clock(&self) -> bool {
        self.draws.fetch_add(1, Ordering::Relaxed).is_multiple_of(EMPTIED_EVERY)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster.load(Ordering::Relaxed)
    }

    /// Notes that the server is a node of a cluster. Returns whether that was not known.
    pub(crate) fn note_cluster(&self) -> bool {
        !self.cluster.swap(true, Ordering::Relaxed)
    }

    /// Sends one command. Dropping the future does not call it back.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.watched(self.connection.clone().send_packed_command(command)).await?.extract_error()
    }

    /// Sends several commands at once. An error of one command is its answer, and does not affect
    /// the others.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.watched(self.connection.clone().send_packed_commands(commands, 0, commands.len())).await
    }

    async fn watched<T>(&self, answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
        let sent = Clock::system().now().as_nanos().max(1);
        let _ = self.silent_since.compare_exchange(0, sent, Ordering::Relaxed, Ordering::Relaxed);
        let waiting = Waiting { link: self, sent };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            // A server that is stopped, or cut off, does not end the connection.
            () = moved(self.moves.clone()) => Err(RedisError::from((ErrorKind::Io, "another server has taken over"))),
        };
        self.silent_since.store(0, Ordering::Relaxed);
        self.first_cancelled.store(0, Ordering::Relaxed);
        drop(waiting);
        answer
    }
}

/// Waits until the server to talk to is at another address.
pub async fn moved(moves: Option<watch::Receiver<u64>>) {
    match moves {
        Some(mut moves) => drop(moves.changed().await),
        None => pending().await,
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(generation {})", self.generation)
    }
}

/// A command that has not been answered yet.
struct Waiting<'a> {
    link: &'a Link,
    /// When it was sent, in ns.
    sent: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = Clock::system().now();
        let Link { silent_since, first_cancelled, last_cancelled, .. } = self.link;
        let cancelled_early =
            silent_since.load(Ordering::Relaxed) == self.sent && now.since(Timestamp::from_nanos(self.sent)) < PATIENCE;
        if cancelled_early {
            let _ = first_cancelled.compare_exchange(0, self.sent, Ordering::Relaxed, Ordering::Relaxed);
            last_cancelled.store(now.as_nanos(), Ordering::Relaxed);
            let _ = silent_since.compare_exchange(self.sent, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// How old a reading of the server's clock may become while tighter ones fail to come.
const READING_KEPT: Duration = Duration::from_secs(10);

/// An estimate of the server's clock that is never late.
///
/// It counts from the *receipt* of an answer, while the server wrote its time before: the estimate
/// lags by the way back. A deadline computed from it is therefore never later than intended,
/// however long the answer took. At worst the server calls it stale, and reports its time.
#[derive(Debug)]
pub struct ServerTime(Mutex<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The server's time, in µs since 1970.
    micros: u64,
    /// When the answer with it was received.
    received: Timestamp,
}

impl Reading {
    fn at(self, now: Timestamp) -> u64 {
        let elapsed = now.since(self.received).as_micros();
        self.micros.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

impl ServerTime {
    /// Begins with one reading of the server's clock, in µs.
    #[must_use]
    pub fn new(micros: u64, received: Timestamp) -> Self {
        Self(Mutex::new(Reading { micros, received }))
    }

    /// Takes a new reading into account: a tighter one at once, any other when the old one is old,
    /// since the two clocks drift, and the server's may be set back.
    pub fn observe(&self, micros: u64, received: Timestamp) {
        let mut reading = self.0.lock();
        if micros > reading.at(received) || received.since(reading.received) > READING_KEPT {
            *reading = Reading { micros, received };
        }
    }

    /// Returns what time it is on the server, in µs.
    pub(crate) fn estimate(&self, now: Timestamp) -> u64 {
        self.deadline(now, Duration::ZERO)
    }

    /// Returns the server time, in µs, after which a command sent now must not be executed.
    #[must_use]
    pub fn deadline(&self, now: Timestamp, within: Duration) -> u64 {
        let reading = *self.0.lock();
        reading.at(now).saturating_add(u64::try_from(within.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Gives up on work that takes too long.
pub(crate) async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    let clock = Clock::system();
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep_until(clock.now().after(patience)) => None,
    }
}

/// The error of an answer that cannot be read.
pub(crate) fn unreadable() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "not what the script answers"))
}

#[cfg(test)]
#[path = "tests/link.rs"]
mod tests;
