//! A TCP proxy that misbehaves on request.

mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::servers::proxy::pump::pump;
use crate::servers::relative::{Disguise, RedisRelative};
use lock_store::types::system::sync::Mutex;

/// Sits between clients and one server, on its own thread.
///
/// It passes bytes on faithfully until it is told otherwise. Like TCP, it never loses bytes from the middle of a
/// connection: it holds back the bytes that it does not pass on, or ends the connection.
///
/// ```no_run
/// use std::time::Duration;
/// use lock_testing::{Direction, FaultProxy, RedisServer};
///
/// let server = RedisServer::start();
/// let proxy = FaultProxy::start(server.port());
/// proxy.delay(Direction::ToClient, Duration::from_millis(50));
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The direction of bytes through a [`FaultProxy`].
///
/// See the example of [`FaultProxy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the clients: requests.
    ToServer,
    /// From the server: replies.
    ToClient,
}

/// The faults of both directions, for current and new connections.
#[derive(Debug)]
struct Faults {
    to_server: Lane,
    to_client: Lane,
    current: Mutex<Generation>,
    /// Changes when every current connection must stop passing bytes on.
    strand: watch::Sender<u64>,
    refuse: AtomicBool,
    /// The server that new connections reach.
    port: AtomicU16,
    /// What the server pretends to be.
    relative: Option<RedisRelative>,
    connections: AtomicU64,
}

/// The connections since the last [`FaultProxy::kill_connections`].
#[derive(Debug)]
struct Generation {
    /// Dropped when they must end.
    lives: watch::Sender<()>,
    /// Each connection holds one of these, so the receiver tells when the last has ended.
    open: std::sync::mpsc::Sender<()>,
    ended: std::sync::mpsc::Receiver<()>,
}

#[derive(Debug)]
pub(super) struct Lane {
    policy: watch::Sender<Policy>,
    passed: AtomicU64,
    /// How many more bytes pass before their connection ends.
    cut_after: Mutex<Option<usize>>,
    /// Whether the rest is held back then, and no connection ends.
    holds: AtomicBool,
    /// How many more arrivals are thrown away, each with its connection.
    swallow: AtomicU64,
    /// The text before which a connection passes nothing on any more.
    strand_at: Mutex<Option<Box<[u8]>>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    delay: Duration,
    blocked: bool,
}

impl FaultProxy {
    /// Starts a proxy in front of a server on this machine.
    ///
    /// # Panics
    ///
    /// Panics if no port is free.
    #[must_use]
    pub fn start(server_port: u16) -> Self {
        Self::start_with(server_port, None)
    }

    /// Starts a proxy that makes a Redis server on this machine behave like another service.
    ///
    /// # Panics
    ///
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_as(relative: RedisRelative, server_port: u16) -> Self {
        Self::start_with(server_port, Some(relative))
    }

    fn start_with(server_port: u16, relative: Option<RedisRelative>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime for the proxy can be built");
        // Bound without the runtime, because the caller may be inside another runtime.
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let faults = Arc::new(Faults {
            to_server: Lane::new(),
            to_client: Lane::new(),
            current: Mutex::new(Generation::new()),
            strand: watch::Sender::new(0),
            refuse: AtomicBool::new(false),
            port: AtomicU16::new(server_port),
            relative,
            connections: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&faults);
        let thread = std::thread::spawn(move || {
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("the runtime has I/O");
                tokio::select! {
                    () = accept(&listener, &shared, &handle) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, faults, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the URL of the Redis server behind the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Delays every byte of a direction by the same time, like a long cable.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.lane(direction).policy.send_modify(|policy| policy.delay = delay);
    }

    /// Holds back every byte of a direction until [`resume`](Self::resume). Connections stay open.
    pub fn black_hole(&self, direction: Direction) {
        self.lane(direction).policy.send_modify(|policy| policy.blocked = true);
    }

    /// Throws the next `count` replies away, and ends the connection of each.
    ///
    /// The server has executed the request, but the client never learns of it.
    pub fn drop_replies(&self, count: u64) {
        self.faults.to_client.swallow.store(count, Ordering::SeqCst);
    }

    /// Ends the connection that carries the `bytes`-th byte from now, after that byte.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        *self.lane(direction).cut() = Some(bytes);
    }

    /// Falls silent after the `bytes`-th byte from now: every later byte of this direction is held back until
    /// [`resume`](Self::resume), and connections stay open.
    pub fn silent_after(&self, direction: Direction, bytes: usize) {
        let lane = self.lane(direction);
        lane.holds.store(true, Ordering::SeqCst);
        *lane.cut() = Some(bytes);
    }

    /// Ends every connection. When it returns, no byte passes through them any more.
    pub fn kill_connections(&self) {
        let Generation { lives, open, ended } = std::mem::replace(&mut *self.faults.current(), Generation::new());
        drop((lives, open));
        let _ = ended.recv();
    }

    /// Stops passing bytes on over the current connections, which stay open. New connections work.
    pub fn strand_connections(&self) {
        self.faults.strand.send_modify(|generation| *generation += 1);
    }

    /// Strands each connection that is about to carry this text to the server, as when one command hangs. Other
    /// connections work.
    pub fn strand_at(&self, text: &str) {
        *self.faults.to_server.strand_at.lock() = Some(text.as_bytes().into());
    }

    /// Ends every new connection at once, or stops doing so.
    pub fn refuse(&self, refuse: bool) {
        self.faults.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Leads new connections to another server, like a virtual address that has moved. Current connections stay where
    /// they are.
    pub fn lead_to(&self, server_port: u16) {
        self.faults.port.store(server_port, Ordering::SeqCst);
    }

    /// Ends all faults in both directions. Bytes that were held back are passed on.
    pub fn resume(&self) {
        self.refuse(false);
        for lane in [&self.faults.to_server, &self.faults.to_client] {
            *lane.cut() = None;
            lane.holds.store(false, Ordering::SeqCst);
            lane.swallow.store(0, Ordering::SeqCst);
            *lane.strand_at.lock() = None;
            lane.policy.send_replace(Policy::default());
        }
    }

    /// Returns how many bytes have passed in a direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.lane(direction).passed.load(Ordering::SeqCst)
    }

    /// Returns how many connections have been accepted and passed on so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.faults.connections.load(Ordering::SeqCst)
    }

    fn lane(&self, direction: Direction) -> &Lane {
        self.faults.lane(direction)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Generation {
    fn new() -> Self {
        let (open, ended) = std::sync::mpsc::channel();
        Self { lives: watch::Sender::new(()), open, ended }
    }
}

impl Faults {
    fn current(&self) -> std::sync::MutexGuard<'_, Generation> {
        self.current.lock()
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl Lane {
    fn new() -> Self {
        Self {
            policy: watch::Sender::new(Policy::default()),
            passed: AtomicU64::new(0),
            cut_after: Mutex::new(None),
            holds: AtomicBool::new(false),
            swallow: AtomicU64::new(0),
            strand_at: Mutex::new(None),
        }
    }

    fn strands(&self, bytes: &[u8]) -> bool {
        self.strand_at.lock().as_ref().is_some_and(|text| bytes.windows(text.len()).any(|part| part == &**text))
    }

    fn cut(&self) -> std::sync::MutexGuard<'_, Option<usize>> {
        self.cut_after.lock()
    }

    /// Returns how many of `length` bytes may pass, and whether their connection ends after them.
    fn admit(&self, length: usize) -> (usize, bool) {
        let swallow = self.swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if swallow.is_ok() {
            return (0, true);
        }
        let mut cut = self.cut();
        match *cut {
            Some(left) if left <= length => {
                *cut = None;
                (left, true)
            }
            Some(left) => {
                *cut = Some(left - length);
                (length, false)
            }
            None => (length, false),
        }
    }
}

async fn accept(listener: &TcpListener, faults: &Arc<Faults>, handle: &tokio::runtime::Handle) {
    while let Ok((client, _)) = listener.accept().await {
        let (mut killed, open) = {
            // Checked under the lock. A test that first refuses and then kills therefore leaves no connection alive.
            let current = faults.current();
            if faults.refuse.load(Ordering::SeqCst) {
                continue;
            }
            (current.lives.subscribe(), current.open.clone())
        };
        let faults = Arc::clone(faults);
        handle.spawn(async move {
            tokio::select! {
                _ = connect(client, &faults) => {}
                _ = killed.changed() => {}
            }
            drop(open);
        });
    }
}

/// Serves one connection until either side ends it.
async fn connect(client: TcpStream, faults: &Faults) -> std::io::Result<()> {
    let port = faults.port.load(Ordering::SeqCst);
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    faults.connections.fetch_add(1, Ordering::SeqCst);
    let mut stranded = faults.strand.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let disguise = faults.relative.map(|relative| Mutex::new(Disguise::new(relative)));
    let asked = |bytes: Vec<u8>| match &disguise {
        Some(disguise) => disguise.lock().asked(&bytes),
        None => bytes,
    };
    let told = |bytes: Vec<u8>| match &disguise {
        Some(disguise) => disguise.lock().answered(&bytes),
        None => bytes,
    };
    // Pinned outside of the select, which would close the sockets of a stranded connection.
    let mut requests = std::pin::pin!(pump(from_client, to_server, &faults.to_server, asked));
    let mut replies = std::pin::pin!(pump(from_server, to_client, &faults.to_client, told));
    tokio::select! {
        biased;
        _ = stranded.changed() => std::future::pending().await,
        () = requests.as_mut() => {}
        () = replies.as_mut() => {}
    }
    Ok(())
}
